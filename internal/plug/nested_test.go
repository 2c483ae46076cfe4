// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/kuryr-go/kuryr/internal/nodetest"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// virtualMachine is a node that is a virtual machine. Its interface leads to an outside that
// stands for the SDN and has the pods' gateway.
type virtualMachine struct {
	typ     string // of ports
	parent  string
	outside namespace
	set     *plug.Set
	driver  plug.Driver
}

// onVirtualMachine runs a test for each type of nested ports, and with each name of the node's
// interface. One name equals that of the pods' interfaces.
func onVirtualMachine(t *testing.T, test func(t *testing.T, vm virtualMachine)) {
	for _, typ := range []string{"macvlan", "vlan"} {
		for _, parent := range []string{"nic0", "eth0"} {
			t.Run(typ+" on "+parent, func(t *testing.T) { test(t, newVirtualMachine(t, typ, parent)) })
		}
	}
}

func newVirtualMachine(t testing.TB, typ, parent string) virtualMachine {
	t.Helper()
	nodetest.Need(t)
	vm := virtualMachine{typ: typ, parent: parent, outside: newNamespace(t)}
	sh(t, "ip", "link", "add", parent, "type", "veth", "peer", "name", "nic0-far")
	t.Cleanup(func() { remove(parent) })
	sh(t, "ip", "link", "set", "nic0-far", "netns", vm.outside.path)
	sh(t, "ip", "link", "set", parent, "up")
	if typ == "vlan" {
		needVLAN(t)
	}
	far := "nic0-far"
	if typ == "vlan" { // each pod's frames come with a VLAN ID of their own
		far = "sdn"
		vm.outside.run(t, "ip", "link", "add", far, "type", "bridge")
	}
	vm.outside.run(t, "sh", "-ec", "echo 0 >/proc/sys/net/ipv6/conf/"+far+"/accept_dad; ip link set lo up; ip link set nic0-far up; ip link set "+far+" up")
	for _, a := range []string{"10.7.0.1/16", "fd07::1/64"} {
		vm.outside.run(t, "ip", "address", "add", a, "dev", far)
	}
	vm.set = plug.New(plug.Config{Parent: parent})
	vm.driver = driver(t, vm.set, typ)
	return vm
}

func remove(name string) {
	if l, err := netlink.LinkByName(name); err == nil {
		_ = netlink.LinkDel(l)
	}
}

// needVLAN skips the test if the kernel cannot make VLAN devices. It fails if the test's kernel
// was chosen because it can.
func needVLAN(t testing.TB) {
	t.Helper()
	switch has := hasVLAN(t); {
	case !has && os.Getenv("KURYR_NEED_VLAN") != "":
		t.Fatal("the kernel makes no VLAN devices")
	case !has:
		t.Skip("SKIPPED: the kernel has no 8021q module; make e2e-nested runs this in a virtual machine that has one")
	}
}

func hasVLAN(t testing.TB) bool {
	t.Helper()
	sh(t, "ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1")
	defer remove("probe0")
	out, err := exec.Command("ip", "link", "add", "link", "probe0", "name", "probe2", "type", "vlan", "id", "1").CombinedOutput()
	if err != nil {
		t.Logf("making a VLAN device: %v: %s", err, out)
	}
	return err == nil
}

// pod returns the n-th port, which the SDN's side knows.
func (vm virtualMachine) pod(t testing.TB, n int, ns namespace) plug.Interface {
	t.Helper()
	p := pod(t, vm.typ, n, ns)
	p.VLANID = 100 + n
	if vm.typ == "vlan" {
		out := vm.outside.run(t, "ip", "-o", "link")
		if name := fmt.Sprintf("sub%d", p.VLANID); !strings.Contains(out, name+"@") {
			vm.outside.run(t, "ip", "link", "add", "link", "nic0-far", "name", name, "type", "vlan", "id", fmt.Sprint(p.VLANID))
			vm.outside.run(t, "ip", "link", "set", name, "up", "master", "sdn")
		}
	}
	return p
}

func links(t testing.TB, ns namespace) string { return ns.run(t, "ip", "-o", "-d", "link") }

func TestNestedPassesTraffic(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		a, b := newNamespace(t), newNamespace(t)
		pa, pb := vm.pod(t, 1, a), vm.pod(t, 2, b)
		for _, p := range []plug.Interface{pa, pb} {
			mustPlug(t, vm.driver, p)
			if err := vm.driver.Wait(t.Context(), p); err != nil {
				t.Fatalf("Wait = %v", err)
			}
			mustCheck(t, vm.driver, p)
		}
		for k := range pa.Addresses {
			ping(t, a, addr(pb, k))
			transfer(t, b, a, addr(pa, k))
			ping(t, a, pa.Addresses[k].Gateway.String())
			ping(t, vm.outside, addr(pb, k))
			transfer(t, vm.outside, a, addr(pa, k))
		}
		if neighbours := vm.outside.run(t, "ip", "neigh"); !strings.Contains(neighbours, pa.MAC.String()) {
			t.Errorf("outside, %s is not known:\n%s", pa.MAC, neighbours)
		}
		if vm.parent != "eth0" && hasDevice(t, "eth0") {
			t.Error("the node has an eth0")
		}
		for _, p := range []plug.Interface{pa, pb} {
			p.Netns = "" // the runtime may not know it any more
			mustUnplug(t, vm.driver, p)
			mustUnplug(t, vm.driver, p)
		}
		if out := links(t, a) + links(t, b); strings.Contains(out, "eth0") || strings.Contains(out, vm.typ) {
			t.Errorf("in the sandboxes after Unplug: %s", out)
		}
	})
}

func TestNestedSandboxHoldsExactlyThePort(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		ns := newNamespace(t)
		p := vm.pod(t, 3, ns)
		mustPlug(t, vm.driver, p)
		have := ns.run(t, "ip", "-4", "route") + ns.run(t, "ip", "-6", "route") + ns.run(t, "ip", "-d", "address")
		wants := []string{
			"default via 10.7.0.1 dev eth0", "default via fd07::1 dev eth0", "10.96.0.0/12 via 10.7.0.9 dev eth0",
			"inet 10.7.0.5/16 brd 10.7.255.255", "inet6 fd07::5/64 scope global nodad", "link/ether fa:16:3e:00:00:03",
			"mtu 1442", "inet 127.0.0.1/8", "alias kuryr port=" + p.PortID + " sandbox=" + p.ContainerID,
		}
		if vm.typ == "vlan" {
			wants = append(wants, "vlan protocol 802.1Q id 103", "LOOSE_BINDING")
		} else {
			wants = append(wants, "macvlan mode bridge")
		}
		for _, want := range wants {
			if !strings.Contains(have, want) {
				t.Errorf("the sandbox lacks %q; it has:\n%s", want, have)
			}
		}
		if strings.Contains(have, "tap") {
			t.Errorf("the sandbox has a device under a name for a moment:\n%s", have)
		}
	})
}

func TestNestedMTUIsTheSmallestBound(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		for _, c := range []struct{ port, node, parent, want int }{
			{1442, 0, 1500, 1442}, {9000, 1400, 1500, 1400}, {9000, 0, 1450, 1450}, {0, 0, 1450, 1450}, {0, 1390, 1500, 1390},
		} {
			sh(t, "ip", "link", "set", vm.parent, "mtu", fmt.Sprint(c.parent))
			d := driver(t, plug.New(plug.Config{Parent: vm.parent, MTU: c.node}), vm.typ)
			ns := newNamespace(t)
			p := vm.pod(t, 4, ns)
			p.MTU = c.port
			mustPlug(t, d, p)
			mustCheck(t, d, p)
			if out, want := ns.run(t, "ip", "link", "show", "eth0"), fmt.Sprintf("mtu %d ", c.want); !strings.Contains(out, want) {
				t.Errorf("%+v: want %q: %s", c, want, out)
			}
			mustUnplug(t, d, p)
		}
	})
}

func TestNestedPlugAgainChangesNothing(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		ns := newNamespace(t)
		p := vm.pod(t, 5, ns)
		mustPlug(t, vm.driver, p)
		state := func() string { // without what the kernel adds later
			index, _, _ := strings.Cut(ns.run(t, "ip", "-o", "link", "show", "eth0"), ":")
			return index + ns.run(t, "ip", "-o", "address", "show", "scope", "global") + ns.run(t, "ip", "route")
		}
		before := state()
		mustPlug(t, vm.driver, p)
		if after := state(); before != after {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// An interrupted call, or another program, leaves one of these states.
func TestNestedPlugAfterACrash(t *testing.T) {
	set := func(more ...string) func(*testing.T, virtualMachine, namespace, plug.Interface) {
		return func(t *testing.T, _ virtualMachine, ns namespace, _ plug.Interface) {
			ns.run(t, append([]string{"ip", "link", "set", "eth0"}, more...)...)
		}
	}
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		for name, spoil := range map[string]func(*testing.T, virtualMachine, namespace, plug.Interface){
			"nothing done": func(t *testing.T, vm virtualMachine, _ namespace, p plug.Interface) { mustUnplug(t, vm.driver, p) },
			"no mark":      set("alias", ""),
			"no name yet": func(t *testing.T, _ virtualMachine, ns namespace, p plug.Interface) {
				ns.run(t, "ip", "link", "set", "eth0", "down")
				ns.run(t, "ip", "link", "set", "eth0", "name", plug.HostDevice(p.PortID))
			},
			"no name and no mark yet": func(t *testing.T, _ virtualMachine, ns namespace, p plug.Interface) {
				ns.run(t, "ip", "link", "set", "eth0", "down", "alias", "")
				ns.run(t, "ip", "link", "set", "eth0", "name", plug.HostDevice(p.PortID))
			},
			"down":      set("down"),
			"other MAC": set("address", "fa:16:3e:ff:ff:ff"),
			"no address": func(t *testing.T, _ virtualMachine, ns namespace, _ plug.Interface) {
				ns.run(t, "ip", "address", "flush", "dev", "eth0")
			},
			"foreign address": func(t *testing.T, _ virtualMachine, ns namespace, _ plug.Interface) {
				ns.run(t, "ip", "address", "add", "172.16.0.1/24", "dev", "eth0")
			},
			"no route": func(t *testing.T, _ virtualMachine, ns namespace, _ plug.Interface) {
				ns.run(t, "ip", "route", "del", "10.96.0.0/12")
			},
			"other sandbox of before": func(t *testing.T, vm virtualMachine, _ namespace, p plug.Interface) {
				mustUnplug(t, vm.driver, p)
				p.ContainerID, p.Netns = "before", newNamespace(t).path
				mustPlug(t, vm.driver, p)
			},
			"other parent": func(t *testing.T, vm virtualMachine, _ namespace, p plug.Interface) {
				mustUnplug(t, vm.driver, p)
				sh(t, "ip", "link", "add", "other0", "type", "veth", "peer", "name", "other1")
				t.Cleanup(func() { remove("other0") })
				sh(t, "ip", "link", "set", "other0", "up")
				mustPlug(t, driver(t, plug.New(plug.Config{Parent: "other0"}), vm.typ), p)
			},
		} {
			t.Run(name, func(t *testing.T) {
				ns := newNamespace(t)
				p := vm.pod(t, 6, ns)
				mustPlug(t, vm.driver, p)
				spoil(t, vm, ns, p)
				if err := vm.driver.Check(t.Context(), p); err == nil {
					t.Error("Check finds nothing wrong")
				}
				mustPlug(t, vm.driver, p)
				mustCheck(t, vm.driver, p)
				if out := links(t, ns); strings.Contains(out, "tap") {
					t.Errorf("left: %s", out)
				}
				ping(t, vm.outside, addr(p, 0))
				mustUnplug(t, vm.driver, p)
			})
		}
	})
}

// The DEL of a call that was interrupted removes the device, marked or not.
func TestNestedUnplugAfterACrash(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		for _, known := range []bool{true, false} {
			ns := newNamespace(t)
			p := vm.pod(t, 7, ns)
			mustPlug(t, vm.driver, p)
			ns.run(t, "ip", "link", "set", "eth0", "alias", "")
			if !known {
				p.Netns = ""
			}
			mustUnplug(t, vm.driver, p)
			if out := links(t, ns); strings.Contains(out, "eth0") {
				t.Errorf("left, path known %v: %s", known, out)
			}
		}
	})
}

func TestNestedPortGoesToItsNewSandboxAndStays(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		first, second := newNamespace(t), newNamespace(t)
		p := vm.pod(t, 8, first)
		mustPlug(t, vm.driver, p)
		q := p
		q.ContainerID, q.Netns = "second", second.path
		mustPlug(t, vm.driver, q)
		if out := links(t, first); strings.Contains(out, "eth0") {
			t.Errorf("the first sandbox still has it: %s", out)
		}
		mustUnplug(t, vm.driver, p) // late: the runtime repeats DEL of dead sandboxes
		mustCheck(t, vm.driver, q)
		ping(t, vm.outside, addr(q, 0))
	})
}

func TestNestedEarlierPortOfTheSandboxMakesWay(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		ns := newNamespace(t)
		p, q := vm.pod(t, 9, ns), vm.pod(t, 10, ns)
		q.ContainerID = p.ContainerID
		mustPlug(t, vm.driver, p)
		mustPlug(t, vm.driver, q)
		mustCheck(t, vm.driver, q)
		mustUnplug(t, vm.driver, p)
		mustCheck(t, vm.driver, q)
	})
}

func TestNestedForeignDeviceInTheSandboxIsLeftAlone(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		ns := newNamespace(t)
		p := vm.pod(t, 11, ns)
		ns.run(t, "ip", "link", "add", "eth0", "type", "bridge")
		if err := vm.driver.Plug(t.Context(), p); !errors.Is(err, plug.ErrDataPath) {
			t.Errorf("Plug over a foreign eth0 = %v", err)
		}
		mustUnplug(t, vm.driver, p)
		if out := links(t, ns); !strings.Contains(out, "eth0") {
			t.Errorf("eth0 is gone: %s", out)
		}
	})
}

// The parent may be down for a moment, for example while the node's network is being configured.
// Devices on top of it keep their routes and work again at once.
func TestNestedOutlivesItsParentsDownTime(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		ns := newNamespace(t)
		p := vm.pod(t, 12, ns)
		mustPlug(t, vm.driver, p)
		before := ns.run(t, "ip", "route")
		sh(t, "ip", "link", "set", vm.parent, "down")
		if err := vm.driver.Check(t.Context(), p); !errors.Is(err, plug.ErrDataPath) {
			t.Errorf("Check while %s is down = %v, want ErrDataPath", vm.parent, err)
		}
		sh(t, "ip", "link", "set", vm.parent, "up")
		if after := ns.run(t, "ip", "route"); !strings.Contains(after, "default via") {
			t.Errorf("routes before:\n%s\nafter:\n%s", before, after)
		}
		mustCheck(t, vm.driver, p)
		ping(t, ns, p.Addresses[0].Gateway.String())
	})
}

func TestNestedAnnouncesTheAddresses(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		peer, ns := newNamespace(t), newNamespace(t)
		mustPlug(t, vm.driver, vm.pod(t, 13, peer))
		p := vm.pod(t, 14, ns)
		announces(t, peer, p, func() { mustPlug(t, vm.driver, p) })
	})
}

func TestNestedParent(t *testing.T) {
	for _, typ := range []string{"macvlan", "vlan"} {
		t.Run(typ, func(t *testing.T) {
			vm := newVirtualMachine(t, typ, "nic0")
			p := vm.pod(t, 15, newNamespace(t))
			fails := func(parent, says string) {
				t.Helper()
				err := driver(t, plug.New(plug.Config{Parent: parent}), typ).Plug(t.Context(), p)
				if !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), says) {
					t.Errorf("Plug with parent %q = %v, want ErrDataPath that says %q", parent, err, says)
				}
			}
			fails("", "no default route")
			fails("nowhere0", "no interface nowhere0")
			sh(t, "ip", "link", "set", "nic0", "down")
			fails("nic0", "nic0 is down")
			sh(t, "ip", "link", "set", "nic0", "up")

			sh(t, "ip", "link", "add", "other0", "type", "veth", "peer", "name", "other1")
			t.Cleanup(func() { remove("other0") })
			sh(t, "ip", "link", "set", "other0", "up")
			sh(t, "ip", "route", "add", "default", "dev", "other0", "metric", "200")
			sh(t, "ip", "route", "add", "default", "dev", "nic0", "metric", "100")
			d := driver(t, plug.New(plug.Config{}), typ)
			mustPlug(t, d, p)
			mustCheck(t, vm.driver, p) // it is on nic0
			mustUnplug(t, d, p)
		})
	}
}

// A default route may have several next hops. Those on one interface leave no choice. Of several
// interfaces a person has to name the one of the machine's port.
func TestNestedParentOfDefaultRouteWithNextHops(t *testing.T) {
	hops := func(hops ...string) (route []string) {
		for _, hop := range hops {
			route = append(route, "nexthop")
			route = append(route, strings.Fields(hop)...)
		}
		return route
	}
	for _, test := range []struct {
		name  string
		route []string // after "ip"
		says  string   // of the error; empty: it is plugged
	}{
		{"two interfaces", append([]string{"route", "add", "default"}, hops("dev nic0", "dev other0")...), "several interfaces"},
		{"two routers on one interface", append([]string{"-6", "route", "add", "default"}, hops("via fe80::1 dev nic0", "via fe80::2 dev nic0")...), ""},
		{"IPv6, two interfaces", append([]string{"-6", "route", "add", "default"}, hops("via fe80::1 dev nic0", "via fe80::1 dev other0")...), "several interfaces"},
		{"unreachable", []string{"route", "add", "unreachable", "default"}, "no default route"},
		{"IPv6, unreachable", []string{"-6", "route", "add", "unreachable", "default"}, "no default route"},
	} {
		t.Run(test.name, func(t *testing.T) {
			vm := newVirtualMachine(t, "macvlan", "nic0")
			p := vm.pod(t, 15, newNamespace(t))
			sh(t, "ip", "link", "add", "other0", "type", "veth", "peer", "name", "other1")
			t.Cleanup(func() { remove("other0") })
			sh(t, "ip", "link", "set", "other0", "up")
			sh(t, append([]string{"ip"}, test.route...)...)
			t.Cleanup(func() {
				for _, family := range []string{"-4", "-6"} {
					_, _ = commandOutput("ip", family, "route", "flush", "default")
				}
			})
			d := driver(t, plug.New(plug.Config{}), "macvlan")
			err := d.Plug(t.Context(), p)
			if test.says == "" {
				if err != nil {
					t.Fatalf("Plug with default route %v = %v", test.route, err)
				}
				mustCheck(t, vm.driver, p) // it is on nic0
				mustUnplug(t, d, p)
				return
			}
			if !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "node.parentInterface") {
				t.Errorf("Plug with default route %v = %v, want ErrDataPath that says %q and node.parentInterface", test.route, err, test.says)
			}
		})
	}
}

func TestNestedManyAtOnce(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		const pods = 16
		var all sync.WaitGroup
		var spaces []namespace
		for n := range pods {
			ns := newNamespace(t)
			spaces = append(spaces, ns)
			p := vm.pod(t, 100+n, ns)
			all.Go(func() {
				for range 3 {
					for name, call := range map[string]func() error{
						"Plug":  func() error { return vm.driver.Plug(t.Context(), p) },
						"Check": func() error { return vm.driver.Check(t.Context(), p) },
					} {
						if err := call(); name == "Plug" && err != nil {
							t.Error(err)
						}
					}
					if err := vm.driver.Check(t.Context(), p); err != nil {
						t.Error(err)
					}
					if err := vm.driver.Unplug(t.Context(), p); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for _, ns := range spaces {
			if out := links(t, ns); strings.Contains(out, vm.typ) {
				t.Errorf("left: %s", out)
			}
		}
	})
}

func TestNestedPortPulledBothWays(t *testing.T) {
	onVirtualMachine(t, func(t *testing.T, vm virtualMachine) {
		p, q := vm.pod(t, 16, newNamespace(t)), vm.pod(t, 16, newNamespace(t))
		q.ContainerID = "other"
		var all sync.WaitGroup
		for range 10 {
			for _, i := range []plug.Interface{p, q} {
				all.Go(func() {
					if err := vm.driver.Plug(t.Context(), i); err != nil {
						t.Error(err)
					}
				})
				all.Go(func() {
					if err := vm.driver.Unplug(t.Context(), i); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		mustPlug(t, vm.driver, q)
		mustUnplug(t, vm.driver, p)
		mustCheck(t, vm.driver, q)
	})
}

func BenchmarkNested(b *testing.B) {
	for _, typ := range []string{"macvlan", "vlan"} {
		for _, parent := range []string{"nic0", "eth0"} {
			for _, others := range []int{0, 100} {
				b.Run(fmt.Sprintf("%s/on=%s/others=%d", typ, parent, others), func(b *testing.B) {
					vm := newVirtualMachine(b, typ, parent)
					for n := range others {
						mustPlug(b, vm.driver, vm.pod(b, 200+n, newNamespace(b)))
					}
					p := vm.pod(b, 17, newNamespace(b))
					for b.Loop() {
						mustPlug(b, vm.driver, p)
						b.StopTimer()
						mustUnplug(b, vm.driver, p)
						b.StartTimer()
					}
				})
			}
		}
	}
}

// If the kernel lacks the module, the error names it as the reason why pods cannot start.
func TestVLANWithoutTheKernelsModule(t *testing.T) {
	nodetest.Need(t)
	if hasVLAN(t) {
		t.Skip("SKIPPED: the kernel makes VLAN devices")
	}
	sh(t, "ip", "link", "add", "nic0", "type", "veth", "peer", "name", "nic1")
	t.Cleanup(func() { remove("nic0") })
	sh(t, "ip", "link", "set", "nic0", "up")
	d := driver(t, plug.New(plug.Config{Parent: "nic0"}), "vlan")
	ns := newNamespace(t)
	p := pod(t, "vlan", 18, ns)
	p.VLANID = 118
	err := d.Plug(t.Context(), p)
	if !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), "no module 8021q") || !strings.Contains(err.Error(), "modprobe 8021q") {
		t.Errorf("Plug = %v, want ErrDataPath that says what to do", err)
	}
	if err := d.Check(t.Context(), p); err == nil {
		t.Error("Check finds nothing wrong")
	}
	mustUnplug(t, d, p)
	if out := links(t, ns); strings.Contains(out, "eth0") {
		t.Errorf("left: %s", out)
	}
	if _, err := os.Stat("/sys/module/8021q"); err == nil {
		t.Error("the module is there after all")
	}
}
