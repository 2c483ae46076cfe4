// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/nodetest"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// lot is where a test's node keeps the far ends of parked ports.
type lot struct{ namespace }

func newLot(t testing.TB) lot {
	t.Helper()
	nodetest.Need(t)
	path := filepath.Join(t.TempDir(), "netns", "kuryr-parking")
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return lot{namespace{path}}
}

// far returns ip-link(8)'s description of a parked port's far end, without counters.
func (l lot) far(t testing.TB, p plug.Interface) string {
	t.Helper()
	return strings.TrimSpace(l.run(t, "ip", "-d", "link", "show", plug.HostDevice(p.PortID)))
}

// parkings runs a test for each set of drivers that can park, with a port that they plug.
func parkings(t *testing.T, f func(t *testing.T, s *plug.Set, l lot, typ string)) {
	t.Run("bridge", func(t *testing.T) {
		l := newLot(t)
		t.Cleanup(func() { removeDevice("br-park") })
		f(t, plug.New(plug.Config{Bridge: "br-park", Parking: l.path}), l, "bridge")
	})
	t.Run("ovs", func(t *testing.T) {
		v := newVswitch(t)
		v.startOVN(t)
		v.nbctl(t, "ls-add", "net")
		for n := range 3 {
			p := pod(t, "ovs", n, namespace{})
			v.nbctl(t, "lsp-add", "net", p.PortID, "--", "lsp-set-addresses", p.PortID, p.MAC.String()+" "+addr(p, 0)+" "+addr(p, 1))
		}
		l := newLot(t)
		f(t, plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int", Parking: l.path}), l, "ovs")
	})
}

func removeDevice(name string) {
	if l, err := netlink.LinkByName(name); err == nil {
		_ = netlink.LinkDel(l)
	}
}

// park parks a port and waits until it is on the data path.
func park(t testing.TB, s *plug.Set, l lot, p plug.Interface) {
	t.Helper()
	if err := s.Park(t.Context(), p); err != nil {
		t.Fatalf("Park(%s) = %v", p.PortID, err)
	}
	d, err := s.Driver(p.Type)
	if err != nil {
		t.Fatal(err)
	}
	p.ContainerID, p.Netns, p.Name, p.Addresses = "kuryr-parking", l.path, plug.HostDevice(p.PortID), nil
	waited(t, d, p)
	parked(t, s, p, true)
}

// parked requires that the port is parked and complete, or that it is not.
func parked(t testing.TB, s *plug.Set, p plug.Interface, want bool) {
	t.Helper()
	got, err := s.Parked(t.Context())
	if err != nil || got[p.PortID] != want {
		t.Fatalf("Parked() = %v, %v; want %v for port %s", got, err, want, p.PortID)
	}
}

func counted(t testing.TB, s *plug.Set, claimed, made uint64) {
	t.Helper()
	if got, want := s.Counts(), (plug.Counts{Claimed: claimed, Made: made}); got != want {
		t.Errorf("Counts() = %+v, want %+v", got, want)
	}
}

func TestPodsGetParkedPorts(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		d := driver(t, s, typ)
		a, b := newNamespace(t), newNamespace(t)
		pa, pb := pod(t, typ, 1, a), pod(t, typ, 2, b)
		mustPlug(t, d, pb)
		waited(t, d, pb)
		park(t, s, l, pa)
		index := deviceIndex(t, pa)
		for n := range 3 {
			mustPlug(t, d, pa)
			waited(t, d, pa)
			mustCheck(t, d, pa)
			mustPlug(t, d, pa) // finds everything in place
			waited(t, d, pa)
			for k := range pa.Addresses {
				ping(t, a, addr(pb, k))
				transfer(t, a, b, addr(pb, k))
				transfer(t, b, a, addr(pa, k))
			}
			parked(t, s, pa, false)
			mustUnplug(t, d, pa)
			mustUnplug(t, d, pa)
			parked(t, s, pa, true)
			if got := a.run(t, "ip", "-o", "link"); strings.Contains(got, "eth0") {
				t.Fatalf("left in the sandbox: %s", got)
			}
			counted(t, s, uint64(n+1), 1)
			a = newNamespace(t)
			pa.ContainerID, pa.Netns = fmt.Sprint("next", n), a.path
		}
		if got := deviceIndex(t, pa); got != index {
			t.Errorf("the pair was made anew: index %d, was %d", got, index)
		}
		if err := s.Unpark(t.Context(), pa.PortID); err != nil {
			t.Fatalf("Unpark = %v", err)
		}
		if hasDevice(t, plug.HostDevice(pa.PortID)) {
			t.Error("Unpark has left the device")
		}
	})
}

func deviceIndex(t testing.TB, p plug.Interface) int {
	t.Helper()
	link, err := netlink.LinkByName(plug.HostDevice(p.PortID))
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}

// Whatever is wrong with a parked port, the pod gets its port, and the port is never in two
// places.
func TestParkedPortSpoilt(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, l lot, p plug.Interface){
		"pair gone": func(t *testing.T, _ lot, p plug.Interface) { sh(t, "ip", "link", "del", plug.HostDevice(p.PortID)) },
		"far end down": func(t *testing.T, l lot, p plug.Interface) {
			l.run(t, "ip", "link", "set", plug.HostDevice(p.PortID), "down")
		},
		"another MAC": func(t *testing.T, l lot, p plug.Interface) {
			l.run(t, "ip", "link", "set", plug.HostDevice(p.PortID), "address", "02:00:00:00:00:01")
		},
		"taken": func(t *testing.T, l lot, p plug.Interface) {
			l.run(t, "ip", "link", "add", "link", plug.HostDevice(p.PortID), "name", "thief", "type", "macvlan", "mode", "passthru")
		},
		"namespace unmounted": func(t *testing.T, l lot, _ plug.Interface) {
			if err := unix.Unmount(l.path, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		},
		"name taken": func(t *testing.T, _ lot, p plug.Interface) {
			namespace{p.Netns}.run(t, "ip", "link", "add", "eth0", "type", "ifb")
			namespace{p.Netns}.run(t, "ip", "link", "del", "eth0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
				d := driver(t, s, typ)
				a, b := newNamespace(t), newNamespace(t)
				pa, pb := pod(t, typ, 1, a), pod(t, typ, 2, b)
				mustPlug(t, d, pb)
				waited(t, d, pb)
				park(t, s, l, pa)
				spoil(t, l, pa)
				mustPlug(t, d, pa)
				waited(t, d, pa)
				mustCheck(t, d, pa)
				ping(t, b, addr(pa, 0))
				transfer(t, b, a, addr(pa, 0))
				mustUnplug(t, d, pa)
				park(t, s, l, pa)
			})
		})
	}
}

// A pod may move its device to where it is not found. Its port is then not reused, and the device
// is deleted with the pair.
func TestParkedPortStolen(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		d := driver(t, s, typ)
		a, hidden := newNamespace(t), newNamespace(t)
		p := pod(t, typ, 1, a)
		park(t, s, l, p)
		mustPlug(t, d, p)
		fd, err := unix.Open(hidden.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		a.do(t, func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.LinkSetNsFd(link, fd)
		})
		mustUnplug(t, d, p)
		parked(t, s, p, false)
		if got := hidden.run(t, "ip", "-o", "link"); strings.Contains(got, "eth0") {
			t.Errorf("the thief still has %s", got)
		}
		park(t, s, l, p)
		mustPlug(t, d, p)
	})
}

// After a sandbox was deleted, its device cannot be found. So the port is plugged again for the
// parking.
func TestParkedPortOfADeadSandbox(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		d := driver(t, s, typ)
		p := pod(t, typ, 1, newMounted(t))
		park(t, s, l, p)
		mustPlug(t, d, p)
		if err := unix.Unmount(p.Netns, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		p.Netns = ""
		mustUnplug(t, d, p)
		parked(t, s, p, false)
		if hasDevice(t, plug.HostDevice(p.PortID)) {
			t.Error("the pair is still there")
		}
		park(t, s, l, p)
		p.ContainerID, p.Netns = "next", newNamespace(t).path
		mustPlug(t, d, p)
		counted(t, s, 2, 0)
	})
}

// newMounted makes a namespace that only its mount keeps alive.
func newMounted(t testing.TB) namespace {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, "")
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return namespace{path}
}

// Another daemon finds the ports that an earlier one has parked, and changes nothing.
func TestParkedPortsOutliveTheDaemon(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		p := pod(t, typ, 1, newNamespace(t))
		park(t, s, l, p)
		index, far := deviceIndex(t, p), l.far(t, p)
		s.Close()
		d := driver(t, s, typ)
		parked(t, s, p, true)
		park(t, s, l, p)
		if err := s.Collect(t.Context(), func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		parked(t, s, p, true)
		if deviceIndex(t, p) != index || l.far(t, p) != far {
			t.Error("the parked device was touched")
		}
		mustPlug(t, d, p)
		counted(t, s, 1, 0)
		mustUnplug(t, d, p)
	})
}

// A port that is marked as parked, but is not in the parking, is repaired.
func TestParkedElsewhere(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		p, other := pod(t, typ, 1, newNamespace(t)), newNamespace(t)
		park(t, s, l, p)
		name := plug.HostDevice(p.PortID)
		fd, err := unix.Open(other.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		l.do(t, func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.LinkSetNsFd(link, fd)
		})
		other.run(t, "ip", "link", "set", name, "up")
		eventually(t, "the pair to be up again", func() bool {
			link, err := netlink.LinkByName(name)
			return err == nil && link.Attrs().OperState == netlink.OperUp
		})
		parked(t, s, p, false)
		if got, _ := s.Parked(t.Context()); len(got) != 1 {
			t.Errorf("Parked() = %v, want it to be there, not whole", got)
		}
		park(t, s, l, p)
		mustPlug(t, driver(t, s, typ), p)
		counted(t, s, 1, 0)
	})
}

// A daemon of an earlier version did not keep the node's own stack off parked ports. Such ports
// are parked again before a pod gets one.
func TestParkedPortsAreKeptFromTheNode(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		p := pod(t, typ, 1, newNamespace(t))
		park(t, s, l, p)
		neutral := "/proc/sys/net/ipv6/conf/" + plug.HostDevice(p.PortID) + "/disable_ipv6"
		sh(t, "sh", "-c", "echo 0 >"+neutral)
		parked(t, s, p, false)
		park(t, s, l, p)
		d := driver(t, s, typ)
		mustPlug(t, d, p)
		counted(t, s, 1, 0)
		mustCheck(t, d, p)
	})
}

func TestParkSaysWhatCannotBeParked(t *testing.T) {
	l := newLot(t)
	p := pod(t, "bridge", 1, newNamespace(t))
	if err := plug.New(plug.Config{Bridge: "br-park"}).Park(t.Context(), p); !errors.Is(err, plug.ErrCannotPark) {
		t.Errorf("Park without a namespace = %v, want ErrCannotPark", err)
	}
	p.Type = "vlan"
	if err := plug.New(plug.Config{Parking: l.path}).Park(t.Context(), p); !errors.Is(err, plug.ErrCannotPark) {
		t.Errorf("Park of a subport = %v, want ErrCannotPark", err)
	}
	p.Type = "bridge"
	if err := plug.New(plug.Config{Bridge: "br-park", Parking: "/proc/nowhere/kuryr-parking"}).Park(t.Context(), p); !errors.Is(err, plug.ErrCannotPark) {
		t.Errorf("Park where no namespace can be mounted = %v, want ErrCannotPark", err)
	}
}

// With OVN: nothing of the port changes while pods start and end, and connections are forgotten.
func TestOVNKeepsAParkedPort(t *testing.T) {
	v := newVswitch(t)
	v.startOVN(t)
	l := newLot(t)
	s := plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int", Parking: l.path})
	d := driver(t, s, "ovs")
	a, b := newNamespace(t), newNamespace(t)
	pa, pb := pod(t, "ovs", 1, a), pod(t, "ovs", 2, b)
	v.nbctl(t, "ls-add", "net")
	for _, p := range []plug.Interface{pa, pb} {
		v.nbctl(t, "lsp-add", "net", p.PortID, "--", "lsp-set-addresses", p.PortID, p.MAC.String()+" "+addr(p, 0)+" "+addr(p, 1))
		v.nbctl(t, "acl-add", "net", "to-lport", "1000", "outport==\""+p.PortID+"\" && ip", "allow-related")
		park(t, s, l, p)
	}
	up := func() string { return v.nbctlOut(t, "lsp-get-up", pa.PortID) }
	eventually(t, "OVN to have the parked port up", func() bool { return up() == "up" })
	row := func() string {
		return v.ctl(t, "--columns=_uuid,ofport,external_ids", "list", "Interface", plug.HostDevice(pa.PortID))
	}
	before := row()
	mustPlug(t, d, pb)
	for n := range 3 {
		mustPlug(t, d, pa)
		waited(t, d, pa)
		transfer(t, b, a, addr(pa, 0))
		tracked := func() string { return v.app(t, "dpctl/dump-conntrack") }
		if got := tracked(); !strings.Contains(got, addr(pa, 0)) {
			t.Fatalf("the switch tracks no connection of the pod: %q", got)
		}
		zone := strings.Trim(v.ctl(t, "get", "bridge", "br-int", "external_ids:ct-zone-"+pa.PortID), `"`)
		mustUnplug(t, d, pa)
		if got := v.app(t, "dpctl/dump-conntrack", "zone="+zone); got != "" {
			t.Errorf("still tracked in zone %s: %s", zone, got)
		}
		if got := tracked(); n == 0 && got == "" {
			t.Error("the connections of other ports are gone, too")
		}
		if diff := cmp.Diff(before, row()); diff != "" || up() != "up" {
			t.Errorf("OVN has it %s, and the row changed (-before +after):\n%s", up(), diff)
		}
		a = newNamespace(t)
		pa.ContainerID, pa.Netns = fmt.Sprint("next", n), a.path
	}
	counted(t, s, 4, 0)
}

// How long a pod waits with OVN, plugged anew and from the parking.
func BenchmarkOVN(b *testing.B) {
	v := newVswitch(b)
	v.startOVN(b)
	l := newLot(b)
	s := plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int", Parking: l.path})
	d := driver(b, s, "ovs")
	p := pod(b, "ovs", 1, newNamespace(b))
	v.nbctl(b, "ls-add", "net")
	v.nbctl(b, "lsp-add", "net", p.PortID, "--", "lsp-set-addresses", p.PortID, p.MAC.String()+" "+addr(p, 0)+" "+addr(p, 1))
	run := func(b *testing.B) {
		for b.Loop() {
			mustPlug(b, d, p)
			waited(b, d, p)
			b.StopTimer()
			mustUnplug(b, d, p)
			b.StartTimer()
		}
	}
	b.Run("anew", run)
	park(b, s, l, p)
	b.Run("parked", run)
}
