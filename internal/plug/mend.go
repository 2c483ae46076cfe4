// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// Mend connects the node's ends of sandboxes' ports to their switch again if they are missing
// there, and returns these ports. A recreated bridge, or a lost database of Open vSwitch, has no
// ports. Mend does not look into the sandbox: if a pair is gone, so is the pod's interface. It
// ignores ports of binding drivers, and ports without a node's end.
func (s *Set) Mend(ctx context.Context, all []Interface) ([]Interface, error) {
	off, err := s.detached(ctx, all)
	if err != nil {
		return nil, err
	}
	var mended []Interface
	var failed []error
	for _, i := range off {
		done := false
		err := s.alone(ctx, i.PortID, func() (err error) {
			done, err = s.mend(ctx, i)
			return err
		})
		if err != nil {
			failed = append(failed, fmt.Errorf("plugging port %s of %s again: %w", i.PortID, i.Pod, err))
		}
		if done {
			mended = append(mended, i)
		}
	}
	return mended, errors.Join(failed...)
}

// detached returns the ports that are missing in the switch. It reads the devices and the rows
// once.
func (s *Set) detached(ctx context.Context, all []Interface) ([]Interface, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	devices := map[string]netlink.Link{}
	for _, l := range links {
		devices[l.Attrs().Name] = l
	}
	var rows map[string]*ovsRow // nil: not read yet
	var off []Interface
	for _, i := range all {
		l := devices[HostDevice(i.PortID)]
		if l == nil {
			continue
		}
		if m, ok := pairMark(l); !ok || !m.is(i) {
			continue
		}
		there := true
		switch i.Type {
		case "ovs":
			if rows == nil {
				if rows, err = s.db.plugged(ctx); err != nil {
					return nil, err
				}
			}
			row := rows[l.Attrs().Name]
			there = row != nil && (&ovs{s}).wrong(row, i) == nil && muted(l.Attrs().Name) == nil
		case "bridge":
			br := devices[(&bridge{s}).name(i)]
			there = br != nil && bridgeWiring{br}.attached(ctx, l) == nil && muted(l.Attrs().Name) == nil
		}
		if !there {
			off = append(off, i)
		}
	}
	return off, nil
}

// mend plugs one port again while no call for it is running, and reports whether it was missing in
// the switch. It also restores the settings that keep the node's own stack off the device, without
// reporting that: the pod had its network.
func (s *Set) mend(ctx context.Context, i Interface) (bool, error) {
	h, err := openNetlink()
	if err != nil {
		return false, err
	}
	defer h.Close()
	p := pair{h, i}
	node, m, err := p.find()
	if err != nil || node == nil || !m.is(i) { // no device, or another sandbox's
		return false, err
	}
	if m.on {
		p.i = s.parked(i) // its row is the parked one's, too, and stays while sandboxes change
	}
	k, err := s.keeper(p.i)
	if err != nil {
		return false, err
	}
	off := k.attached(ctx, node) != nil
	if off {
		if err := k.detach(ctx, p.i, node); err != nil {
			return false, err
		}
	} else if muted(node.Attrs().Name) == nil {
		return false, nil
	}
	if err := s.connect(ctx, p, node, k); err != nil {
		return false, err
	}
	if node, err = h.LinkByIndex(node.Attrs().Index); err != nil {
		return false, fmt.Errorf("looking for %s: %w", HostDevice(i.PortID), err)
	}
	return off, k.attached(ctx, node)
}

// keeper returns the wiring of i, of type ovs or bridge.
func (s *Set) keeper(i Interface) (keeper, error) {
	if i.Type == "ovs" {
		return ovsWiring{&ovs{s}, i, true}, nil
	}
	br, err := (&bridge{s}).ensure(i)
	return bridgeWiring{br}, err
}
