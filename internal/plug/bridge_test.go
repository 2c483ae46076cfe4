// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/kuryr-go/kuryr/internal/nodetest"
	"github.com/kuryr-go/kuryr/internal/plug"
)

func bridges(t testing.TB) plug.Driver {
	nodetest.Need(t)
	t.Cleanup(func() {
		if l, err := netlink.LinkByName("br-test"); err == nil {
			_ = netlink.LinkDel(l)
		}
	})
	return driver(t, plug.New(plug.Config{Bridge: "br-test"}), "bridge")
}

func TestBridgePassesTraffic(t *testing.T) {
	d := bridges(t)
	a, b := newNamespace(t), newNamespace(t)
	pa, pb := pod(t, "bridge", 1, a), pod(t, "bridge", 2, b)
	for _, p := range []plug.Interface{pa, pb} {
		mustPlug(t, d, p)
		if err := d.Wait(t.Context(), p); err != nil {
			t.Fatalf("Wait = %v", err)
		}
		mustCheck(t, d, p)
	}
	for k := range pa.Addresses {
		ping(t, a, addr(pb, k))
		ping(t, b, addr(pa, k))
		transfer(t, a, b, addr(pb, k))
		transfer(t, b, a, addr(pa, k))
	}
	for _, p := range []plug.Interface{pa, pb} {
		p.Netns = "" // the runtime may not know it any more
		mustUnplug(t, d, p)
		mustUnplug(t, d, p)
		if hasDevice(t, plug.HostDevice(p.PortID)) {
			t.Errorf("%s is left after Unplug", plug.HostDevice(p.PortID))
		}
	}
	if out := a.run(t, "ip", "-o", "link"); strings.Contains(out, "eth0") {
		t.Errorf("in the sandbox after Unplug: %s", out)
	}
}

// This compares the pod's view with the output of the ip command, which is independent of our
// code.
func TestSandboxHoldsExactlyThePort(t *testing.T) {
	d := bridges(t)
	ns := newNamespace(t)
	p := pod(t, "bridge", 3, ns)
	p.Addresses = append(p.Addresses,
		plug.Address{Prefix: netip.MustParsePrefix("192.0.2.7/32"), Gateway: netip.MustParseAddr("192.0.2.1")})
	p.Routes = append(p.Routes,
		plug.Route{Destination: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("192.0.2.1")},
		plug.Route{Destination: netip.MustParsePrefix("203.0.113.0/24")})
	mustPlug(t, d, p)
	have := ns.run(t, "ip", "-4", "route") + ns.run(t, "ip", "-6", "route") + ns.run(t, "ip", "address")
	for _, want := range []string{
		"default via 10.7.0.1 dev eth0",
		"default via fd07::1 dev eth0",
		"10.96.0.0/12 via 10.7.0.9 dev eth0",
		"198.51.100.0/24 via 192.0.2.1 dev eth0 onlink",
		"203.0.113.0/24 dev eth0 scope link",
		"inet 10.7.0.5/16 brd 10.7.255.255",
		"inet 192.0.2.7/32",
		"inet6 fd07::5/64 scope global nodad",
		"link/ether fa:16:3e:00:00:03",
		"mtu 1442",
		"inet 127.0.0.1/8",
	} {
		if !strings.Contains(have, want) {
			t.Errorf("the sandbox lacks %q; it has:\n%s", want, have)
		}
	}
	// The kernel's own link-local address may be tentative for a moment, because a work queue
	// completes it. Without duplicate detection it is not tentative for longer.
	if dad := ns.run(t, "cat", "/proc/sys/net/ipv6/conf/eth0/accept_dad"); strings.TrimSpace(dad) != "0" {
		t.Errorf("addresses wait for duplicate address detection: accept_dad = %s", dad)
	}
	if host := sh(t, "ip", "-d", "link", "show", plug.HostDevice(p.PortID)); !strings.Contains(host, "hairpin on") ||
		!strings.Contains(host, "master br-test") || !strings.Contains(host, "mtu 1442") || !strings.Contains(host, p.ContainerID) {
		t.Errorf("the node's end: %s", host)
	}
}

func TestSecondInterfaceHasNoDefaultRoute(t *testing.T) {
	d := bridges(t)
	ns := newNamespace(t)
	p := pod(t, "bridge", 4, ns)
	q := pod(t, "bridge", 5, ns)
	q.ContainerID, q.Name, q.Default = p.ContainerID, "net1", false
	q.Addresses = []plug.Address{{Prefix: netip.MustParsePrefix("10.8.0.2/16"), Gateway: netip.MustParseAddr("10.8.0.1")}}
	q.Routes = nil
	mustPlug(t, d, p)
	mustPlug(t, d, q)
	if out := ns.run(t, "ip", "route", "show", "default"); strings.Contains(out, "net1") || !strings.Contains(out, "eth0") {
		t.Errorf("default routes: %s", out)
	}
	mustUnplug(t, d, q)
	mustCheck(t, d, p)
}

// A node may have IPv6 switched off for new devices.
func TestIPv6DespiteTheNodesDefault(t *testing.T) {
	d := bridges(t)
	ns := newNamespace(t)
	ns.do(t, func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	})
	p := pod(t, "bridge", 6, ns)
	mustPlug(t, d, p)
	if out := ns.run(t, "ip", "-6", "address", "show", "eth0"); !strings.Contains(out, "fd07::8/64") {
		t.Errorf("IPv6 addresses: %s", out)
	}
}

func TestMTUIsTheSmallestBound(t *testing.T) {
	nodetest.Need(t)
	for _, c := range []struct{ port, node, bridge, want int }{
		{1442, 0, 1500, 1442}, {9000, 1400, 1500, 1400}, {9000, 0, 1450, 1450}, {0, 0, 1500, 1500}, {0, 1390, 1500, 1390},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			sh(t, "ip", "link", "add", "br-mtu", "mtu", fmt.Sprint(c.bridge), "type", "bridge")
			t.Cleanup(func() { sh(t, "ip", "link", "del", "br-mtu") })
			d := driver(t, plug.New(plug.Config{Bridge: "br-mtu", MTU: c.node}), "bridge")
			ns := newNamespace(t)
			p := pod(t, "bridge", 7, ns)
			p.MTU = c.port
			mustPlug(t, d, p)
			defer mustUnplug(t, d, p)
			want := fmt.Sprintf("mtu %d ", c.want)
			if out := ns.run(t, "ip", "link", "show", "eth0"); !strings.Contains(out, want) {
				t.Errorf("want %q: %s", want, out)
			}
		})
	}
}

func TestPlugAgainChangesNothing(t *testing.T) {
	d := bridges(t)
	ns := newNamespace(t)
	p := pod(t, "bridge", 8, ns)
	mustPlug(t, d, p)
	// Without what the kernel adds later, such as link-local addresses.
	state := func() string {
		l, err := netlink.LinkByName(plug.HostDevice(p.PortID))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(l.Attrs().Index, l.Attrs().ParentIndex, "\n") +
			ns.run(t, "ip", "-o", "address", "show", "scope", "global") + ns.run(t, "ip", "route")
	}
	before := state()
	mustPlug(t, d, p)
	after := state()
	if before != after {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// An interrupted call leaves one of these states. Each state is made by removing from a plugged
// port what the later steps add.
func TestPlugAfterACrash(t *testing.T) {
	d := bridges(t)
	for name, spoil := range map[string]func(t *testing.T, ns namespace, p plug.Interface){
		"nothing done": func(t *testing.T, ns namespace, p plug.Interface) {
			mustUnplug(t, d, p)
		},
		"no mark": func(t *testing.T, _ namespace, p plug.Interface) {
			sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "alias", "", "down", "nomaster")
		},
		"not up": func(t *testing.T, _ namespace, p plug.Interface) {
			sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "down", "nomaster")
		},
		"not on the bridge": func(t *testing.T, _ namespace, p plug.Interface) {
			sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "nomaster")
		},
		"sandbox down": func(t *testing.T, ns namespace, _ plug.Interface) {
			ns.run(t, "ip", "link", "set", "eth0", "down")
		},
		"no address": func(t *testing.T, ns namespace, _ plug.Interface) {
			ns.run(t, "ip", "address", "flush", "dev", "eth0")
		},
		"one address": func(t *testing.T, ns namespace, p plug.Interface) {
			ns.run(t, "ip", "address", "del", p.Addresses[1].Prefix.String(), "dev", "eth0")
		},
		"foreign address": func(t *testing.T, ns namespace, _ plug.Interface) {
			ns.run(t, "ip", "address", "add", "172.16.0.1/24", "dev", "eth0")
		},
		"no route": func(t *testing.T, ns namespace, _ plug.Interface) {
			ns.run(t, "ip", "route", "del", "10.96.0.0/12")
		},
		"other MAC": func(t *testing.T, ns namespace, _ plug.Interface) {
			ns.run(t, "ip", "link", "set", "eth0", "address", "fa:16:3e:ff:ff:ff")
		},
		"other sandbox of before": func(t *testing.T, _ namespace, p plug.Interface) {
			mustUnplug(t, d, p)
			p.ContainerID, p.Netns = "before", newNamespace(t).path
			mustPlug(t, d, p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			p := pod(t, "bridge", 9, ns)
			mustPlug(t, d, p)
			spoil(t, ns, p)
			if err := d.Check(t.Context(), p); err == nil {
				t.Error("Check finds nothing wrong")
			}
			mustPlug(t, d, p)
			mustCheck(t, d, p)
			mustUnplug(t, d, p)
		})
	}
}

func TestPortGoesToItsNewSandboxAndStays(t *testing.T) {
	d := bridges(t)
	first, second := newNamespace(t), newNamespace(t)
	p := pod(t, "bridge", 10, first)
	mustPlug(t, d, p)
	q := p
	q.ContainerID, q.Netns = "second", second.path
	mustPlug(t, d, q)
	if out := first.run(t, "ip", "-o", "link"); strings.Contains(out, "eth0") {
		t.Errorf("the first sandbox still has it: %s", out)
	}
	mustUnplug(t, d, p) // late: the runtime repeats DEL of dead sandboxes
	mustCheck(t, d, q)
}

func TestManyAtOnce(t *testing.T) {
	d := bridges(t)
	const pods = 24
	var all sync.WaitGroup
	for n := range pods {
		p := pod(t, "bridge", 100+n, newNamespace(t))
		all.Go(func() {
			for range 3 {
				if err := d.Plug(t.Context(), p); err != nil {
					t.Error(err)
				}
				if err := d.Check(t.Context(), p); err != nil {
					t.Error(err)
				}
				if err := d.Unplug(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left := sh(t, "ip", "-o", "link", "show", "type", "veth"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// Plug and Unplug of one port from different sandboxes may run in parallel. Whichever ends last,
// the port belongs to one sandbox completely, or to none.
func TestOnePortPulledBothWays(t *testing.T) {
	d := bridges(t)
	p, q := pod(t, "bridge", 16, newNamespace(t)), pod(t, "bridge", 16, newNamespace(t))
	q.ContainerID = "other"
	var all sync.WaitGroup
	for range 10 {
		for _, i := range []plug.Interface{p, q} {
			all.Go(func() {
				if err := d.Plug(t.Context(), i); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := d.Unplug(t.Context(), i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	mustPlug(t, d, q)
	mustCheck(t, d, q)
	mustUnplug(t, d, p)
	mustCheck(t, d, q)
	mustUnplug(t, d, q)
}

func BenchmarkBridge(b *testing.B) {
	d := bridges(b)
	p := pod(b, "bridge", 17, newNamespace(b))
	b.Run("Plug+Unplug", func(b *testing.B) {
		for b.Loop() {
			mustPlug(b, d, p)
			mustUnplug(b, d, p)
		}
	})
	b.Run("Plug", func(b *testing.B) {
		for b.Loop() {
			mustPlug(b, d, p)
			b.StopTimer()
			mustUnplug(b, d, p)
			b.StartTimer()
		}
	})
	b.Run("PlugAgain", func(b *testing.B) {
		mustPlug(b, d, p)
		for b.Loop() {
			mustPlug(b, d, p)
		}
		mustUnplug(b, d, p)
	})
}

func TestReadyWithoutOpenVSwitch(t *testing.T) {
	nodetest.Need(t)
	drivers := t.TempDir()
	for name, c := range map[string]struct {
		config plug.Config
		before func()
		want   error
	}{
		"no switch configured": {plug.Config{Bridge: "br-none"}, nil, nil},
		"switch is away":       {plug.Config{OVSDB: "unix:/nowhere/db.sock", Bridge: "br-none", DriverDir: drivers}, nil, plug.ErrDataPath},
		"Linux bridge": {plug.Config{OVSDB: "unix:/nowhere/db.sock", Bridge: "br-ready"}, func() {
			sh(t, "ip", "link", "add", "br-ready", "type", "bridge")
			t.Cleanup(func() { sh(t, "ip", "link", "del", "br-ready") })
		}, nil},
		"virtual machine": {plug.Config{OVSDB: "unix:/nowhere/db.sock", Bridge: "br-none", DriverDir: drivers, Parent: "parent"}, func() {
			sh(t, "ip", "link", "add", "parent", "up", "type", "bridge")
			t.Cleanup(func() { sh(t, "ip", "link", "del", "parent") })
		}, nil},
		"no such virtual machine": {plug.Config{OVSDB: "unix:/nowhere/db.sock", Bridge: "br-none", DriverDir: drivers, Parent: "none"}, nil, plug.ErrDataPath},
		"binding drivers":         {plug.Config{OVSDB: "unix:/nowhere/db.sock", DriverDir: "../../config/drivers"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if c.before != nil {
				c.before()
			}
			s := plug.New(c.config)
			defer s.Close()
			if err := s.Ready(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("Ready = %v, want %v", err, c.want)
			}
		})
	}
}
