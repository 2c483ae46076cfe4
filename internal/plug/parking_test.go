// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/plug"
)

// lot is where a test's node keeps the far ends of parked ports.
type lot struct{ namespace }

func newLot(t testing.TB) lot {
	t.Helper()
	needNode(t)
	path := filepath.Join(t.TempDir(), "netns", "kuryr-parking")
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return lot{namespace{path}}
}

// far is what ip-link(8) says of a parked port's far end. What is counted is left out.
func (l lot) far(t testing.TB, p plug.Interface) string {
	t.Helper()
	return strings.TrimSpace(l.run(t, "ip", "-d", "link", "show", plug.HostDevice(p.PortID)))
}

// parkings are sets of drivers that can park, each with a port that they plug.
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

// park parks a port and waits until the data path has it.
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

// parked wants the port to be parked, and whole, or not to be.
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
			mustPlug(t, d, pa) // finds all there
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

// A pod may do what it likes with its interface (with CAP_NET_ADMIN): the next
// one sees the same as the first, and so does the parking.
func TestNothingOfAPodIsLeft(t *testing.T) {
	spoil := strings.Split(strings.TrimSpace(`
ip address add 10.7.77.77/16 dev eth0
ip route add 10.99.0.0/16 via 10.7.0.77
ip neighbour replace 10.7.0.1 lladdr 02:00:00:00:00:66 dev eth0 nud permanent
ip neighbour add proxy 10.7.0.88 dev eth0
ip link set eth0 alias mine
ip link set eth0 txqueuelen 7
ip link set eth0 promisc on
ip link set eth0 group 7
ip link set eth0 gso_max_size 20000
ip link property add dev eth0 altname former-pod
ip maddress add 33:33:00:00:00:66 dev eth0
ip link add link eth0 name above type macvlan mode bridge
tc qdisc add dev eth0 root handle 1: htb
tc qdisc add dev eth0 clsact
tc filter add dev eth0 ingress protocol ip u32 match u32 0 0 action mirred egress redirect dev lo
sysctl -w net.ipv4.conf.eth0.rp_filter=2
sysctl -w net.ipv4.conf.eth0.proxy_arp=1
sysctl -w net.ipv6.conf.eth0.forwarding=1
sysctl -w net.ipv4.neigh.eth0.retrans_time_ms=7777
ethtool -K eth0 gro off
nft add table netdev former { chain in { type filter hook ingress device eth0 priority 0; policy drop; }; }
ip link set eth0 mtu 1000
ip link set eth0 address 02:00:00:00:00:77
ip link set eth0 arp off
ip link set eth0 down
ip link set eth0 name former0`), "\n")
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		d := driver(t, s, typ)
		first, second := newNamespace(t), newNamespace(t)
		p := pod(t, typ, 1, first)
		park(t, s, l, p)
		before := l.far(t, p)
		mustPlug(t, d, p)
		waited(t, d, p)
		settled(t, first)
		want := seen(t, first)
		for _, command := range spoil {
			first.do(t, func() error {
				if out, err := command1(command); err != nil {
					t.Logf("the pod may or can not: %s: %v: %s", command, err, out)
				}
				return nil
			})
		}
		if seen(t, first) == want {
			t.Fatal("the pod has changed nothing: the test shows nothing")
		}
		mustUnplug(t, d, p)
		if diff := cmp.Diff(before, l.far(t, p)); diff != "" {
			t.Errorf("the parked device (-before +after the pod):\n%s", diff)
		}
		p.ContainerID, p.Netns = "second", second.path
		mustPlug(t, d, p)
		waited(t, d, p)
		counted(t, s, 2, 0)
		settled(t, second)
		if diff := cmp.Diff(want, seen(t, second)); diff != "" {
			t.Errorf("what a pod sees (-first +second):\n%s", diff)
		}
		mustCheck(t, d, p)
	})
}

func command1(line string) (string, error) {
	out, err := commandOutput(strings.Fields(line)...)
	return string(out), err
}

var varies = regexp.MustCompile(`(?m)^[0-9]+: |@if[0-9]+|link-netns(id)? \S+|valid_lft.*$|nodad|last_updated \S+`)

// settled waits until the kernel has made eth0's own address, which it does behind
// everybody's back.
func settled(t testing.TB, ns namespace) {
	t.Helper()
	eventually(t, "eth0's own address", func() bool {
		out := ns.run(t, "ip", "address", "show", "scope", "link")
		return strings.Contains(out, "fe80") && !strings.Contains(out, "tentative")
	})
}

// seen is all that can be seen of eth0 from inside.
func seen(t testing.TB, ns namespace) string {
	t.Helper()
	var all strings.Builder
	for _, command := range []string{
		"ip -d link", "ip address", "ip -4 route show table all", "ip -6 route show table all", "ip rule", "ip -s neighbour show nud permanent",
		"ip neighbour show proxy", "ip maddress show dev eth0", "tc qdisc show dev eth0", "tc filter show dev eth0 ingress", "ethtool -k eth0",
		"nft list ruleset", "sysctl -a -r net.ipv[46].(conf|neigh).eth0",
	} {
		ns.do(t, func() error {
			out, _ := command1(command)
			fmt.Fprintf(&all, "# %s\n%s\n", command, out)
			return nil
		})
	}
	return varies.ReplaceAllString(all.String(), "")
}

// Whatever is not as it has to be, the pod gets its port, and the port is not
// in two places.
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

// What a pod has taken to where it is not found keeps its port from being used
// again, and goes with the pair.
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

// Of a sandbox that is gone it is not known where its device is: the port is
// plugged afresh for the parking.
func TestParkedPortOfADeadSandbox(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		d := driver(t, s, typ)
		path := filepath.Join(t.TempDir(), "dead")
		p := pod(t, typ, 1, namespace{path})
		park(t, s, l, p)
		mountNew(t, path)
		mustPlug(t, d, p)
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
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

// A pod that has its interface take all multicast, as bridges do, may leave the
// far end so. That is noticed.
func TestParkedPortTouched(t *testing.T) {
	for _, commands := range [][]string{
		{"ip link set eth0 allmulticast on"},
		{"ip link add br0 type bridge", "ip link set eth0 master br0", "ip link set eth0 down"},
	} {
		t.Run(commands[0], func(t *testing.T) { parkedPortTouched(t, commands) })
	}
}

func parkedPortTouched(t *testing.T, commands []string) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		d := driver(t, s, typ)
		a := newNamespace(t)
		p := pod(t, typ, 1, a)
		park(t, s, l, p)
		before := l.far(t, p)
		mustPlug(t, d, p)
		for _, command := range commands {
			a.run(t, strings.Fields(command)...)
		}
		mustUnplug(t, d, p)
		park(t, s, l, p)
		if diff := cmp.Diff(varies.ReplaceAllString(before, ""), varies.ReplaceAllString(l.far(t, p), "")); diff != "" {
			t.Errorf("the parked device (-before +after):\n%s", diff)
		}
	})
}

// mountNew mounts a new network namespace at path, which nothing else holds.
func mountNew(t testing.TB, path string) {
	t.Helper()
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
}

// Another daemon finds what an earlier one has parked, and changes nothing.
func TestParkedPortsOutliveTheDaemon(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		p := pod(t, typ, 1, newNamespace(t))
		park(t, s, l, p)
		index, far := deviceIndex(t, p), l.far(t, p)
		s.Close()
		for range 2 {
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
			return
		}
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

// OVN's own: nothing of the port changes while pods come and go, and
// connections are forgotten.
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

// What a pod waits for with OVN, plugged anew and from the parking.
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

// Invariant 3: cut off between any two steps, the port gets to its pod, out of
// it, and back into the parking, and nothing else is left.
func TestParkedPortCutOff(t *testing.T) {
	on := func(p plug.Interface) string {
		return fmt.Sprintf("kuryr port=%s sandbox=%s interface=%s on=kuryr-parking", p.PortID, p.ContainerID, p.Name)
	}
	macvlan := func(t *testing.T, l lot, p plug.Interface) {
		name, index := plug.HostDevice(p.PortID), 0
		l.do(t, func() error {
			link, err := netlink.LinkByName(name)
			if err == nil {
				index = link.Attrs().Index
			}
			return err
		})
		fd, err := unix.Open(p.Netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		l.do(t, func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.ParentIndex, attrs.Namespace = "eth0", index, netlink.NsFd(fd)
			return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PASSTHRU})
		})
	}
	for name, until := range map[string]func(t *testing.T, l lot, p plug.Interface){
		"marked, or taken out and not yet marked": func(t *testing.T, _ lot, p plug.Interface) {
			sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "alias", on(p))
		},
		"put and not configured": func(t *testing.T, l lot, p plug.Interface) {
			sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "alias", on(p))
			macvlan(t, l, p)
		},
		"made and not marked": func(t *testing.T, _ lot, p plug.Interface) {
			sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "alias", "")
		},
		"marked and not connected": func(t *testing.T, l lot, p plug.Interface) {
			l.run(t, "ip", "link", "set", plug.HostDevice(p.PortID), "down")
			if p.Type == "bridge" {
				sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "nomaster")
			}
		},
	} {
		for _, then := range []string{"ADD", "DEL", "park"} {
			t.Run(name+"/"+then, func(t *testing.T) {
				parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
					p := pod(t, typ, 1, newNamespace(t))
					park(t, s, l, p)
					until(t, l, p)
					d := driver(t, s, typ)
					if then == "ADD" {
						mustPlug(t, d, p)
						waited(t, d, p)
						mustCheck(t, d, p)
					}
					if then != "park" {
						mustUnplug(t, d, p)
					}
					park(t, s, l, p)
					mustPlug(t, d, p)
					waited(t, d, p)
					mustCheck(t, d, p)
					mustUnplug(t, d, p)
					if err := s.Unpark(t.Context(), p.PortID); err != nil {
						t.Fatal(err)
					}
					if left := sh(t, "ip", "-o", "link", "show", "type", "veth") + l.run(t, "ip", "-o", "link", "show", "type", "veth"); left != "" {
						t.Errorf("left: %s", left)
					}
				})
			})
		}
	}
}

// A pair that was made and not marked says nothing of its port. Seen twice, it
// goes, and none that is marked.
func TestNamelessPairsGo(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		stays, goes := pod(t, typ, 1, newNamespace(t)), pod(t, typ, 2, newNamespace(t))
		park(t, s, l, stays)
		park(t, s, l, goes)
		sh(t, "ip", "link", "set", plug.HostDevice(goes.PortID), "alias", "")
		parked(t, s, goes, false)
		if !hasDevice(t, plug.HostDevice(goes.PortID)) {
			t.Error("it went at once: it might have been on its way to a name")
		}
		parked(t, s, goes, false)
		if hasDevice(t, plug.HostDevice(goes.PortID)) {
			t.Error("it is still there")
		}
		parked(t, s, stays, true)
	})
}
