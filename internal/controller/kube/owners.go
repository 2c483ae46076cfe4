// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
)

// Owners has one at a time at what an object owns, and those of different objects not
// wait for each other. The zero value is ready; it is safe for concurrent use.
type Owners struct {
	mu   sync.Mutex
	held map[ctrl.Request]chan struct{} // closed when it is released
}

// Take waits until nobody else has what an object owns.
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

// Try is take, but for the wait: release is nil while somebody else has it, until held
// is closed.
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
