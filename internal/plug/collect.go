// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Collect takes off Open vSwitch the ports that carry Kuryr's mark, are of a
// sandbox that is not known, and have no device any more: that goes with the
// sandbox, and the switch's row does not. Without a known sandbox no Unplug will
// come for it. Where there is no Open vSwitch there is nothing to do.
func (s *Set) Collect(ctx context.Context, known func(containerID string) bool) error {
	if s.config.OVSDB == "" || !s.hasSocket() {
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
			failed = append(failed, s.collect(ctx, i, known))
		}
	}
	return errors.Join(failed...)
}

// collect removes i's row if that has to be, now that no call for i is at work.
func (s *Set) collect(ctx context.Context, i Interface, known func(containerID string) bool) error {
	done, err := s.busy.take(ctx, i.PortID)
	if err != nil {
		return err
	}
	defer done()
	h, err := openNetlink()
	if err != nil {
		return err
	}
	defer h.Close()
	if l, err := device(h, HostDevice(i.PortID)); err != nil || l != nil || known(i.ContainerID) {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("removing a port of no sandbox from Open vSwitch", "port", i.PortID, "container", i.ContainerID)
	return ovsWiring{&ovs{s}, i, false}.detach(ctx, i, nil)
}

// plugged returns the interfaces that carry Kuryr's mark.
func (d *database) plugged(ctx context.Context) ([]*ovsRow, error) {
	active := ovsdb.OvsMap{GoMap: map[any]any{keyStatus: "active"}}
	op := selectOp("Interface", []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, active)}, "name", "external_ids")
	res, err := d.transact(ctx, op)
	if err != nil {
		return nil, err
	}
	var rows []*ovsRow
	for _, r := range res[0].Rows {
		if row := readRow(r); row.ours() {
			rows = append(rows, row)
		}
	}
	return rows, nil
}
