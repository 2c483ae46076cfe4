// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/vishvananda/netlink"
)

// Collect removes devices of unknown sandboxes, for which no Unplug will come. These are pairs of
// the parking without a sandbox's device on top, and ports on Open vSwitch with Kuryr's mark and
// without a device. Other devices end with their sandbox.
func (s *Set) Collect(ctx context.Context, known func(containerID string) bool) error {
	return errors.Join(s.collectPairs(ctx, known), s.collectRows(ctx, known))
}

func (s *Set) collectPairs(ctx context.Context, known func(containerID string) bool) error {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	var failed []error
	for _, l := range links {
		if m, ok := pairMark(l); ok && m.on && !known(m.sandbox) {
			failed = append(failed, s.collectPair(ctx, m.port, known))
		}
	}
	return errors.Join(failed...)
}

// collectPair removes a port's pair if no known sandbox uses it. The next call for the port finds
// no pair, and plugs the port again.
func (s *Set) collectPair(ctx context.Context, portID string, known func(containerID string) bool) error {
	lot, err := s.parking.open()
	if errors.Is(err, ErrCannotPark) {
		return nil // it cannot be known whether a sandbox has the port
	}
	if err != nil {
		return err
	}
	return s.takeOff(ctx, portID, func(node netlink.Link, m mark) (bool, error) {
		if !m.on || known(m.sandbox) {
			return false, nil
		}
		free, err := lot.isFree(node)
		if free {
			logr.FromContextOrDiscard(ctx).Info("removing the device of a port that no sandbox has", "port", portID, "container", m.sandbox)
		}
		return free, err
	})
}

func (s *Set) collectRows(ctx context.Context, known func(containerID string) bool) error {
	if !s.hasSocket() {
		return nil
	}
	rows, err := s.db.plugged(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, row := range rows {
		i := Interface{PortID: row.ids[keyPort], ContainerID: row.ids[keySandbox]}
		if i.checkIdentity() == nil && row.name == HostDevice(i.PortID) && !known(i.ContainerID) {
			failed = append(failed, s.collectRow(ctx, i, known))
		}
	}
	return errors.Join(failed...)
}

// collectRow removes i's row if no known sandbox uses it. It runs while no other call for i runs.
func (s *Set) collectRow(ctx context.Context, i Interface, known func(containerID string) bool) error {
	return s.alone(ctx, i.PortID, func() error {
		h, err := openNetlink()
		if err != nil {
			return err
		}
		defer h.Close()
		if l, err := device(h, HostDevice(i.PortID)); err != nil || l != nil || known(i.ContainerID) {
			return err
		}
		logr.FromContextOrDiscard(ctx).Info("removing a port of no sandbox from Open vSwitch", "port", i.PortID, "container", i.ContainerID)
		return ovs{s}.detach(ctx, pair{h, i}, nil, false)
	})
}

// plugged returns by name the interfaces that carry Kuryr's mark.
func (d *database) plugged(ctx context.Context) (map[string]*ovsRow, error) {
	active := ovsdb.OvsMap{GoMap: map[any]any{keyStatus: "active"}}
	op := selectOp("Interface", []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, active)}, "name", "external_ids")
	res, err := d.transact(ctx, op)
	if err != nil {
		return nil, err
	}
	rows := map[string]*ovsRow{}
	for _, r := range res[0].Rows {
		if row := readRow(r); row.ours() {
			rows[row.name] = row
		}
	}
	return rows, nil
}
