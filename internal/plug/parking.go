// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Set keeps ports plugged that no pod has, so that the SDN's work for them is done before a pod
// needs one. A parked port has its device pair and its place on the data path, as if a pod had
// it. The far end is in Kuryr's own network namespace. It is up, because a bridge or a switch
// needs some time to notice that. It sends nothing by itself: it has no addresses, and IPv6 is
// off.
//
// A pod gets a device on top of the far end: a macvlan of mode passthru, which is made in the
// pod's namespace and ends with the pod. The pair does not change. Moving the far end itself was
// tried. The kernel takes about 15 ms each way (it waits for all RCU callbacks, and holds the
// lock of all network configuration meanwhile), which is several times the whole of plugging. The
// device also keeps what the pod gave it: XDP and tcx programs, names, queue and offload
// settings, counters. A macvlan takes as long to make as a pair, and leaves nothing for the next
// pod.

// ErrCannotPark: ports of this type cannot be parked, or this node can park none.
var ErrCannotPark = errors.New("not kept plugged")

// parkingName is the sandbox of parked ports, in marks and in rows.
const parkingName = "kuryr-parking"

// probeName is the name of a device that is made as a test.
const probeName = "probe"

// parking is the network namespace of the far ends. It is mounted at path, and so outlives the
// daemon.
type parking struct {
	path string // empty: parking is not configured

	mu  sync.Mutex
	now *lot
}

// lot is the open parking namespace.
type lot struct {
	ns netns
	h  *netlink.Handle // in the namespace
}

// open opens the namespace, and makes it if it does not exist. The result is valid until close.
func (p *parking) open() (*lot, error) {
	if p.path == "" {
		return nil, fmt.Errorf("no namespace is configured for it: %w", ErrCannotPark)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil && p.mounted() {
		return p.now, nil
	}
	// If the namespace was unmounted, the end of the daemon would delete the devices.
	if p.now != nil {
		if err := checkNetns(int(p.now.ns), p.path); err != nil {
			return nil, fmt.Errorf("mounting the namespace of parked ports again: %w", err)
		}
		return p.now, mountNetns(fmt.Sprintf("/proc/self/fd/%d", int(p.now.ns)), p.path)
	}
	ns, err := openNetns(p.path)
	if errors.Is(err, ErrNoNetns) {
		if err = makeParking(p.path); err == nil {
			ns, err = openNetns(p.path)
		}
	}
	if err == nil {
		p.now, err = openLot(ns)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the namespace of parked ports: %w: %w", ErrCannotPark, err)
	}
	return p.now, nil
}

func (p *parking) mounted() bool {
	var at, held unix.Stat_t
	return unix.Stat(p.path, &at) == nil && unix.Fstat(int(p.now.ns), &held) == nil && at.Dev == held.Dev && at.Ino == held.Ino
}

func (p *parking) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != nil {
		p.now.h.Close()
		p.now.ns.close()
		p.now = nil
	}
}

// makeParking makes the namespace and mounts it. Its devices have IPv6 off, so that the kernel
// sends nothing for a port by itself.
func makeParking(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := lastingMounts(filepath.Dir(path)); err != nil {
		return err
	}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- err
			return
		}
		for _, of := range []string{"all", "default"} {
			err := sysctl(filepath.Join("/proc/sys/net/ipv6/conf", of, "disable_ipv6"), "1")
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				made <- fmt.Errorf("switching IPv6 off: %w", err)
				return
			}
		}
		made <- mountNetns("/proc/thread-self/ns/net", path)
	}()
	return <-made
}

// mountNetns mounts a namespace at path as ip-netns(8) does. So it stays, and that command shows
// it.
func mountNetns(from, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	_ = f.Close()
	if err := unix.Mount(from, path, "none", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount", Path: path, Err: err}
	}
	return nil
}

// openLot takes ns over, and closes it if it fails.
func openLot(ns netns) (*lot, error) {
	l := &lot{ns: ns}
	err := ns.do(func() (err error) {
		l.h, err = openNetlink()
		return err
	})
	if err == nil {
		if err = errors.Join(probeParking(l.h), l.removeUnmarked()); err != nil {
			l.h.Close()
		}
	}
	if err != nil {
		ns.close()
		return nil, err
	}
	return l, nil
}

// removeUnmarked removes pairs that an interrupted call left before it marked them. No call makes a
// pair before the parking is open.
func (l *lot) removeUnmarked() error {
	ends, err := l.ends()
	if err != nil {
		return err
	}
	for _, far := range ends {
		node, err := netlink.LinkByIndex(far.Attrs().ParentIndex)
		if err != nil || node.Attrs().Alias != "" || node.Attrs().Name != far.Attrs().Name {
			continue
		}
		if err := l.h.LinkDel(far); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("removing the unmarked pair of %s: %w", far.Attrs().Name, err)
		}
	}
	return nil
}

// probeParking returns an error if the kernel cannot park ports. Tests replace it.
var probeParking = probeMacvlan

// probeMacvlan returns an error if the kernel lacks macvlan. It also makes the kernel load its
// modules, so that no pod waits for that. No macvlan can be made on top of lo.
func probeMacvlan(h *netlink.Handle) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("looking for lo: %w", err)
	}
	probe := passthru(probeName, lo.Attrs().Index)
	err = h.LinkAdd(probe)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("the kernel has no macvlan: %w", err)
	}
	if err == nil {
		return h.LinkDel(probe)
	}
	return nil
}

// parked returns i as it is while no pod has it. It has no addresses, because they belong to a
// pod.
func (s *Set) parked(i Interface) Interface {
	return Interface{
		PortID: i.PortID, Type: i.Type, ContainerID: parkingName, Netns: s.parking.path, Name: HostDevice(i.PortID),
		MAC: i.HardwareAddr(), MTU: i.MTU, Bridge: i.Bridge, Agent: i.Agent, Hybrid: i.Hybrid,
	}
}

// Park plugs a port that no pod has, and keeps it plugged. Of i it needs PortID, Type, MAC, MTU,
// Bridge, Agent and Hybrid. It may be repeated, and then repairs the parked port. The caller ensures that the
// port is in no sandbox. Park does not wait for the data path. ErrCannotPark is permanent for
// now.
func (s *Set) Park(ctx context.Context, i Interface) error {
	// A trunk's subports are active without parking; a binding driver decides for its own ports.
	if i.Type != "ovs" && i.Type != "bridge" {
		return fmt.Errorf("port %s of type %s: %w", i.PortID, i.Type, ErrCannotPark)
	}
	if _, err := s.parking.open(); err != nil {
		return err
	}
	d, err := s.Driver(i.Type)
	if err != nil {
		return err
	}
	err = d.Plug(ctx, s.parked(i))
	if errors.Is(err, errNotOVN) || errors.Is(err, errNotAgents) || errors.Is(err, errHybrid) {
		return fmt.Errorf("%w: %w", ErrCannotPark, err)
	}
	return err
}

// Unpark removes a parked port from the node. It succeeds if the port is not parked, and does not
// touch a port in a sandbox.
func (s *Set) Unpark(ctx context.Context, portID string) error {
	return s.takeOff(ctx, portID, func(_ netlink.Link, m mark) (bool, error) { return m.sandbox == parkingName, nil })
}

// takeOff removes a port's pair from the node if may accepts the node's end. No other call for
// the port runs meanwhile.
func (s *Set) takeOff(ctx context.Context, portID string, may func(netlink.Link, mark) (bool, error)) error {
	i := Interface{PortID: portID, ContainerID: parkingName}
	if err := i.checkIdentity(); err != nil {
		return err
	}
	return s.alone(ctx, portID, func() error {
		h, err := openNetlink()
		if err != nil {
			return err
		}
		defer h.Close()
		p := pair{h, i}
		node, m, err := p.find()
		if node == nil || err != nil {
			return err
		}
		if ok, err := may(node, m); !ok || err != nil {
			return err
		}
		if s.hasSocket() {
			if err := (ovs{s}).detach(ctx, p, node, false); err != nil {
				return err
			}
		}
		return p.remove(node)
	})
}

// Parked returns the parked ports, and whether each is complete. Park repairs incomplete ones.
func (s *Set) Parked(ctx context.Context) (map[string]bool, error) {
	lot, err := s.parking.open()
	if err != nil && !errors.Is(err, ErrCannotPark) {
		return nil, err
	}
	ends, err := lot.ends()
	if err != nil {
		return nil, err
	}
	rows := map[string]*ovsRow{}
	if s.hasSocket() {
		if rows, err = s.db.plugged(ctx); err != nil {
			return nil, err
		}
	}
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	found := map[string]bool{}
	for _, l := range links {
		m, ok := pairMark(l)
		if !ok || m.sandbox != parkingName {
			continue
		}
		a, row := l.Attrs(), rows[l.Attrs().Name]
		// A daemon of an earlier version did not mute the device.
		found[m.port] = isOtherEnd(ends[a.ParentIndex], l) && a.OperState == netlink.OperUp &&
			(row.of(l) || row == nil && a.MasterIndex != 0) && muted(a.Name) == nil
	}
	return found, nil
}

// ends returns the far ends by index. A nil lot has none.
func (l *lot) ends() (map[int]netlink.Link, error) {
	if l == nil {
		return nil, nil
	}
	links, err := dump(l.h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing parked devices: %w", err)
	}
	ends := map[int]netlink.Link{}
	for _, far := range links {
		if far.Type() == "veth" {
			ends[far.Attrs().Index] = far
		}
	}
	return ends, nil
}
