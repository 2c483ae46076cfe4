// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// Mend puts the node's ends of ports that sandboxes have back to where Plug has put
// them, and returns those that were off it: a bridge that was deleted and made anew,
// or a database of Open vSwitch that was lost, has no ports. What is in the sandbox is the pod's own
// business, and a pair that is gone has taken the pod's interface with it. Ports that
// binding drivers plug, and those without a node's end, are left alone.
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
			failed = append(failed, fmt.Errorf("putting port %s of %s back: %w", i.PortID, i.Pod, err))
		}
		if done {
			mended = append(mended, i)
		}
	}
	return mended, errors.Join(failed...)
}

// detached returns those that are not where they have to be, as one look at all says.
func (s *Set) detached(ctx context.Context, all []Interface) ([]Interface, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	devices := map[string]netlink.Link{}
	for _, l := range links {
		devices[l.Attrs().Name] = l
	}
	var rows map[string]*ovsRow // nil: not asked for yet
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
				if rows, err = s.db.rows(ctx); err != nil {
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

// mend puts one back, now that no call for the port is at work, and reports whether it was
// off the switch. That the node's own stack was not kept off the device is put right as
// well, and not told: the pod had its network.
func (s *Set) mend(ctx context.Context, i Interface) (bool, error) {
	h, err := openNetlink()
	if err != nil {
		return false, err
	}
	defer h.Close()
	p := pair{h, i}
	node, m, err := p.find()
	if err != nil || node == nil || !m.is(i) { // another sandbox's meanwhile, or gone
		return false, err
	}
	if m.on {
		p.i = s.parked(i) // so is its row, while sandboxes come and go
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

// rows are the interfaces of the switch that carry Kuryr's mark, by name.
func (d *database) rows(ctx context.Context) (map[string]*ovsRow, error) {
	all, err := d.plugged(ctx)
	rows := make(map[string]*ovsRow, len(all))
	for _, row := range all {
		rows[row.name] = row
	}
	return rows, err
}
