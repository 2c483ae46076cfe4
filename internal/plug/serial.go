// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"fmt"
	"sync"
)

// serial is a driver that serialises the calls that change a port, and refuses invalid
// interfaces.
type serial struct {
	set *Set
	d   Driver
}

func (s serial) Plug(ctx context.Context, i Interface) error {
	if err := i.check(); err != nil {
		return err
	}
	return s.set.alone(ctx, i.PortID, func() error { return s.d.Plug(ctx, i) })
}

func (s serial) Wait(ctx context.Context, i Interface) error {
	if err := i.check(); err != nil {
		return err
	}
	return s.d.Wait(ctx, i)
}

func (s serial) Unplug(ctx context.Context, i Interface) error {
	if err := i.checkIdentity(); err != nil {
		return err
	}
	return s.set.alone(ctx, i.PortID, func() error { return s.d.Unplug(ctx, i) })
}

func (s serial) Check(ctx context.Context, i Interface) error {
	if err := i.check(); err != nil {
		return err
	}
	return s.d.Check(ctx, i)
}

// alone calls f while no other call changes the port.
func (s *Set) alone(ctx context.Context, portID string, f func() error) error {
	done, err := s.busy.take(ctx, portID)
	if err != nil {
		return err
	}
	defer done()
	return f()
}

// keyed is a mutex for each key.
type keyed struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	token chan struct{}
	users int
}

// take waits for the key and returns how to release it.
func (k *keyed) take(ctx context.Context, key string) (func(), error) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*turn{}
	}
	t := k.held[key]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		k.held[key] = t
	}
	t.users++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(k.held, key)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("waiting for another call for port %s: %w", key, ctx.Err())
	}
}
