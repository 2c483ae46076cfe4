// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

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

	parking parking
	wired   sync.Map      // sandbox by port: ports whose Wait has nothing to wait for
	claimed atomic.Uint64 // ports that sandboxes got from the parking
	made    atomic.Uint64 // pairs made for sandboxes
}

// New returns the drivers. It has no effect: connections are opened on first use, and opened
// again after they break.
func New(c Config) *Set {
	db := &database{endpoint: c.OVSDB, connecting: make(chan struct{}, 1), bells: map[string]map[chan struct{}]bool{}}
	return &Set{config: c, db: db, parking: parking{path: c.Parking}}
}

// Driver returns the driver for ports of that type: ovs, bridge, vlan, macvlan, otherwise the
// executable of that name in the folder of binding drivers. If no such executable exists, the
// error is ErrUnknownType and names the folder.
func (s *Set) Driver(typ string) (Driver, error) {
	d, err := s.driver(typ)
	if err != nil {
		return nil, err
	}
	return serial{d, s}, nil
}

func (s *Set) driver(typ string) (Driver, error) {
	switch typ {
	case "ovs":
		return paired{s, ovs{s}}, nil
	case "bridge":
		return paired{s, bridge{s}}, nil
	case "vlan":
		return &nested{s, vlan}, nil
	case "macvlan":
		return &nested{s, macvlan}, nil
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
	if _, err := netlink.LinkByName(s.config.Bridge); !s.hasSocket() && (err == nil || s.hasBindings() || s.hasParent()) {
		return nil
	}
	v, err := s.db.look(ctx, query{bridge: s.config.Bridge})
	if err == nil && !v.ovn && !s.hasBindings() && !s.hasParent() {
		var controllers []bool
		if controllers, err = s.db.controllers(ctx); err == nil && len(controllers) == 0 {
			err = errNobodys
		}
	}
	return err
}

// bridge returns the name of the bridge that i is plugged into.
func (s *Set) bridge(i Interface) string { return cmp.Or(i.Bridge, s.config.Bridge) }

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
