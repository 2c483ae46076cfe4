// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft_test

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/nft"
	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// hostPort has t pass on a host port to port 80 of a pod, in place of which is a VIP.
func hostPort(t nodeport.Table, p corev1.Protocol, ip string, port uint16, pod string) {
	t[nodeport.Frontend{Address: netip.MustParseAddr(ip), Protocol: p, Port: port, Host: true}] =
		nodeport.Backend{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(pod), 80), For: "pod web/shop-0"}
}

// askFrom is ask with a source of the asker's choice.
func (h *host) askFrom(t testing.TB, network, source, ip string, port int) string {
	t.Helper()
	got := "none"
	if err := h.do(func() error {
		d := net.Dialer{Timeout: patient, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		if network == "udp" {
			d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(source)}
		}
		c, err := d.DialContext(context.Background(), network, netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(port)).String())
		if err != nil {
			return nil
		}
		defer c.Close()
		got = exchange(c, patient)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func localnet(t testing.TB, s site, device string) string {
	return s.node.run(t, "cat /proc/sys/net/ipv4/conf/"+device+"/route_localnet")
}

// A host port without an address is one of all the node's, the loopback's among
// them, for the node itself and for others.
func TestHostPort(t *testing.T) {
	s := newSite(t)
	want := nodeport.Table{}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		hostPort(want, p, any4, 8080, vip4)
		hostPort(want, p, any6, 8080, vip6)
	}
	tables := &nft.Tables{Opened: filepath.Join(t.TempDir(), "opened")}
	ensure(t, tables, want, 4, 0, 2)
	for _, network := range []string{"tcp", "udp"} {
		for _, h := range []*host{s.client, s.node} {
			for _, ip := range []string{node4, inner4} {
				expect(t, h, "host port", network, ip, 8080, vip4+" sees "+inner4)
			}
			for _, ip := range []string{node6, inner6} {
				expect(t, h, "host port", network, ip, 8080, vip6+" sees "+inner6)
			}
		}
		expect(t, s.node, "loopback", network, "127.0.0.1", 8080, vip4+" sees "+inner4)
		expect(t, s.node, "loopback", network, "127.3.2.1", 8080, vip4+" sees "+inner4)
		expect(t, s.node, "IPv6 from the loopback to itself", network, "::1", 8080, "none")
		expect(t, s.client, "another port", network, node4, 8081, "none")
		expect(t, s.client, "an address that is not the node's", network, external4, 8080, "none")
		expect(t, s.client, "straight to a pod", network, vip4, 80, vip4+" sees "+client4)
		for source, ip := range map[string]string{node4: "127.0.0.1", node6: "::1"} { // as curl --interface does
			pod, sees := vip4, inner4
			if source == node6 {
				pod, sees = vip6, inner6
			}
			if got := s.node.askFrom(t, network, source, ip, 8080); got != pod+" sees "+sees {
				t.Errorf("loopback from %s: %q", source, got)
			}
		}
	}
	if got := localnet(t, s, "to-cloud") + localnet(t, s, "to-client") + localnet(t, s, "all"); got != "100" {
		t.Errorf("route_localnet towards pods, clients, all: %s", got)
	}
	// Another process finds what this one has opened.
	ensure(t, &nft.Tables{Opened: tables.Opened}, nil, 0, 4, 0)
	if got := localnet(t, s, "to-cloud"); got != "0" {
		t.Errorf("without host ports route_localnet is %s", got)
	}
	expect(t, s.client, "when it is gone", "tcp", node4, 8080, "none")
}

// Host ports of one number with different addresses or protocols do not meet, and
// leave the others' traffic alone.
func TestHostPortsOfOneNumber(t *testing.T) {
	s := newSite(t)
	want := nodeport.Table{}
	hostPort(want, corev1.ProtocolTCP, "127.0.0.1", 54323, vip4)
	hostPort(want, corev1.ProtocolTCP, node4, 54323, vip4b)
	hostPort(want, corev1.ProtocolUDP, node4, 54323, vip4)
	hostPort(want, corev1.ProtocolTCP, node6, 54323, vip6)
	hostPort(want, corev1.ProtocolTCP, external4, 54323, vip4) // nobody's address here
	ensure(t, new(nft.Tables), want, 5, 0, 2)
	expect(t, s.node, "pod 1", "tcp", "127.0.0.1", 54323, vip4+" sees "+inner4)
	for _, h := range []*host{s.node, s.client} {
		expect(t, h, "pod 2", "tcp", node4, 54323, vip4b+" sees "+inner4)
		expect(t, h, "pod 3", "udp", node4, 54323, vip4+" sees "+inner4)
		expect(t, h, "pod 4", "tcp", node6, 54323, vip6+" sees "+inner6)
		expect(t, h, "another address of the node", "tcp", inner4, 54323, "none")
		expect(t, h, "another protocol", "udp", node6, 54323, "none")
		expect(t, h, "an address that is not the node's", "tcp", external4, 54323, "none")
	}
	expect(t, s.node, "another protocol", "udp", "127.0.0.1", 54323, "none")
	if got := s.node.askFrom(t, "tcp", node4, "127.0.0.1", 54323); got != vip4+" sees "+inner4 {
		t.Errorf("pod 1 from the node's address: %q", got)
	}
}

// Opening the loopback towards pods lets nobody else in.
func TestLoopbackStaysClosed(t *testing.T) {
	s := newSite(t)
	needNFT(t)
	serveOn(t, s.node, netip.MustParseAddrPort("127.0.0.1:9000"))
	s.cloud.run(t, "sysctl -qw net.ipv4.conf.all.route_localnet=1; ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.1 via "+inner4)
	tables, want := new(nft.Tables), nodeport.Table{}
	hostPort(want, corev1.ProtocolTCP, any4, 8080, vip4)
	ensure(t, tables, want, 1, 0, 1)
	for _, network := range []string{"tcp", "udp"} {
		expect(t, s.cloud, "a neighbour", network, "127.0.0.1", 9000, "none")
		expect(t, s.cloud, "a neighbour", network, "127.0.0.1", 8080, "none")
		expect(t, s.node, "the node", network, "127.0.0.1", 9000, "127.0.0.1 sees 127.0.0.1")
	}
	s.node.run(t, "nft delete chain ip kuryr-services loopback") // that it is by this
	expect(t, s.cloud, "a neighbour, without the chain", "tcp", "127.0.0.1", 9000, "127.0.0.1 sees 198.51.100.2")
	ensure(t, tables, want, 0, 0, 1)
	expect(t, s.cloud, "a neighbour again", "tcp", "127.0.0.1", 9000, "none")
}

// A device whose route_localnet somebody else has set keeps it, and none is opened
// for pods that are not on the loopback, nor for a way that is not there.
func TestLoopbackOfOthers(t *testing.T) {
	s := newSite(t)
	tables, want := new(nft.Tables), nodeport.Table{}
	hostPort(want, corev1.ProtocolTCP, node4, 8080, vip4)
	hostPort(want, corev1.ProtocolTCP, any6, 8080, vip6)
	add(want, any4, 30080, vip4)
	ensure(t, tables, want, 4, 0, 2)
	if got := localnet(t, s, "to-cloud"); got != "0" {
		t.Errorf("route_localnet is %s where nobody is on the loopback", got)
	}
	s.node.run(t, "sysctl -qw net.ipv4.conf.to-cloud.route_localnet=1")
	hostPort(want, corev1.ProtocolTCP, "127.0.0.1", 8080, vip4)
	ensure(t, tables, want, 1, 0, 0)
	s.node.run(t, "ip route add unreachable 10.99.0.0/16")
	hostPort(want, corev1.ProtocolTCP, "127.0.0.1", 8081, "10.99.0.1")
	ensure(t, tables, want, 1, 0, 0)
	ensure(t, tables, nil, 0, 6, 0)
	if got := localnet(t, s, "to-cloud"); got != "1" {
		t.Errorf("route_localnet is %s, which somebody else has set to 1", got)
	}
}

// The device towards the pods may be another one one day, or gone.
func TestLoopbackFollowsRoutes(t *testing.T) {
	s := newSite(t)
	tables, want := new(nft.Tables), nodeport.Table{}
	hostPort(want, corev1.ProtocolTCP, any4, 8080, vip4)
	ensure(t, tables, want, 1, 0, 1)
	s.node.run(t, "ip link add other type veth peer name other-peer; ip link set other up; ip link set other-peer up; ip route add 10.96.0.10 dev other")
	ensure(t, tables, want, 0, 0, 0)
	if got := localnet(t, s, "to-cloud") + localnet(t, s, "other"); got != "01" {
		t.Errorf("route_localnet of the former and the new device: %s", got)
	}
	s.node.run(t, "ip link del other")
	ensure(t, tables, want, 0, 0, 0)
	expect(t, s.node, "loopback", "tcp", "127.0.0.1", 8080, vip4+" sees "+inner4)
}

// A UDP client that never ceases to send follows the pods of a host port.
func TestUDPFollowsHostPort(t *testing.T) {
	s := newSite(t)
	tables := new(nft.Tables)
	for name, ip := range map[string]string{"a node's address": node4, "the loopback": "127.0.0.1"} {
		c, err := s.node.dial(t, patient, "udp", ip, 8080)
		if err != nil {
			t.Fatal(err)
		}
		_ = exchange(c, brief)
		for i, pod := range []string{vip4, vip4b, vip4} {
			want := nodeport.Table{}
			hostPort(want, corev1.ProtocolUDP, any4, 8080, pod)
			if _, err := tables.Ensure(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			if got := exchange(c, patient); got != pod+" sees "+inner4 {
				t.Errorf("%s, step %d: %q, want that of %s", name, i, got, pod)
			}
		}
		ensure(t, tables, nil, 0, 1, 0)
	}
}

// Services go before pods, whatever is in the table.
func TestHostPortsBehindServices(t *testing.T) {
	s := newSite(t)
	want := nodeport.Table{}
	add(want, any4, 30080, vip4)
	hostPort(want, corev1.ProtocolTCP, any4, 30080, vip4b)
	hostPort(want, corev1.ProtocolTCP, inner4, 30080, vip4b)
	ensure(t, new(nft.Tables), want, 4, 0, 1)
	for _, ip := range []string{node4, inner4} {
		expect(t, s.client, "a node port", "tcp", ip, 30080, vip4+" sees "+inner4)
	}
}
