// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/nodetest"
	"github.com/kuryr-go/kuryr/internal/nodetest/frame"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// nodeHas gives the node an address that is not for pods, and returns a UDP socket there.
func nodeHas(t testing.TB, address string) net.PacketConn {
	t.Helper()
	sh(t, "ip", "link", "set", "lo", "up")
	sh(t, "ip", "address", "replace", address+"/32", "dev", "lo")
	t.Cleanup(func() { _, _ = commandOutput("ip", "address", "del", address+"/32", "dev", "lo") })
	conn, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// gets reports whether a packet comes in. Meanwhile it calls again several times.
func gets(t testing.TB, conn net.PacketConn, again func()) bool {
	t.Helper()
	for range 4 {
		again()
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, _, err := conn.ReadFrom(make([]byte, 100)); err == nil {
			return true
		}
	}
	return false
}

const nodesOwn = "192.0.2.77"

// answersNothing requires that the node's own stack neither sends on a device, nor believes
// packets that come in by it.
func answersNothing(t testing.TB, pod *attacker, device string) {
	t.Helper()
	mac := macOf(t, device)
	_ = nodeHas(t, nodesOwn)
	own, client := netip.MustParseAddr(nodesOwn), netip.MustParseAddr("10.7.0.66")

	var answer []byte
	if pod.hears(func() {
		for _, lie := range [][]byte{
			frame.RouterAdvertisement(pod.mac),
			frame.Echo6(frame.Multicast6(frame.AllNodes), pod.mac, frame.LinkLocal(pod.mac), frame.AllNodes),
			frame.Echo6(mac, pod.mac, frame.LinkLocal(pod.mac), frame.LinkLocal(mac)),
			frame.Solicitation(pod.mac, frame.LinkLocal(pod.mac), frame.LinkLocal(mac)),
			frame.ARP(frame.Request, frame.Broadcast, pod.mac, client, own),
			frame.ARP(frame.Request, frame.Broadcast, pod.mac, netip.IPv4Unspecified(), own), // a probe of RFC 5227
		} {
			pod.send(lie)
		}
	}, func(got []byte) bool { answer = got; return from(mac)(got) }) {
		t.Errorf("the node answers by %s: % x", device, answer)
	}
	if out := sh(t, "ip", "-6", "route") + sh(t, "ip", "-6", "address"); strings.Contains(out, "2001:db8:bad") || strings.Contains(out, "default") {
		t.Errorf("the node believes a pod that says to be a router:\n%s", out)
	}
}

// keepsOut requires that a pod cannot reach the node's own stack by the node's device.
func keepsOut(t testing.TB, pod *attacker, device string) {
	t.Helper()
	answersNothing(t, pod, device)
	mac, conn := macOf(t, device), nodeHas(t, nodesOwn)
	own, client := netip.MustParseAddr(nodesOwn), netip.MustParseAddr("10.7.0.66")
	to := netip.AddrPortFrom(own, netip.MustParseAddrPort(conn.LocalAddr().String()).Port())
	if gets(t, conn, func() {
		for _, source := range []netip.Addr{client, netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("127.0.0.1"), own} {
			pod.send(frame.UDP(mac, pod.mac, netip.AddrPortFrom(source, 1), to, nil))
		}
	}) {
		t.Errorf("a packet of a pod comes in on the node by %s", device)
	}
}

func macOf(t testing.TB, device string) net.HardwareAddr {
	t.Helper()
	dev, err := net.InterfaceByName(device)
	if err != nil {
		t.Fatal(err)
	}
	return dev.HardwareAddr
}

// A pod claims to be a router, and tries to reach the node around its port's security groups.
func TestNodeIsOutOfReach(t *testing.T) {
	t.Run("bridge", func(t *testing.T) {
		d := bridges(t)
		p := pod(t, "bridge", 60, newNamespace(t))
		mustPlug(t, d, p)
		answersNothing(t, attack(t, namespace{p.Netns}, p.Name), "br-test") // TestAttackOnABridge tests the packets that it admits
		if got := sh(t, "cat", "/proc/sys/net/ipv4/conf/br-test/rp_filter"); got != "0" {
			t.Errorf("rp_filter of the bridge is %s, want 0: replies by host ports come by it", got)
		}
		mustCheck(t, d, p)
		sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "nomaster")
		keepsOut(t, attack(t, namespace{p.Netns}, p.Name), plug.HostDevice(p.PortID))
	})
	t.Run("ovs", func(t *testing.T) {
		v := newVswitch(t)
		d := v.driver(t)
		p := pod(t, "ovs", 61, newNamespace(t))
		mustPlug(t, d, p)
		tap := plug.HostDevice(p.PortID)
		eventually(t, "a port number", func() bool { return v.ctl(t, "get", "Interface", tap, "ofport") != "[]" })
		keepsOut(t, attack(t, namespace{p.Netns}, p.Name), tap)
		v.ctl(t, "del-port", tap) // as after the loss of a bridge or a database
		keepsOut(t, attack(t, namespace{p.Netns}, p.Name), tap)
	})
}

// Settings of an earlier daemon, or of a person, are corrected when the port is checked.
func TestMuteAgain(t *testing.T) {
	d := bridges(t)
	p := pod(t, "bridge", 62, newNamespace(t))
	mustPlug(t, d, p)
	sh(t, "sh", "-c", "echo 0 >/proc/sys/net/ipv6/conf/"+plug.HostDevice(p.PortID)+"/disable_ipv6")
	if err := d.Check(t.Context(), p); err == nil || !strings.Contains(err.Error(), "disable_ipv6") {
		t.Errorf("Check = %v, want one that names disable_ipv6", err)
	}
	mustPlug(t, d, p)
	mustCheck(t, d, p)
}

// If the distribution configures it for all devices, systemd writes rp_filter=2 some time after
// the node's end was made. That value is as good, and no fault of the pod's port. It causes no
// repair. The value 0 does.
func TestFilterThatTheNodeHasChanged(t *testing.T) {
	d, s := bridges(t), plug.New(plug.Config{Bridge: "br-test"})
	p := pod(t, "bridge", 66, newNamespace(t))
	mustPlug(t, d, p)
	filter := "/proc/sys/net/ipv4/conf/" + plug.HostDevice(p.PortID) + "/rp_filter"
	sh(t, "sh", "-c", "echo 2 >"+filter)
	mustCheck(t, d, p)
	mended(t, s, []plug.Interface{p})
	mustPlug(t, d, p)
	if got := sh(t, "cat", filter); got != "2" {
		t.Errorf("rp_filter is %s after Mend and Plug, want 2", got)
	}
	sh(t, "sh", "-c", "echo 0 >"+filter)
	if err := d.Check(t.Context(), p); err == nil || !strings.Contains(err.Error(), "rp_filter") {
		t.Errorf("Check = %v, want one that names rp_filter", err)
	}
	mended(t, s, []plug.Interface{p})
	mustCheck(t, d, p)
}

// The kernel uses the larger one of conf/all and the device's own value. Loose mode (2) would
// admit a source with a route by any device, even a default route. But for a device without an
// address, such as the node's ends, it refuses like strict mode (1).
func TestFilterOfALooseNode(t *testing.T) {
	d := bridges(t)
	p := pod(t, "bridge", 67, newNamespace(t))
	mustPlug(t, d, p)
	tap := plug.HostDevice(p.PortID)
	sh(t, "sh", "-c", "ip link add uplink type veth peer name uplink-far && ip link set uplink-far up && ip link set uplink up && ip route add default dev uplink")
	t.Cleanup(func() { sh(t, "sh", "-c", "ip link del uplink; echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter") })
	sh(t, "ip", "link", "set", tap, "nomaster")
	s := &scene{TB: t, pod: p, victim: p, node: []string{tap}}
	for _, c := range []struct{ all, own string }{{"2", "1"}, {"2", "2"}, {"0", "2"}, {"2", "0"}, {"1", "0"}} {
		sh(t, "sh", "-c", "echo "+c.all+" >/proc/sys/net/ipv4/conf/all/rp_filter; echo "+c.own+" >/proc/sys/net/ipv4/conf/"+tap+"/rp_filter")
		if s.can([]string{packetsToTheNode}, nil); t.Failed() {
			t.Fatalf("with rp_filter %s of all, and %s of the device", c.all, c.own)
		}
	}
	sh(t, "sh", "-c", "echo 0 | tee /proc/sys/net/ipv4/conf/all/rp_filter /proc/sys/net/ipv4/conf/"+tap+"/rp_filter")
	s.can([]string{packetsToTheNode}, []string{packetsToTheNode}) // this shows that the filter does it
}

// Another owner's bridge, which is down and has an address, is brought up unchanged.
func TestBridgeWithAnAddressIsLeftAlone(t *testing.T) {
	d := bridges(t)
	sh(t, "ip", "link", "add", "br-test", "type", "bridge")
	sh(t, "ip", "address", "add", "10.7.255.1/16", "dev", "br-test")
	mustPlug(t, d, pod(t, "bridge", 63, newNamespace(t)))
	if got := sh(t, "cat", "/proc/sys/net/ipv6/conf/br-test/disable_ipv6"); got != "0" {
		t.Errorf("disable_ipv6 of the bridge is %s, want 0", got)
	}
}

// A pod whose port has only IPv4 addresses gets no IPv6 from any neighbour.
func TestPodTakesNoRouterAdvertisements(t *testing.T) {
	nodetest.Need(t)
	for name, start := range map[string]func(t *testing.T) (plug.Driver, string){
		"bridge": func(t *testing.T) (plug.Driver, string) { return bridges(t), "bridge" },
		"ovs":    func(t *testing.T) (plug.Driver, string) { return newVswitch(t).driver(t), "ovs" },
		"macvlan": func(t *testing.T) (plug.Driver, string) {
			return newVirtualMachine(t, "macvlan", "nic0").driver, "macvlan"
		},
	} {
		for _, addresses := range []int{1, 2} { // IPv4 only, and both
			t.Run(name, func(t *testing.T) {
				d, typ := start(t)
				p, evil := pod(t, typ, 64, newNamespace(t)), pod(t, typ, 65, newNamespace(t))
				p.Addresses, evil.Addresses = p.Addresses[:addresses], evil.Addresses[:addresses]
				mustPlug(t, d, p)
				mustPlug(t, d, evil)
				victim, a := namespace{p.Netns}, attack(t, namespace{evil.Netns}, evil.Name)
				before := victim.run(t, "ip", "-6", "route", "show", "default")
				a.hears(func() { a.send(frame.RouterAdvertisement(a.mac)) }, func([]byte) bool { return false })
				if out := victim.run(t, "ip", "-6", "address"); strings.Contains(out, "2001:db8:bad") {
					t.Errorf("the pod has taken an address from another:\n%s", out)
				}
				if after := victim.run(t, "ip", "-6", "route", "show", "default"); after != before {
					t.Errorf("the pod's default routes were %q and are now %q", before, after)
				}
				mustCheck(t, d, p)
			})
		}
	}
}
