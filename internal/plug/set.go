// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"

	"github.com/kuryr-go/kuryr/internal/keylock"
)

// Config is the common configuration of a node's drivers.
type Config struct {
	// OVSDB is the local database of Open vSwitch, as in unix:/run/openvswitch/db.sock; empty: the
	// node has none.
	OVSDB     string
	Bridge    string // default bridge of ports
	DriverDir string // folder of the binding drivers
	// HostRoot is the root folder that contains DriverDir and that the drivers run in; empty: this
	// process's own.
	HostRoot string
	MTU      int    // limit of every port's MTU, in bytes; 0: none
	Parking  string // mount point of the parked ports' network namespace; empty: no parking
	// Parent is the node's interface below vlan and macvlan ports; empty: that of its default route.
	Parent string
}

// Set is the drivers of a node. It is safe for concurrent use.
type Set struct {
	config Config
	db     *database
	busy   keylock.Locks[string] // by port
	peers  registry

	parking  parking
	nameless map[int]bool  // indexes of unmarked pairs that removeNameless saw last
	wired    sync.Map      // sandbox by port: ports whose Wait has nothing to wait for
	claimed  atomic.Uint64 // ports that sandboxes got from the parking
	made     atomic.Uint64 // pairs made for sandboxes
}

// New returns the drivers. It has no effect: connections are opened on first use, and opened
// again after they break.
func New(c Config) *Set {
	return &Set{config: c, db: newDatabase(c.OVSDB), parking: parking{path: c.Parking}}
}

// Driver returns the driver for ports of that type: ovs, bridge, vlan, macvlan, otherwise the
// executable of that name in the folder of binding drivers. If no such executable exists, the
// error is ErrUnknownType and names the folder.
func (s *Set) Driver(typ string) (Driver, error) {
	d, err := s.driver(typ)
	if err != nil {
		return nil, err
	}
	return serial{s, d}, nil
}

func (s *Set) driver(typ string) (Driver, error) {
	switch typ {
	case "ovs":
		return &ovs{s}, nil
	case "bridge":
		return &bridge{s}, nil
	case "vlan":
		return &nested{s, vlan{}}, nil
	case "macvlan":
		return &nested{s, macvlan{}}, nil
	}
	if !typeRE.MatchString(typ) {
		return nil, fmt.Errorf("%q: %w", typ, ErrUnknownType)
	}
	return findBinding(s, typ)
}

// Ready returns an error if the node has no working data path. A data path is an Open vSwitch with
// the configured bridge that OVN or neutron-openvswitch-agent controls, or a Linux bridge of that name. Without either, binding drivers or
// the configured interface of a virtual machine suffice.
func (s *Set) Ready(ctx context.Context) error {
	if s.config.OVSDB == "" {
		return nil
	}
	if _, err := netlink.LinkByName(s.config.Bridge); err == nil && !s.hasSocket() {
		return nil
	}
	if !s.hasSocket() && (s.hasBindings() || s.hasParent()) {
		return nil
	}
	v, err := s.db.look(ctx, query{bridge: s.config.Bridge})
	if err == nil && !v.ovn && !s.hasBindings() && !s.hasParent() {
		var controllers []bool
		if controllers, err = s.db.controllers(ctx, s.config.Bridge); err == nil && len(controllers) == 0 {
			err = errNobodys
		}
	}
	return err
}

// hasParent reports whether the node is configured as a virtual machine: the parent interface of
// its ports is configured, and up.
func (s *Set) hasParent() bool {
	if s.config.Parent == "" {
		return false
	}
	link, err := netlink.LinkByName(s.config.Parent)
	return err == nil && link.Attrs().Flags&net.FlagUp != 0
}

func (s *Set) hasSocket() bool {
	path, local := strings.CutPrefix(s.config.OVSDB, "unix:")
	if !local {
		return s.config.OVSDB != "" // a configured server address implies a database
	}
	_, err := os.Stat(path)
	return err == nil
}

func (s *Set) hasBindings() bool {
	found, _ := filepath.Glob(filepath.Join(s.config.HostRoot, s.config.DriverDir, "*"))
	return len(found) > 0
}

// Close ends the connections. The Set must not be used afterwards. Parked ports stay.
func (s *Set) Close() {
	s.db.close()
	s.parking.close()
}

// Counts are totals since the Set was made.
type Counts struct {
	Claimed uint64 // ports that a sandbox got from the parking
	Made    uint64 // ports for which a device pair was made
}

// Counts returns how sandboxes got their ports.
func (s *Set) Counts() Counts { return Counts{Claimed: s.claimed.Load(), Made: s.made.Load()} }

// wiring is the part of a driver at the node's end of a pair. All methods may be repeated.
type wiring interface {
	// attach connects the node's end to the data path.
	attach(ctx context.Context, node netlink.Link) error
	// detach disconnects i's device. node is nil if the device no longer exists.
	detach(ctx context.Context, i Interface, node netlink.Link) error
	// attached returns nil if attach has nothing to do, otherwise why it has.
	attached(ctx context.Context, node netlink.Link) error
}

// layout is what the data path requires of the pair.
type layout struct {
	mtu int  // limit; 0: none
	raw bool // the sandbox must compute checksums
}

// plug is common to all drivers. If anything is wrong, it makes the pair again: there are many
// incomplete states, and one complete state.
func (s *Set) plug(ctx context.Context, i Interface, l layout, w wiring) error {
	return between(i, func(ns netns, h *netlink.Handle) error { return s.plugPair(ctx, pair{h, i}, ns, l, w) })
}

func (s *Set) plugPair(ctx context.Context, p pair, ns netns, l layout, w wiring) error {
	i := p.i
	node, m, err := p.find()
	if err != nil {
		return err
	}
	if node != nil && m.is(i) && s.intact(ns, i, l, node, m.on) == nil {
		return s.connect(ctx, p, node, w)
	}
	if err := w.detach(ctx, i, node); err != nil {
		return err
	}
	if node != nil {
		if err := p.remove(node); err != nil {
			return err
		}
	}
	if node, err = s.make(ctx, p, ns, l, w); err != nil {
		return err
	}
	if err := s.connect(ctx, p, node, w); err != nil {
		return err
	}
	if i.ContainerID != parkingName {
		s.made.Add(1)
	}
	return inSandbox(ns, i, l.raw, sandbox.configure)
}

// make makes the pair. If an interface of one of Kuryr's earlier ports blocks it, because a call
// was interrupted, make removes that one first.
func (s *Set) make(ctx context.Context, p pair, ns netns, l layout, w wiring) (netlink.Link, error) {
	node, err := p.create(ns, s.mtu(p.i, l))
	if err == nil {
		return node, nil
	}
	earlier, found := s.inTheWay(p, ns)
	if !found {
		return nil, err
	}
	// This cannot deadlock: a call that plugs the earlier port elsewhere has already removed the
	// interface that blocks this one.
	err = s.alone(ctx, earlier.PortID, func() error { return s.unplug(ctx, earlier, w) })
	if err != nil {
		return nil, fmt.Errorf("taking port %s out of the sandbox: %w", earlier.PortID, err)
	}
	return p.create(ns, s.mtu(p.i, l))
}

// connect brings the node's end up, and keeps the node's own stack off it. It does not undo later
// changes by a binding driver.
func (s *Set) connect(ctx context.Context, p pair, node netlink.Link, w wiring) error {
	if _, ours := w.(keeper); ours || node.Attrs().Flags&net.FlagUp == 0 {
		if err := mute(node.Attrs().Name); err != nil {
			return err
		}
	}
	if err := p.node.LinkSetUp(node); err != nil {
		return fmt.Errorf("bringing %s up: %w", node.Attrs().Name, err)
	}
	return w.attach(ctx, node)
}

// mtu returns the smallest limit, or 0 without any limit: the kernel's choice.
func (s *Set) mtu(i Interface, l layout) int {
	mtu := 0
	for _, bound := range []int{i.MTU, s.config.MTU, l.mtu} {
		if bound > 0 && (mtu == 0 || bound < mtu) {
			mtu = bound
		}
	}
	return min(mtu, maxMTUVeth)
}

func (s *Set) intact(ns netns, i Interface, l layout, node netlink.Link, on bool) error {
	if on && l.raw {
		// The device on top may leave checksums to the far end, which computes them.
		lot, err := s.parking.open()
		if err == nil {
			err = lot.ns.do(func() error { return verifyChecksumInSoftware(node.Attrs().Name) })
		}
		if err != nil && !errors.Is(err, ErrCannotPark) { // parking was switched off since; the pod keeps its device
			return err
		}
	}
	return inSandbox(ns, i, l.raw && !on, func(b sandbox) error { return b.verify(node, on) })
}

// unplug is common to all drivers. It needs no network namespace: the sandbox's end is deleted
// with the node's, and if the sandbox is gone, both ends are. A port from the parking returns
// there, unless that fails.
func (s *Set) unplug(ctx context.Context, i Interface, w wiring) error {
	h, err := openNetlink()
	if err != nil {
		return err
	}
	defer h.Close()
	p := pair{h, i}
	node, m, err := p.find()
	if err != nil && !errors.Is(err, errForeign) {
		return err
	}
	if node != nil && m != (mark{}) && m.sandbox != i.ContainerID {
		return nil // another sandbox has the port by now
	}
	s.wired.Delete(i.PortID)
	if k, ok := w.(keeper); ok && node != nil && m.on {
		err := s.release(ctx, i, p, node, k)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errSharedZone) { // that is so with each port
			logr.FromContextOrDiscard(ctx).Info("removing a device in place of parking it", "port", i.PortID, "reason", err.Error())
		}
	}
	if err := w.detach(ctx, i, node); err != nil {
		return err
	}
	if node == nil {
		return nil
	}
	return p.remove(node)
}

// check is common to all drivers.
func (s *Set) check(ctx context.Context, i Interface, l layout, w wiring) error {
	return between(i, func(ns netns, h *netlink.Handle) error {
		node, m, err := pair{h, i}.find()
		switch {
		case err != nil:
			return err
		case node == nil:
			return fmt.Errorf("there is no device %s", HostDevice(i.PortID))
		case !m.is(i):
			return fmt.Errorf("device %s is another sandbox's: %q", HostDevice(i.PortID), node.Attrs().Alias)
		}
		if err := s.intact(ns, i, l, node, m.on); err != nil {
			return err
		}
		if _, ours := w.(keeper); ours {
			if err := muted(node.Attrs().Name); err != nil {
				return err
			}
		}
		return w.attached(ctx, node)
	})
}

// announce tells i's neighbours where it is, as soon as the device passes packets.
func (s *Set) announce(ctx context.Context, i Interface) error {
	if err := carrier(ctx, HostDevice(i.PortID)); err != nil {
		return err
	}
	ns, err := openNetns(i.Netns)
	if err != nil {
		return err
	}
	defer ns.close()
	return inSandbox(ns, i, false, sandbox.announce)
}
