// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"fmt"
)

// serial is a driver that serialises the calls that change a port, and refuses invalid
// interfaces. The other calls are for interfaces that Plug has accepted.
type serial struct {
	Driver
	set *Set
}

func (s serial) Plug(ctx context.Context, i Interface) error {
	if err := i.check(); err != nil {
		return err
	}
	return s.set.alone(ctx, i.PortID, func() error { return s.Driver.Plug(ctx, i) })
}

func (s serial) Unplug(ctx context.Context, i Interface) error {
	if err := i.checkIdentity(); err != nil {
		return err
	}
	return s.set.alone(ctx, i.PortID, func() error { return s.Driver.Unplug(ctx, i) })
}

// alone calls f while no other call changes the port.
func (s *Set) alone(ctx context.Context, portID string, f func() error) error {
	done, err := s.busy.Take(ctx, portID)
	if err != nil {
		return fmt.Errorf("waiting for another call for port %s: %w", portID, ctx.Err())
	}
	defer done()
	return f()
}
