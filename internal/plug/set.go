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
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
)

// Config is what the drivers of a node have in common.
type Config struct {
	OVSDB     string // local database of Open vSwitch, as in unix:/run/openvswitch/db.sock; empty: there is none
	Bridge    string // bridge of ports that name none
	DriverDir string // folder of the binding drivers
	HostRoot  string // root folder that the drivers run in, and DriverDir is in; empty: this process's own
	MTU       int    // bound of every port's, in bytes; 0: none
	Parking   string // where the network namespace of parked ports is mounted; empty: none are
	Parent    string // interface of the node that vlan and macvlan ports go on top of; empty: that of its default route
}

// Set is the drivers of a node. It is safe for concurrent use.
type Set struct {
	config Config
	db     *database
	busy   keyed
	peers  registry

	parking  parking
	nameless map[int]bool  // pairs without a mark that removeNameless saw last; by index
	wired    claims        // whose Wait has nothing to wait for
	claimed  atomic.Uint64 // ports given to sandboxes from the parking
	made     atomic.Uint64 // pairs made for sandboxes
}

// New returns the drivers. It has no effect: connections are made when they
// are needed, and made anew when they break.
func New(c Config) *Set {
	return &Set{config: c, db: newDatabase(c.OVSDB), parking: parking{path: c.Parking}}
}

// Driver returns the driver for ports of that type: ovs, bridge, vlan, macvlan, or else the
// executable of that name in the folder of binding drivers. Without one the
// error is ErrUnknownType and says where it was looked for.
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

// Ready reports whether the node has a working data path: OVN's Open vSwitch with
// the configured bridge, a Linux bridge of that name, or, where there is
// neither, binding drivers or the named interface of a virtual machine.
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
		err = errNotOVN
	}
	return err
}

// hasParent reports whether the node is said to be a virtual machine: the
// interface that its ports go on top of is named, and up.
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
		return s.config.OVSDB != "" // who names a server by its address has one
	}
	_, err := os.Stat(path)
	return err == nil
}

func (s *Set) hasBindings() bool {
	found, _ := filepath.Glob(filepath.Join(s.config.HostRoot, s.config.DriverDir, "*"))
	return len(found) > 0
}

// Close ends the connections. The Set must not be used any more. What is parked
// stays.
func (s *Set) Close() {
	s.db.close()
	s.parking.close()
}

// Counts are of the life of a Set.
type Counts struct {
	Claimed uint64 // ports that a sandbox got from the parking
	Made    uint64 // ports that a device pair was made for
}

// Counts tells how sandboxes got their ports.
func (s *Set) Counts() Counts { return Counts{Claimed: s.claimed.Load(), Made: s.made.Load()} }

// wiring is what drivers do differently at the node's end of a pair. All may
// be called repeatedly.
type wiring interface {
	// attach connects the node's end to the data path.
	attach(ctx context.Context, node netlink.Link) error
	// detach disconnects i's. The device may be gone already: node is nil then.
	detach(ctx context.Context, i Interface, node netlink.Link) error
	// attached says whether, and if not why, attach has nothing to do.
	attached(ctx context.Context, node netlink.Link) error
}

// layout is what the data path wants of the pair.
type layout struct {
	mtu int  // bound, 0: none
	raw bool // checksums are to be made in the sandbox
}

// plug is the way of all drivers. Either everything is found as it has to be, or the
// pair is made anew: there are many ways to be half-done, and one to be done.
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

// make makes the pair. An interface that is in its way is removed if it is an
// earlier port's of ours, whose plugging or unplugging was cut off.
func (s *Set) make(ctx context.Context, p pair, ns netns, l layout, w wiring) (netlink.Link, error) {
	node, err := p.create(ns, s.mtu(p.i, l))
	if err == nil {
		return node, nil
	}
	earlier, found := s.inTheWay(p, ns)
	if !found {
		return nil, err
	}
	// Nobody waits here for one who waits for him: who plugs the earlier port
	// elsewhere has first removed what is in the way here.
	err = s.alone(ctx, earlier.PortID, func() error { return s.unplug(ctx, earlier, w) })
	if err != nil {
		return nil, fmt.Errorf("taking port %s out of the sandbox: %w", earlier.PortID, err)
	}
	return p.create(ns, s.mtu(p.i, l))
}

// connect brings the node's end up, which the node's own stack is kept off. What a
// binding driver has changed of that since stays as it is.
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

// mtu returns the smallest of the bounds, or 0, the kernel's choice, without any.
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
	if !on || !l.raw {
		return inSandbox(ns, i, l.raw, func(b sandbox) error { return b.verify(node, on) })
	}
	lot, err := s.parking.open()
	if errors.Is(err, ErrCannotPark) { // no more: what a pod has of it stays
		return inSandbox(ns, i, false, func(b sandbox) error { return b.verify(node, on) })
	}
	if err != nil {
		return err
	}
	// What is on top may leave checksums to the far end, which makes them.
	if err := lot.ns.do(func() error { return verifyChecksumInSoftware(node.Attrs().Name) }); err != nil {
		return err
	}
	return inSandbox(ns, i, false, func(b sandbox) error { return b.verify(node, on) })
}

// unplug is the way of all drivers. It needs no network namespace: the
// sandbox's end goes with the node's, and if the sandbox is gone, both are. What
// came from the parking goes back there, unless that fails.
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
		return nil // another sandbox's meanwhile
	}
	s.wired.drop(i.PortID)
	if k, ok := w.(keeper); ok && node != nil && m.on {
		err := s.release(ctx, i, p, node, k)
		if err == nil {
			return nil
		}
		logr.FromContextOrDiscard(ctx).Info("removing a device in place of parking it", "port", i.PortID, "reason", err.Error())
	}
	if err := w.detach(ctx, i, node); err != nil {
		return err
	}
	if node == nil {
		return nil
	}
	return p.remove(node)
}

// check is the way of all drivers.
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

// announce tells i's neighbours where it is, as soon as it can be heard.
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
