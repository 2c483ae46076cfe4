// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/plug"
)

func waited(t testing.TB, d plug.Driver, p plug.Interface) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := d.Wait(ctx, p); err != nil {
		t.Fatalf("Wait(%s) = %v", p.PortID, err)
	}
}

// notWired requires that Wait gives up with an error that contains why.
func notWired(t testing.TB, d plug.Driver, p plug.Interface, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := d.Wait(ctx, p); !errors.Is(err, plug.ErrNotWired) || !strings.Contains(err.Error(), why) {
		t.Fatalf("Wait = %v, want ErrNotWired that says %q", err, why)
	}
}

func TestOVSPassesTraffic(t *testing.T) {
	v := newVswitch(t)
	d := v.driver(t)
	a, b := newNamespace(t), newNamespace(t)
	pa, pb := pod(t, "ovs", 1, a), pod(t, "ovs", 2, b)
	for _, p := range []plug.Interface{pa, pb} {
		mustPlug(t, d, p)
		waited(t, d, p)
		mustCheck(t, d, p)
		mustPlug(t, d, p)
	}
	for key, want := range map[string]string{"iface-id": pa.PortID, "attached-mac": pa.MAC.String(), "iface-status": "active"} {
		if got := v.id(t, pa, key); got != want {
			t.Errorf("external_ids:%s is %q, want %q", key, got, want)
		}
	}
	if br := v.ctl(t, "port-to-br", plug.HostDevice(pa.PortID)); br != "br-int" {
		t.Errorf("the port is on %s", br)
	}
	if out := a.run(t, "ethtool", "-k", "eth0"); !strings.Contains(out, "tx-checksumming: off") {
		t.Errorf("checksum offload in the pod: %s", out)
	}
	for k := range pa.Addresses {
		ping(t, a, addr(pb, k))
		transfer(t, a, b, addr(pb, k))
		transfer(t, b, a, addr(pa, k))
	}
	for _, p := range []plug.Interface{pa, pb} {
		p.Netns = ""
		mustUnplug(t, d, p)
		mustUnplug(t, d, p)
	}
	if left := v.ctl(t, "list-ports", "br-int"); left != "" {
		t.Errorf("left on the bridge: %s", left)
	}
	if left := sh(t, "ip", "-o", "link", "show", "type", "veth"); left != "" {
		t.Errorf("left on the node: %s", left)
	}
}

// Security groups use connection tracking. With it, the userspace switch drops packets whose
// checksum is left to the hardware.
func TestOVSTracksConnections(t *testing.T) {
	v := newVswitch(t)
	d := v.driver(t)
	a, b := newNamespace(t), newNamespace(t)
	pa, pb := pod(t, "ovs", 1, a), pod(t, "ovs", 2, b)
	for _, p := range []plug.Interface{pa, pb} {
		mustPlug(t, d, p)
		waited(t, d, p)
	}
	for _, flow := range []string{
		"table=0,priority=10,tcp actions=ct(table=1)",
		"table=0,priority=0 actions=normal",
		"table=1,priority=10,tcp,ct_state=+trk+inv actions=drop",
		"table=1,priority=5,tcp,ct_state=+trk+new actions=ct(commit),normal",
		"table=1,priority=1 actions=normal",
	} {
		sh(t, "ovs-ofctl", "add-flow", "unix:"+v.dir+"/br-int.mgmt", flow)
	}
	transfer(t, a, b, addr(pb, 0))
}

func TestOVSPlugAfterACrash(t *testing.T) {
	v := newVswitch(t)
	d := v.driver(t)
	other := newNamespace(t)
	for name, spoil := range map[string]func(t *testing.T, ns namespace, p plug.Interface){
		"no row": func(t *testing.T, _ namespace, p plug.Interface) { v.ctl(t, "del-port", plug.HostDevice(p.PortID)) },
		"no pair": func(t *testing.T, _ namespace, p plug.Interface) {
			sh(t, "ip", "link", "del", plug.HostDevice(p.PortID))
		},
		"no mark, no row": func(t *testing.T, _ namespace, p plug.Interface) {
			v.ctl(t, "del-port", plug.HostDevice(p.PortID))
			sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "alias", "", "down")
		},
		"sandbox bare": func(t *testing.T, ns namespace, _ plug.Interface) {
			ns.run(t, "ip", "address", "flush", "dev", "eth0")
		},
		"offload on": func(t *testing.T, ns namespace, _ plug.Interface) {
			ns.run(t, "ethtool", "-K", "eth0", "tx", "on")
		},
		"row with another MAC": func(t *testing.T, _ namespace, p plug.Interface) {
			v.ctl(t, "set", "Interface", plug.HostDevice(p.PortID), `external_ids:attached-mac="fa:16:3e:ff:ff:ff"`)
		},
		"another sandbox": func(t *testing.T, _ namespace, p plug.Interface) {
			p.ContainerID, p.Netns = "before", other.path
			mustPlug(t, d, p)
		},
		"another sandbox, gone": func(t *testing.T, _ namespace, p plug.Interface) {
			p.ContainerID, p.Netns = "before", other.path
			mustPlug(t, d, p)
			sh(t, "ip", "link", "del", plug.HostDevice(p.PortID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newNamespace(t), newNamespace(t)
			p, peer := pod(t, "ovs", 1, a), pod(t, "ovs", 2, b)
			mustPlug(t, d, peer)
			mustPlug(t, d, p)
			waited(t, d, p)
			spoil(t, a, p)
			if err := d.Check(t.Context(), p); err == nil {
				t.Error("Check finds nothing wrong")
			}
			mustPlug(t, d, p)
			waited(t, d, p)
			mustCheck(t, d, p)
			transfer(t, b, a, addr(p, 0))
			mustUnplug(t, d, p)
			mustUnplug(t, d, peer)
		})
	}
}

// A busy ovs-vswitchd sees only the result of several changes. A port that was removed and added
// under the same name must use the new device anyway.
func TestOVSReplugUnseen(t *testing.T) {
	v := newVswitch(t)
	d := v.driver(t)
	a, b := newNamespace(t), newNamespace(t)
	p, peer := pod(t, "ovs", 1, a), pod(t, "ovs", 2, b)
	mustPlug(t, d, peer)
	mustPlug(t, d, p)
	waited(t, d, p)
	if err := v.switchd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	again := newNamespace(t)
	mustUnplug(t, d, p)
	p.ContainerID, p.Netns = "again", again.path
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := d.Plug(short, p); !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), "ovs-vswitchd") {
		t.Errorf("Plug while ovs-vswitchd stands still = %v, want ErrDataPath", err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Plug(t.Context(), p) }()
	if err := v.switchd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatalf("Plug = %v", err)
	}
	waited(t, d, p)
	ping(t, b, addr(p, 0))
	transfer(t, b, again, addr(p, 0))
}

func TestOVSWaitsForOVN(t *testing.T) {
	v := newForeignVswitch(t)
	d := v.driver(t)
	v.ctl(t, "set", "Open_vSwitch", ".", "external_ids:ovn-remote=unix:/nowhere")
	ns := newNamespace(t)
	p := pod(t, "ovs", 1, ns)
	mustPlug(t, d, p)
	notWired(t, d, p, "ovn-controller")

	done := make(chan error, 1)
	go func() { done <- d.Wait(t.Context(), p) }()
	eventually(t, "a port number", func() bool { return v.ctl(t, "get", "Interface", plug.HostDevice(p.PortID), "ofport") != "[]" })
	select {
	case err := <-done:
		t.Fatalf("Wait returned before OVN was done: %v", err)
	default:
	}
	v.ctl(t, "set", "Interface", plug.HostDevice(p.PortID), `external_ids:ovn-installed="true"`)
	if err := <-done; err != nil {
		t.Fatalf("Wait = %v", err)
	}
	mustPlug(t, d, p) // nothing changes, so OVN need not be waited for
	waited(t, d, p)

	q := p // OVN's report about the first sandbox does not count for the second
	q.ContainerID, q.Netns = "second", newNamespace(t).path
	mustPlug(t, d, q)
	notWired(t, d, q, "ovn-controller")
	if err := d.Wait(t.Context(), p); !errors.Is(err, plug.ErrDataPath) {
		t.Errorf("Wait for the first sandbox = %v, want ErrDataPath", err)
	}
	mustUnplug(t, d, p)
	if got := v.id(t, q, "iface-id"); got != q.PortID {
		t.Errorf("a late Unplug of the first sandbox has removed the second's row")
	}
	mustUnplug(t, d, q)
}

func TestOVSSaysWhatIsWrong(t *testing.T) {
	v := newVswitch(t)
	d := v.driver(t)
	ns := newNamespace(t)
	p := pod(t, "ovs", 1, ns)
	t.Run("no bridge", func(t *testing.T) {
		q := p
		q.Bridge = "br-none"
		if err := d.Plug(t.Context(), q); !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), "br-none") {
			t.Errorf("Plug = %v", err)
		}
	})
	t.Run("refused device", func(t *testing.T) {
		_ = v.switchd.Process.Signal(syscall.SIGSTOP)
		mustPlug(t, d, p)
		notWired(t, d, p, "ovs-vswitchd has not taken it")
		sh(t, "ip", "link", "del", plug.HostDevice(p.PortID))
		_ = v.switchd.Process.Signal(syscall.SIGCONT)
		if err := d.Wait(t.Context(), p); !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), "No such device") {
			t.Errorf("Wait = %v", err)
		}
		mustUnplug(t, d, p)
	})
	t.Run("foreign row", func(t *testing.T) {
		v.ctl(t, "add-port", "br-int", plug.HostDevice(p.PortID), "--", "set", "Interface", plug.HostDevice(p.PortID), "type=internal")
		if err := d.Plug(t.Context(), p); !errors.Is(err, plug.ErrDataPath) {
			t.Errorf("Plug = %v", err)
		}
		mustUnplug(t, d, p)
		if got := v.ctl(t, "list-ports", "br-int"); got != plug.HostDevice(p.PortID) {
			t.Errorf("ports of br-int after Unplug: %q", got)
		}
		v.ctl(t, "del-port", plug.HostDevice(p.PortID))
	})
	t.Run("port plugged by somebody else", func(t *testing.T) {
		v.ctl(t, "add-port", "br-int", "vm", "--", "set", "Interface", "vm", "type=internal", "external_ids:iface-id="+p.PortID)
		if err := d.Plug(t.Context(), p); !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), "vm") {
			t.Errorf("Plug = %v", err)
		}
		v.ctl(t, "del-port", "vm")
	})
}

func TestOVSDatabaseComesAndGoes(t *testing.T) {
	v := newVswitch(t)
	s := v.set()
	d := driver(t, s, "ovs")
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("Ready = %v", err)
	}
	p := pod(t, "ovs", 1, newNamespace(t))
	mustPlug(t, d, p)
	stop(v.server)
	if err := d.Check(t.Context(), p); !errors.Is(err, plug.ErrDataPath) {
		t.Errorf("Check without a database = %v, want ErrDataPath", err)
	}
	if err := s.Ready(t.Context()); !errors.Is(err, plug.ErrDataPath) {
		t.Errorf("Ready without a database = %v, want ErrDataPath", err)
	}
	if err := os.Remove(strings.TrimPrefix(v.endpoint, "unix:")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	v.startServer(t)
	waited(t, d, p)
	mustCheck(t, d, p)
	mustUnplug(t, d, p)
	v.ctl(t, "del-br", "br-int")
	if err := s.Ready(t.Context()); !errors.Is(err, plug.ErrDataPath) {
		t.Errorf("Ready without br-int = %v, want ErrDataPath", err)
	}
}

// A cancelled call does not block others, although all share one connection.
func TestOVSCallsEndWithTheirContexts(t *testing.T) {
	v := newVswitch(t)
	d := v.driver(t)
	mustPlug(t, d, pod(t, "ovs", 80, newNamespace(t)))
	waiting, impatient, later := pod(t, "ovs", 81, newNamespace(t)), pod(t, "ovs", 82, newNamespace(t)), pod(t, "ovs", 83, newNamespace(t))
	if err := v.server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() {
		if err := d.Plug(t.Context(), waiting); err != nil {
			t.Errorf("Plug that waits = %v", err)
		}
	})
	all.Go(func() { _ = d.Plug(ctx, impatient) })
	time.Sleep(300 * time.Millisecond)
	cancel()
	time.Sleep(100 * time.Millisecond)
	short, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	began := time.Now()
	if err := d.Plug(short, later); !errors.Is(err, plug.ErrDataPath) {
		t.Errorf("Plug while the database stands still = %v, want ErrDataPath", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a call with one second to go took %s", took)
	}
	if err := v.server.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	mustPlug(t, d, later)
}

func TestOVSManyAtOnce(t *testing.T) {
	v := newVswitch(t)
	d := v.driver(t)
	var all sync.WaitGroup
	for n := range 16 {
		p := pod(t, "ovs", 100+n, newNamespace(t))
		all.Go(func() {
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				for _, call := range []func(context.Context, plug.Interface) error{d.Plug, d.Wait, d.Check, d.Unplug} {
					if err := call(ctx, p); err != nil {
						t.Error(err)
					}
				}
				cancel()
			}
		})
	}
	all.Wait()
	if left := v.ctl(t, "list-ports", "br-int") + sh(t, "ip", "-o", "link", "show", "type", "veth"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// On a switch of neutron-openvswitch-agent, a port without a tag is in all networks.
func TestSwitchThatIsNotOVNs(t *testing.T) {
	v, l := newForeignVswitch(t), newLot(t)
	s := plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int", Parking: l.path, DriverDir: t.TempDir()})
	d := driver(t, s, "ovs")
	p := pod(t, "ovs", 1, newNamespace(t))
	refused := func(what string, err error, kind error) {
		t.Helper()
		if !errors.Is(err, kind) || !strings.Contains(err.Error(), "ovn-remote") {
			t.Errorf("%s = %v, want %v that names ovn-remote", what, err, kind)
		}
	}
	refused("Ready", s.Ready(t.Context()), plug.ErrDataPath)
	refused("Plug", d.Plug(t.Context(), p), plug.ErrDataPath)
	refused("Park", s.Park(t.Context(), p), plug.ErrCannotPark)
	if left := v.ctl(t, "list-ports", "br-int"); left != "" || hasDevice(t, plug.HostDevice(p.PortID)) {
		t.Errorf("it was plugged: %q", left)
	}
	v.ctl(t, "set", "Open_vSwitch", ".", "external_ids:system-id=one", "external_ids:ovn-remote-one=unix:/nowhere")
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("Ready on one of several chassis of a switch = %v", err)
	}
	mustPlug(t, d, p)
	v.ctl(t, "remove", "Open_vSwitch", ".", "external_ids", "ovn-remote-one")
	refused("Plug again", d.Plug(t.Context(), p), plug.ErrDataPath)
	refused("Wait", d.Wait(t.Context(), p), plug.ErrDataPath)
	mustUnplug(t, d, p)
	if left := v.ctl(t, "list-ports", "br-int"); left != "" {
		t.Errorf("left after Unplug: %q", left)
	}
}

// The complete path, with the real OVN.
func TestOVNInstallsThePort(t *testing.T) {
	v := newVswitch(t)
	v.startOVN(t)
	d := v.driver(t)
	a, b := newNamespace(t), newNamespace(t)
	pa, pb := pod(t, "ovs", 1, a), pod(t, "ovs", 2, b)
	v.nbctl(t, "ls-add", "net")
	for _, p := range []plug.Interface{pa, pb} {
		v.nbctl(t, "lsp-add", "net", p.PortID, "--", "lsp-set-addresses", p.PortID,
			p.MAC.String()+" "+addr(p, 0)+" "+addr(p, 1))
		mustPlug(t, d, p)
		waited(t, d, p)
	}
	for k := range pa.Addresses {
		ping(t, a, addr(pb, k))
		transfer(t, a, b, addr(pb, k))
	}
	for n := range 5 { // of the same port, quickly
		mustUnplug(t, d, pa)
		a = newNamespace(t)
		pa.ContainerID, pa.Netns = strings.Repeat("a", n+1), a.path
		mustPlug(t, d, pa)
		waited(t, d, pa)
		ping(t, b, addr(pa, 0))
	}
	unknown := pod(t, "ovs", 3, newNamespace(t))
	mustPlug(t, d, unknown)
	notWired(t, d, unknown, "is the port bound to this node?")
}

func BenchmarkOVS(b *testing.B) {
	v := newVswitch(b)
	d := v.driver(b)
	p := pod(b, "ovs", 1, newNamespace(b))
	b.Run("Plug+Wait+Unplug", func(b *testing.B) {
		for b.Loop() {
			mustPlug(b, d, p)
			waited(b, d, p)
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
}
