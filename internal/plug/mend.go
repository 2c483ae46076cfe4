// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
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

// detached returns the ports that are missing in the switch. It reads the rows once.
func (s *Set) detached(ctx context.Context, all []Interface) ([]Interface, error) {
	h, err := openNetlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var rows map[string]*ovsRow // nil: not read yet
	var off []Interface
	for _, i := range all {
		p := pair{h, i}
		node, m, err := p.find()
		if err != nil || node == nil || !m.is(i) {
			continue
		}
		var there bool
		switch i.Type {
		case "ovs":
			if rows == nil {
				if rows, err = s.db.plugged(ctx); err != nil {
					return nil, err
				}
			}
			row := rows[HostDevice(i.PortID)]
			there = row != nil && (ovs{s}).wrong(row, i) == nil
		case "bridge":
			there = bridge{s}.attached(ctx, p, node) == nil
		default:
			continue
		}
		if !there || muted(HostDevice(i.PortID)) != nil {
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
	d := paired{s, bridge{s}}
	if i.Type == "ovs" {
		d.wiring = ovs{s}
	}
	off := d.attached(ctx, p, node) != nil
	if !off && muted(node.Attrs().Name) == nil {
		return false, nil
	}
	if _, err := d.prepare(ctx, p); err != nil {
		return false, err
	}
	if err := d.connect(ctx, p, node); err != nil {
		return false, err
	}
	if node, err = h.LinkByIndex(node.Attrs().Index); err != nil {
		return false, fmt.Errorf("looking for %s: %w", HostDevice(i.PortID), err)
	}
	return off, d.attached(ctx, p, node)
}
