// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
)

// Owners is a lock for each object. It protects what the object owns in the cloud. The zero value
// is ready for use. It is safe for concurrent use.
type Owners struct {
	mu   sync.Mutex
	held map[ctrl.Request]chan struct{} // closed when the lock is released
}

// Take waits for the lock of an object.
func (o *Owners) Take(ctx context.Context, of ctrl.Request) (release func(), err error) {
	for {
		release, held := o.Try(of)
		if release != nil {
			return release, nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Try takes the lock of an object without waiting. If the lock is taken, release is nil and held is
// closed when the lock is released.
func (o *Owners) Try(of ctrl.Request) (release func(), held <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.held[of]; c != nil {
		return nil, c
	}
	if o.held == nil {
		o.held = map[ctrl.Request]chan struct{}{}
	}
	done := make(chan struct{})
	o.held[of] = done
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.held, of)
		close(done)
	}, nil
}
