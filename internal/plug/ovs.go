// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
)

// relook is the interval at which a waiting call reads the database without a signal. While the
// database is unreachable, it signals no changes.
const relook = 2 * time.Second

// ovs is the wiring by a bridge of the local Open vSwitch. ovn-controller or
// neutron-openvswitch-agent finds ports there by iface-id.
type ovs struct{ set *Set }

// errNotOVN: the port is bound by OVN, or it is not known by what, and the switch is not OVN's.
var errNotOVN = fmt.Errorf("OVN does not control Open vSwitch on this node (external_ids of its table Open_vSwitch have no ovn-remote), "+
	"and the port is not known to be bound by neutron-openvswitch-agent. Nothing would wire it. "+
	"If the agent runs here, delete the KuryrPort, which an earlier version of Kuryr made: %w", ErrDataPath)

// prepare removes a row of the switch that is not of this sandbox.
func (o ovs) prepare(ctx context.Context, p pair) (layout, error) {
	i := p.i
	v, err := o.look(ctx, i)
	if err != nil {
		return layout{}, err
	}
	if err := v.refuses(i); err != nil {
		return layout{}, fmt.Errorf("port %s: %w", i.PortID, err)
	}
	if v.rival != nil {
		return layout{}, fmt.Errorf("interface %s of Open vSwitch has port %s already: %w", v.rival.name, i.PortID, ErrDataPath)
	}
	if v.row != nil && !v.row.ours() {
		return layout{}, fmt.Errorf("Open vSwitch has an interface %s already: %w", v.row.name, errForeign)
	}
	// An earlier row may say that OVN has installed it. So the row stays only if it is this
	// sandbox's own. Then attach replaces it.
	if v.row != nil && (o.wrong(v.row, i) != nil || v.row.astray(i) != nil) {
		if err := o.set.db.remove(ctx, v.port); err != nil {
			return layout{}, err
		}
		v.row, v.behind = nil, true
	}
	if v.row == nil && v.behind {
		if err := o.set.db.settled(ctx); err != nil {
			return layout{}, err
		}
	}
	return layout{raw: v.userspace}, nil
}

func (o ovs) layout(ctx context.Context, i Interface) (layout, error) {
	v, err := o.look(ctx, i)
	return layout{raw: v.userspace}, err
}

// wait returns after ovs-vswitchd has added the port, and ovn-controller reports that its flows
// are in place, or neutron-openvswitch-agent has put the port into its network.
func (o ovs) wait(ctx context.Context, i Interface) error {
	bell, stop := o.set.db.listen(HostDevice(i.PortID))
	defer stop()
	lost := time.NewTicker(relook)
	defer lost.Stop()
	for {
		v, err := o.look(ctx, i)
		if err != nil {
			return err
		}
		missing, err := v.missing(i)
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-bell:
		case <-lost.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %s: %w", HostDevice(i.PortID), o.explain(ctx, i, missing), ErrNotWired)
		}
	}
}

// missing returns what is not done yet, or an error if it will never be done.
func (v view) missing(i Interface) (string, error) {
	if err := v.refuses(i); err != nil {
		return "", err
	}
	switch {
	case v.row == nil || !v.row.sandboxes(i.ContainerID):
		return "", fmt.Errorf("interface %s was taken off Open vSwitch meanwhile: %w", HostDevice(i.PortID), ErrDataPath)
	case v.row.fault != "":
		return "", fmt.Errorf("Open vSwitch refuses interface %s: %s: %w", v.row.name, v.row.fault, ErrDataPath)
	case v.row.ofport < 1:
		return "ovs-vswitchd has not taken it", nil
	case i.Agent:
		return v.row.untagged(), nil
	case v.row.ids[keyInstalled] != "true":
		return "ovn-controller has not installed its flows (is the port bound to this node?)", nil
	}
	return "", nil
}

func (o ovs) look(ctx context.Context, i Interface) (view, error) {
	return o.set.db.look(ctx, query{bridge: o.set.bridge(i), device: HostDevice(i.PortID), port: i.PortID})
}

// wrong returns how one of Kuryr's rows differs from i.
func (o ovs) wrong(r *ovsRow, i Interface) error {
	for k, v := range o.ids(i) {
		if r.ids[k] != v && (k != keySandbox || !r.sandboxes(v)) {
			return fmt.Errorf("interface %s of Open vSwitch has %s=%q instead of %q", r.name, k, r.ids[k], v)
		}
	}
	if r.fault != "" {
		return fmt.Errorf("interface %s of Open vSwitch: %s", r.name, r.fault)
	}
	return nil
}

func (o ovs) ids(i Interface) map[string]string {
	return map[string]string{
		keyPort:    i.PortID,
		keyMAC:     i.HardwareAddr().String(),
		keyStatus:  "active",
		keySandbox: i.ContainerID,
		keyBridge:  o.set.bridge(i),
	}
}

func (o ovs) attach(ctx context.Context, p pair, node netlink.Link) error {
	v, err := o.look(ctx, p.i)
	if err != nil || v.row != nil {
		return err
	}
	if err := v.refuses(p.i); err != nil {
		return fmt.Errorf("port %s: %w", p.i.PortID, err)
	}
	ids := o.ids(p.i)
	ids[keyIndex] = strconv.Itoa(node.Attrs().Index)
	return o.set.db.add(ctx, o.set.bridge(p.i), node.Attrs().Name, ids, p.i.Agent)
}

// detach removes the port's row if it belongs to this sandbox or to the parking.
func (o ovs) detach(ctx context.Context, p pair, _ netlink.Link, plugging bool) error {
	v, err := o.set.db.look(ctx, query{device: HostDevice(p.i.PortID)})
	if err != nil {
		return err
	}
	if v.row == nil || v.port == "" || !v.row.sandboxes(p.i.ContainerID) {
		return nil
	}
	err = o.set.db.remove(ctx, v.port)
	if err == nil && plugging { // the next device has the same name
		err = o.set.db.settled(ctx)
	}
	return err
}

func (o ovs) attached(ctx context.Context, p pair, _ netlink.Link) error {
	v, err := o.look(ctx, p.i)
	if err != nil {
		return err
	}
	if v.row == nil {
		return fmt.Errorf("Open vSwitch has no interface %s", HostDevice(p.i.PortID))
	}
	if err := v.row.astray(p.i); err != nil {
		return err
	}
	return o.wrong(v.row, p.i)
}

// kept reads only the copy of the database. The copy may be a moment old, but cannot show another
// device. A transaction would cost as much as everything else.
func (o ovs) kept(ctx context.Context, p pair, node netlink.Link) (bool, error) {
	v, err := o.set.db.copied(ctx, node.Attrs().Name)
	if err != nil {
		return false, err
	}
	if !v.row.of(node) || v.row.ids[keySandbox] != parkingName {
		return false, fmt.Errorf("interface %s of Open vSwitch is not the parked device's", v.row.name)
	}
	if err := errors.Join(o.wrong(v.row, p.i), v.row.astray(p.i)); err != nil {
		return false, err
	}
	missing, err := v.missing(p.i)
	return missing == "", err
}

// forget empties the port's zone of connection tracking. The agent has one zone for all ports of a
// network.
func (o ovs) forget(ctx context.Context, p pair, _ netlink.Link) error {
	if p.i.Agent {
		return errSharedZone
	}
	zone, err := o.set.db.zone(ctx, o.set.bridge(p.i), p.i.PortID)
	if err != nil {
		return err
	}
	return o.set.flushZone(ctx, zone)
}
