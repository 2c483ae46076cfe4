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

// ovs plugs ports into a bridge of the local Open vSwitch. ovn-controller or
// neutron-openvswitch-agent finds them there by iface-id.
type ovs struct{ set *Set }

// errNotOVN: the port is bound by OVN, or it is not known by what, and the switch is not OVN's.
var errNotOVN = fmt.Errorf("OVN does not control Open vSwitch on this node (external_ids of its table Open_vSwitch have no ovn-remote), "+
	"and the port is not known to be bound by neutron-openvswitch-agent. Nothing would wire it. "+
	"If the agent runs here, delete the KuryrPort, which an earlier version of Kuryr made: %w", ErrDataPath)

var _ Driver = (*ovs)(nil)

func (o *ovs) Plug(ctx context.Context, i Interface) error {
	if i.Hybrid {
		return fmt.Errorf("port %s: %w", i.PortID, errHybrid)
	}
	if o.set.claim(ctx, i, ovsWiring{o, i, true}) {
		return nil
	}
	v, err := o.look(ctx, i)
	if err != nil {
		return err
	}
	if err := v.refuses(i); err != nil {
		return fmt.Errorf("port %s: %w", i.PortID, err)
	}
	if v.rival != nil {
		return fmt.Errorf("interface %s of Open vSwitch has port %s already: %w", v.rival.name, i.PortID, ErrDataPath)
	}
	if len(i.MAC) == 0 {
		return fmt.Errorf("port %s has no MAC address, and the SDN passes only the traffic of the port's own: %w", i.PortID, ErrInvalid)
	}
	if v.row != nil && !v.row.ours() {
		return fmt.Errorf("Open vSwitch has an interface %s already: %w", v.row.name, errForeign)
	}
	// An earlier row may say that OVN has installed it. So the row stays only if it is this
	// sandbox's own. Then attach replaces it.
	if v.row != nil && (o.wrong(v.row, i) != nil || v.row.astray(i) != nil) {
		if err := o.set.db.remove(ctx, v.port); err != nil {
			return err
		}
		v.row, v.behind = nil, true
	}
	if v.row == nil && v.behind {
		if err := o.set.db.settled(ctx); err != nil {
			return err
		}
	}
	return o.set.plug(ctx, i, layout{raw: v.userspace}, ovsWiring{o, i, true})
}

// Wait returns after ovs-vswitchd has added the port, and ovn-controller reports that its flows
// are in place, or neutron-openvswitch-agent has put the port into its network.
func (o *ovs) Wait(ctx context.Context, i Interface) error {
	if o.set.wired.CompareAndDelete(i.PortID, i.ContainerID) {
		return nil
	}
	bell, stop := o.set.db.listen(HostDevice(i.PortID))
	defer stop()
	lost := time.NewTicker(relook)
	defer lost.Stop()
	for {
		v, err := o.look(ctx, i)
		if err != nil {
			return err
		}
		missing, err := o.missing(v, i)
		if err != nil {
			return err
		}
		if missing == "" {
			return o.set.announce(ctx, i)
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
func (o *ovs) missing(v view, i Interface) (string, error) {
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

func (o *ovs) Unplug(ctx context.Context, i Interface) error {
	return o.set.unplug(ctx, i, ovsWiring{o, i, false})
}

func (o *ovs) Check(ctx context.Context, i Interface) error {
	v, err := o.look(ctx, i)
	if err != nil {
		return err
	}
	return o.set.check(ctx, i, layout{raw: v.userspace}, ovsWiring{o, i, false})
}

func (o *ovs) look(ctx context.Context, i Interface) (view, error) {
	return o.set.db.look(ctx, query{bridge: o.bridge(i), device: HostDevice(i.PortID), port: i.PortID})
}

func (o *ovs) bridge(i Interface) string {
	if i.Bridge != "" {
		return i.Bridge
	}
	return o.set.config.Bridge
}

// wrong returns how one of Kuryr's rows differs from i.
func (o *ovs) wrong(r *ovsRow, i Interface) error {
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

func (o *ovs) ids(i Interface) map[string]string {
	return map[string]string{
		keyPort:    i.PortID,
		keyMAC:     i.HardwareAddr().String(),
		keyStatus:  "active",
		keySandbox: i.ContainerID,
		keyBridge:  o.bridge(i),
	}
}

// ovsWiring connects i to its bridge.
type ovsWiring struct {
	ovs      *ovs
	i        Interface
	plugging bool
}

func (w ovsWiring) attach(ctx context.Context, node netlink.Link) error {
	v, err := w.ovs.look(ctx, w.i)
	if err != nil || v.row != nil {
		return err
	}
	if err := v.refuses(w.i); err != nil {
		return fmt.Errorf("port %s: %w", w.i.PortID, err)
	}
	ids := w.ovs.ids(w.i)
	ids[keyIndex] = strconv.Itoa(node.Attrs().Index)
	return w.ovs.set.db.add(ctx, w.ovs.bridge(w.i), node.Attrs().Name, ids, w.i.Agent)
}

// detach removes i's row if it belongs to this sandbox or to the parking.
func (w ovsWiring) detach(ctx context.Context, i Interface, _ netlink.Link) error {
	v, err := w.ovs.set.db.look(ctx, query{device: HostDevice(i.PortID)})
	if err != nil {
		return err
	}
	if v.row == nil || v.port == "" || !v.row.sandboxes(i.ContainerID) {
		return nil
	}
	err = w.ovs.set.db.remove(ctx, v.port)
	if err == nil && w.plugging { // the next device has the same name
		err = w.ovs.set.db.settled(ctx)
	}
	return err
}

func (w ovsWiring) attached(ctx context.Context, _ netlink.Link) error {
	v, err := w.ovs.look(ctx, w.i)
	if err != nil {
		return err
	}
	if v.row == nil {
		return fmt.Errorf("Open vSwitch has no interface %s", HostDevice(w.i.PortID))
	}
	if err := v.row.astray(w.i); err != nil {
		return err
	}
	return w.ovs.wrong(v.row, w.i)
}

// kept reads only the copy of the database. The copy may be a moment old, but cannot show another
// device. A transaction would cost as much as everything else.
func (w ovsWiring) kept(ctx context.Context, node netlink.Link) (bool, error) {
	row, ovn, err := w.ovs.set.db.copied(ctx, node.Attrs().Name)
	if err != nil {
		return false, err
	}
	if !ovn && !w.i.Agent {
		return false, errNotOVN
	}
	if !row.of(node) || row.ids[keySandbox] != parkingName {
		return false, fmt.Errorf("interface %s of Open vSwitch is not the parked device's", row.name)
	}
	if err := errors.Join(w.ovs.wrong(row, w.i), row.astray(w.i)); err != nil {
		return false, err
	}
	if w.i.Agent {
		return row.ofport >= 1 && row.untagged() == "", nil
	}
	return row.ofport >= 1 && row.ids[keyInstalled] == "true", nil
}

// forget empties the port's zone of connection tracking. The agent has one zone for all ports of a
// network.
func (w ovsWiring) forget(ctx context.Context, i Interface, _ netlink.Link) error {
	if w.i.Agent {
		return errSharedZone
	}
	zone, err := w.ovs.set.db.zone(ctx, w.ovs.bridge(i), i.PortID)
	if err != nil {
		return err
	}
	return w.ovs.set.flushZone(ctx, zone)
}
