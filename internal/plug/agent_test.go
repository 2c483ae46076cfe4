// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/plug"
)

// agentPort returns a port that neutron-openvswitch-agent wires.
func agentPort(t testing.TB, n int, ns namespace) plug.Interface {
	t.Helper()
	p := pod(t, "ovs", n, ns)
	p.Agent = true
	return p
}

// tag does what the agent does to a port of one of its networks.
func (v *vswitch) tag(t testing.TB, tag string, ports ...plug.Interface) {
	t.Helper()
	for _, p := range ports {
		name := plug.HostDevice(p.PortID)
		v.ctl(t, "set", "Port", name, "tag="+tag, "--", "clear", "Port", name, "vlan_mode", "--", "clear", "Port", name, "trunks", "--",
			"set", "Port", name, "other_config:net_uuid=net", "other_config:tag="+tag)
	}
}

func (v *vswitch) tagOf(t testing.TB, p plug.Interface) string {
	t.Helper()
	return v.ctl(t, "get", "Port", plug.HostDevice(p.PortID), "tag")
}

// watchTags returns a function that returns all values that the tag of p's port has had since.
func (v *vswitch) watchTags(t testing.TB, p plug.Interface) func() []string {
	t.Helper()
	path := filepath.Join(v.dir, "tags")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ovsdb-client", "--format=csv", "--data=bare", "monitor", v.endpoint, "Open_vSwitch", "Port", "name,tag")
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(cmd); _ = out.Close() })
	read := func() string { text, _ := os.ReadFile(path); return string(text) }
	eventually(t, "the monitor", func() bool { return strings.Contains(read(), "br-int") })
	last := 0
	return func() []string {
		last++
		end := "end" + strings.Repeat("x", last)
		v.ctl(t, "--no-wait", "add-port", "br-int", end, "--", "set", "Interface", end, "type=internal")
		eventually(t, "the monitor", func() bool { return strings.Contains(read(), end) })
		var tags []string
		for line := range strings.SplitSeq(read(), "\n") {
			// row,action,name,tag: old values have no name
			if f := strings.Split(line, ","); len(f) == 4 && f[2] == plug.HostDevice(p.PortID) && f[1] != "delete" {
				tags = append(tags, f[3])
			}
		}
		return tags
	}
}

func noPing(t testing.TB, from namespace, to string) {
	t.Helper()
	from.do(t, func() error {
		if out, err := exec.Command("ping", "-n", "-c2", "-i0.1", "-W0.3", to).CombinedOutput(); err == nil {
			t.Errorf("a packet reached %s: %s", to, out)
		}
		return nil
	})
}

// A port without a tag would be in all networks of the switch. Two ports that wait for the agent do
// not reach each other, either.
func TestAgentPortIsIsolatedUntilTheAgentHasSeenIt(t *testing.T) {
	v := newForeignVswitch(t)
	d := v.driver(t)
	a, b, c := newNamespace(t), newNamespace(t), newNamespace(t)
	pa, pb, wired := agentPort(t, 1, a), agentPort(t, 2, b), agentPort(t, 3, c)
	mustPlug(t, d, wired)
	v.tag(t, "5", wired)
	waited(t, d, wired)
	tags := v.watchTags(t, pa)
	for _, p := range []plug.Interface{pa, pb} {
		mustPlug(t, d, p)
		mustCheck(t, d, p)
		notWired(t, d, p, "neutron-openvswitch-agent has not put it into its network")
		notWired(t, d, p, "start it; 'openstack port show "+p.PortID+"'")
	}
	noPing(t, a, addr(pb, 0))
	noPing(t, a, addr(wired, 0))
	noPing(t, c, addr(pa, 0))

	done := make(chan error, 1)
	go func() { done <- d.Wait(t.Context(), pa) }()
	v.tag(t, "5", pa, pb)
	if err := <-done; err != nil {
		t.Fatalf("Wait = %v", err)
	}
	ping(t, a, addr(pb, 0))
	transfer(t, c, a, addr(pa, 0))
	mustPlug(t, d, pa) // as after a restart of the daemon: the agent's tag stays
	waited(t, d, pa)
	mustCheck(t, d, pa)
	if got := v.tagOf(t, pa); got != "5" {
		t.Errorf("tag %s after a repeated Plug, want 5", got)
	}

	next := newNamespace(t) // of the next sandbox
	pa.ContainerID, pa.Netns = "next", next.path
	mustPlug(t, d, pa)
	notWired(t, d, pa, "neutron-openvswitch-agent")
	noPing(t, c, addr(pa, 0))
	v.tag(t, "5", pa)
	waited(t, d, pa)
	ping(t, c, addr(pa, 0))
	v.ctl(t, "set", "Port", plug.HostDevice(pa.PortID), "tag=4095") // the port is bound here no more
	notWired(t, d, pa, "neutron-openvswitch-agent")
	v.ctl(t, "set", "Port", plug.HostDevice(pa.PortID), "tag=5", "vlan_mode=trunk", "trunks=4095")
	notWired(t, d, pa, "vlan_mode")
	if got := strings.Join(tags(), " "); got != "4095 5 4095 5 4095 5" {
		t.Errorf("tags %s, want 4095 5 for each sandbox, 4095 and 5", got)
	}
	for _, p := range []plug.Interface{pa, pb, wired} {
		mustUnplug(t, d, p)
	}
	if left := v.ctl(t, "list-ports", "br-int"); left != "endx" {
		t.Errorf("left on the bridge: %s", left)
	}
}

// A port that was plugged for OVN has no tag.
func TestAgentPortThatWasPluggedForOVN(t *testing.T) {
	v := newForeignVswitch(t)
	v.ctl(t, "set", "Open_vSwitch", ".", "external_ids:ovn-remote=unix:/nowhere")
	d := v.driver(t)
	p := pod(t, "ovs", 1, newNamespace(t))
	mustPlug(t, d, p)
	if got := v.tagOf(t, p); got != "[]" {
		t.Errorf("tag %s of a port of OVN, want none", got)
	}
	p.Agent = true
	if err := d.Check(t.Context(), p); err == nil || !strings.Contains(err.Error(), "no tag") {
		t.Errorf("Check = %v, want an error about the tag", err)
	}
	v.ctl(t, "remove", "Open_vSwitch", ".", "external_ids", "ovn-remote")
	mustPlug(t, d, p)
	if got := v.tagOf(t, p); got != "4095" {
		t.Errorf("tag %s, want 4095, although it was plugged before", got)
	}
	v.ctl(t, "set", "Interface", plug.HostDevice(p.PortID), `external_ids:ovn-installed="true"`)
	notWired(t, d, p, "neutron-openvswitch-agent")
}

func TestAgentPortParked(t *testing.T) {
	v, l := newForeignVswitch(t), newLot(t)
	s := plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int", Parking: l.path})
	d := driver(t, s, "ovs")
	a, b := newNamespace(t), newNamespace(t)
	early, late := agentPort(t, 1, a), agentPort(t, 2, b)
	for _, p := range []plug.Interface{early, late} {
		if err := s.Park(t.Context(), p); err != nil {
			t.Fatalf("Park = %v", err)
		}
		if got := v.tagOf(t, p); got != "4095" {
			t.Errorf("tag %s of a parked port, want 4095", got)
		}
	}
	tags := v.watchTags(t, early)
	v.tag(t, "7", late)
	for _, p := range []plug.Interface{early, late} {
		eventually(t, "the port is taken", func() bool { return v.ctl(t, "get", "Interface", plug.HostDevice(p.PortID), "ofport") != "[]" })
		mustPlug(t, d, p)
	}
	counted(t, s, 2, 0)
	notWired(t, d, early, "neutron-openvswitch-agent")
	noPing(t, b, addr(early, 0))
	waited(t, d, late)
	v.tag(t, "7", early)
	waited(t, d, early)
	mustCheck(t, d, early)
	transfer(t, b, a, addr(early, 0))

	// The agent tracks the connections of a network's ports together, so that a port is as new only
	// if it is plugged anew.
	mustUnplug(t, d, early)
	parked(t, s, early, false)
	if err := s.Park(t.Context(), early); err != nil {
		t.Fatalf("Park = %v", err)
	}
	if got := strings.Join(tags(), " "); got != "4095 7 4095" {
		t.Errorf("tags %s, want 4095 7 4095", got)
	}
	parked(t, s, early, true)
	if err := s.Unpark(t.Context(), early.PortID); err != nil || hasDevice(t, plug.HostDevice(early.PortID)) {
		t.Errorf("Unpark = %v, or the device is left", err)
	}
}

func TestAgentPortMended(t *testing.T) {
	v := newForeignVswitch(t)
	s := v.set()
	d := driver(t, s, "ovs")
	p := agentPort(t, 1, newNamespace(t))
	mustPlug(t, d, p)
	v.tag(t, "5", p)
	waited(t, d, p)
	mended(t, s, []plug.Interface{p})
	if got := v.tagOf(t, p); got != "5" {
		t.Errorf("tag %s after Mend, want the agent's", got)
	}
	v.ctl(t, "del-port", plug.HostDevice(p.PortID))
	mended(t, s, []plug.Interface{p}, p)
	if got := v.tagOf(t, p); got != "4095" {
		t.Errorf("tag %s of a port that was plugged again, want 4095", got)
	}
}

// With iptables_hybrid, a port that is plugged into the switch itself has no security groups.
func TestHybridPortIsRefused(t *testing.T) {
	v, l := newForeignVswitch(t), newLot(t)
	s := plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int", Parking: l.path})
	p := agentPort(t, 1, newNamespace(t))
	p.Hybrid = true
	for what, err := range map[string]error{"Plug": driver(t, s, "ovs").Plug(t.Context(), p), "Park": s.Park(t.Context(), p)} {
		if !errors.Is(err, plug.ErrInvalid) || !strings.Contains(err.Error(), "firewall_driver = openvswitch") || errors.Is(err, plug.ErrCannotPark) != (what == "Park") {
			t.Errorf("%s = %v, want ErrInvalid with the remedy, and of Park ErrCannotPark, too", what, err)
		}
	}
	if left := v.ctl(t, "list-ports", "br-int"); left != "" || hasDevice(t, plug.HostDevice(p.PortID)) {
		t.Errorf("it was plugged: %q", left)
	}
}

// A cloud that has moved from the agent to OVN still shows earlier ports as the agent's. Nobody would
// ever tag them.
func TestAgentPortOnASwitchOfOVN(t *testing.T) {
	v, l := newForeignVswitch(t), newLot(t)
	v.ctl(t, "set", "Open_vSwitch", ".", "external_ids:ovn-remote=unix:/nowhere")
	s := plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int", Parking: l.path})
	p := agentPort(t, 1, newNamespace(t))
	for what, err := range map[string]error{"Plug": driver(t, s, "ovs").Plug(t.Context(), p), "Park": s.Park(t.Context(), p)} {
		if !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), "Delete the KuryrPort") || errors.Is(err, plug.ErrCannotPark) != (what == "Park") {
			t.Errorf("%s = %v, want ErrDataPath with the remedy, and of Park ErrCannotPark, too", what, err)
		}
	}
	if left := v.ctl(t, "list-ports", "br-int"); left != "" || hasDevice(t, plug.HostDevice(p.PortID)) {
		t.Errorf("it was plugged: %q", left)
	}
}

func TestReadyWithAnAgentsSwitch(t *testing.T) {
	v := newForeignVswitch(t)
	s := plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int", DriverDir: t.TempDir()})
	if err := s.Ready(t.Context()); !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), "OpenFlow controller") {
		t.Errorf("Ready on nobody's switch = %v, want ErrDataPath", err)
	}
	v.ctl(t, "set-controller", "br-int", "tcp:127.0.0.1:6633")
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("Ready on the agent's switch, while the agent is away = %v", err)
	}
	v.ctl(t, "set-controller", "br-int", "tcp:127.0.0.1:6633", "tcp:127.0.0.1:6634")
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("Ready with two controllers = %v", err)
	}
}
