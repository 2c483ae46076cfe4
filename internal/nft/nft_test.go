// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/nft"
	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

const any4, any6 = "0.0.0.0", "::"

// add has t pass on TCP and UDP from a port of an address to port 80 of a VIP.
func add(t nodeport.Table, ip string, port uint16, vip string) {
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		t[nodeport.Frontend{Address: netip.MustParseAddr(ip), Protocol: p, Port: port}] =
			nodeport.Backend{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(vip), 80), For: "web/shop:http"}
	}
}

func usual() nodeport.Table {
	t := nodeport.Table{}
	add(t, any4, 30080, vip4)
	add(t, any6, 30080, vip6)
	add(t, external4, 8080, vip4)
	add(t, external6, 8080, vip6)
	return t
}

// ensure makes the tables, and empties them with the test.
func ensure(t testing.TB, tables *nft.Tables, want nodeport.Table, added, removed, built int) {
	t.Helper()
	t.Cleanup(func() { _, _ = new(nft.Tables).Ensure(context.Background(), nil) })
	got, err := tables.Ensure(t.Context(), want)
	if want := (nft.Change{Added: added, Removed: removed, Built: built}); err != nil || got != want {
		t.Fatalf("Ensure() = %+v, %v, want %+v", got, err, want)
	}
}

func expect(t testing.TB, h *host, what, network, ip string, port int, want string) {
	t.Helper()
	patience := patient
	if want == "none" {
		patience = brief
	}
	if got := h.ask(t, patience, network, ip, port); got != want {
		t.Errorf("%s: %s to %s port %d: %q, want %q", what, network, ip, port, got, want)
	}
}

func TestTraffic(t *testing.T) {
	s := newSite(t)
	ensure(t, new(nft.Tables), usual(), 8, 0, 2)
	for _, network := range []string{"tcp", "udp"} {
		for _, ip := range []string{node4, inner4} {
			expect(t, s.client, "node port", network, ip, 30080, vip4+" sees "+inner4)
			expect(t, s.node, "node port, from the node", network, ip, 30080, vip4+" sees "+inner4)
		}
		for _, ip := range []string{node6, inner6} {
			expect(t, s.client, "node port", network, ip, 30080, vip6+" sees "+inner6)
			expect(t, s.node, "node port, from the node", network, ip, 30080, vip6+" sees "+inner6)
		}
		for _, h := range []*host{s.client, s.node} {
			expect(t, h, "external IP", network, external4, 8080, vip4+" sees "+inner4)
			expect(t, h, "external IP", network, external6, 8080, vip6+" sees "+inner6)
		}
		expect(t, s.node, "loopback", network, "127.0.0.1", 30080, "none")
		expect(t, s.node, "loopback", network, "::1", 30080, "none")
	}
}

// What the node sends to the API's cluster IP reaches a server on its own network, and
// one on the node itself.
func TestNodeToAPIServer(t *testing.T) {
	s := newSite(t)
	tables := new(nft.Tables)
	for _, at := range []string{client4, client6, node4, node6} {
		server, h := netip.AddrPortFrom(netip.MustParseAddr(at), 6443), s.client
		api := netip.MustParseAddr("10.96.0.1")
		if server.Addr().Is6() {
			api = netip.MustParseAddr("fd96::1")
		}
		sees := []string{node4, node6}
		if at == node4 || at == node6 {
			h, sees = s.node, append(sees, inner4, inner6) // any of its own
		}
		serveOn(t, h, server)
		t.Cleanup(func() { _, _ = new(nft.Tables).Ensure(context.Background(), nil) })
		_, err := tables.Ensure(t.Context(), nodeport.Table{
			{Address: api, Protocol: corev1.ProtocolTCP, Port: 443}: {AddrPort: server, For: "default/kubernetes", Own: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, s.client, "the API, from elsewhere", "tcp", api.String(), 443, "none")
		got, from, _ := strings.Cut(s.node.ask(t, patient, "tcp", api.String(), 443), " sees ")
		if got != at || !slices.Contains(sees, from) {
			t.Errorf("the API at %s answers as %q, and sees %q, want one of %q", at, got, from, sees)
		}
	}
}

// Nothing but the traffic that the tables have is translated or masqueraded.
func TestOtherTraffic(t *testing.T) {
	s := newSite(t)
	want := usual()
	delete(want, nodeport.Frontend{Address: netip.MustParseAddr(any4), Protocol: corev1.ProtocolUDP, Port: 30080})
	ensure(t, new(nft.Tables), want, 7, 0, 2)
	for _, network := range []string{"tcp", "udp"} {
		expect(t, s.client, "straight to a VIP", network, vip4, 80, vip4+" sees "+client4)
		expect(t, s.client, "straight to a VIP", network, vip6, 80, vip6+" sees "+client6)
		expect(t, s.node, "straight to a VIP", network, vip4, 80, vip4+" sees "+inner4)
		expect(t, s.client, "another port", network, node4, 30081, "none")
		expect(t, s.client, "another port", network, external4, 30080, "none")
		expect(t, s.client, "a node port's number elsewhere", network, vip4, 30080, "none")
	}
	expect(t, s.client, "another protocol", "udp", node4, 30080, "none")
	for _, ip := range []string{"127.0.0.1", "::1"} {
		serveOn(t, s.node, netip.AddrPortFrom(netip.MustParseAddr(ip), 30080))
		expect(t, s.node, "a server of the node's own on the loopback", "tcp", ip, 30080, ip+" sees "+ip)
	}
}

// Others' tables stay as they are, and what they translate is not masqueraded,
// from a node port's number either.
func TestOthersTables(t *testing.T) {
	s := newSite(t)
	needNFT(t)
	s.node.run(t, `nft 'table ip theirs { chain in { type nat hook prerouting priority -110;
		ip daddr 192.0.2.1 tcp dport 9999 dnat to 10.96.0.11:80; ip daddr 192.0.2.77 tcp dport 30080 dnat to 10.96.0.11:80; }; }'`)
	t.Cleanup(func() { s.node.run(t, "nft delete table ip theirs") })
	before := s.node.run(t, "nft list ruleset")
	tables := new(nft.Tables)
	ensure(t, tables, usual(), 8, 0, 2)
	expect(t, s.client, "somebody else's port", "tcp", node4, 9999, vip4b+" sees "+client4)
	s.client.run(t, "ip route add 192.0.2.77 via 192.0.2.1")
	expect(t, s.client, "somebody else's address", "tcp", "192.0.2.77", 30080, vip4b+" sees "+client4)
	expect(t, s.client, "node port", "tcp", node4, 30080, vip4+" sees "+inner4)
	if ruleset := s.node.run(t, "nft list ruleset"); !strings.Contains(ruleset, before) || !strings.Contains(ruleset, "table ip6 kuryr-services") {
		t.Errorf("nft lists\n%s\nwant this unchanged, and Kuryr's:\n%s", ruleset, before)
	}
	ensure(t, tables, nil, 0, 8, 0)
	if after := s.node.run(t, "nft list ruleset"); after != before {
		t.Errorf("afterwards nft lists\n%s\nwant\n%s", after, before)
	}
}

// Of two who translate the same, as kube-proxy may, the first does, and the other
// leaves it at that.
func TestAnotherProxy(t *testing.T) {
	s := newSite(t)
	needNFT(t)
	ensure(t, new(nft.Tables), usual(), 8, 0, 2)
	for priority, want := range map[int]string{-110: vip4b + " sees " + client4, -90: vip4 + " sees " + inner4} {
		s.node.run(t, fmt.Sprintf(`nft 'table ip theirs { chain in { type nat hook prerouting priority %d; tcp dport 30080 dnat to 10.96.0.11:80; }; }'`, priority))
		expect(t, s.client, fmt.Sprint("another at ", priority), "tcp", node4, 30080, want)
		s.node.run(t, "nft delete table ip theirs")
	}
}

// Who keeps the node's rules in a file, as nft lists them, can load it again.
func TestListedCanBeLoaded(t *testing.T) {
	s := newSite(t)
	needNFT(t)
	tables, all := new(nft.Tables), usual()
	hostPort(all, corev1.ProtocolTCP, any4, 8080, vip4b)
	hostPort(all, corev1.ProtocolUDP, node6, 8081, vip6)
	ensure(t, tables, all, 10, 0, 2)
	listed := s.node.run(t, "nft list ruleset")
	for _, want := range []string{
		`203.0.113.5 . tcp . 8080 comment "web/shop:http" : 10.96.0.10 . 80`, `tcp . 30080 comment "web/shop:http" : fd96::10 . 80`,
		"dnat ip to ip daddr . meta l4proto . th dport map @external-ips", "dnat ip6 to meta l4proto . th dport map @node-ports",
		"fib daddr type local", "ip daddr != 127.0.0.0/8", "ip6 daddr != ::1",
		"ct status dnat ct original ip daddr . ip daddr . meta l4proto . th dport @external-ip-flows masquerade fully-random",
		"ct status dnat ip6 daddr . meta l4proto . th dport @node-port-flows masquerade fully-random",
		`tcp . 8080 comment "pod web/shop-0" : 10.96.0.11 . 80`, `fd01::1 . udp . 8081 comment "pod web/shop-0" : fd96::10 . 80`,
		`iif != "lo" ip daddr 127.0.0.0/8 drop`,
	} {
		if !strings.Contains(listed, want) {
			t.Errorf("nft does not list %q", want)
		}
	}
	s.node.run(t, fmt.Sprintf("nft list ruleset > %[1]s/rules; nft flush ruleset; nft -f %[1]s/rules", t.TempDir()))
	if again := s.node.run(t, "nft list ruleset"); len(again) != len(listed) {
		t.Errorf("loaded again, nft lists\n%s\nwant\n%s", again, listed)
	}
	expect(t, s.client, "loaded again", "tcp", node4, 30080, vip4+" sees "+inner4)
	expect(t, s.client, "loaded again", "tcp", node4, 8080, vip4b+" sees "+inner4)
	ensure(t, tables, all, 0, 0, 0)
}

func needNFT(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("SKIPPED: needs nft, the command")
	}
}

// Services come and go by elements: connections of others live on, and the table
// is the same one.
func TestChanges(t *testing.T) {
	s := newSite(t)
	tables := new(nft.Tables)
	want := nodeport.Table{}
	add(want, any4, 30080, vip4)
	ensure(t, tables, want, 2, 0, 1)
	ensure(t, tables, want, 0, 0, 0)
	lasting, err := s.client.dial(t, patient, "tcp", node4, 30080)
	if err != nil {
		t.Fatal(err)
	}
	alive := func() {
		t.Helper()
		if got := exchange(lasting, patient); got != vip4+" sees "+inner4 {
			t.Fatalf("the connection from before: %q", got)
		}
	}
	alive()

	add(want, any4, 30081, vip4b)
	ensure(t, tables, want, 2, 0, 0)
	expect(t, s.client, "added", "tcp", node4, 30081, vip4b+" sees "+inner4)
	alive()
	add(want, any6, 30080, vip6)
	ensure(t, tables, want, 2, 0, 1) // its family's first
	expect(t, s.client, "other family", "tcp", node6, 30080, vip6+" sees "+inner6)

	add(want, any4, 30081, vip4)
	ensure(t, tables, want, 2, 2, 0)
	expect(t, s.client, "leads elsewhere", "tcp", node4, 30081, vip4+" sees "+inner4)
	alive()

	ensure(t, tables, want.Family(false), 0, 2, 0)
	expect(t, s.client, "removed", "tcp", node6, 30080, "none")
	want = nodeport.Table{}
	add(want, any4, 30080, vip4)
	ensure(t, tables, want, 0, 2, 0)
	expect(t, s.client, "removed", "tcp", node4, 30081, "none")
	alive()
}

// A process that begins makes the tables anew, and knows what has changed.
func TestRestart(t *testing.T) {
	s := newSite(t)
	ensure(t, new(nft.Tables), usual(), 8, 0, 2)
	lasting, err := s.client.dial(t, patient, "tcp", node4, 30080)
	if err != nil {
		t.Fatal(err)
	}
	ensure(t, new(nft.Tables), usual(), 0, 0, 2)
	want := usual()
	add(want, any4, 30099, vip4b)
	delete(want, nodeport.Frontend{Address: netip.MustParseAddr(external6), Protocol: corev1.ProtocolTCP, Port: 8080})
	ensure(t, new(nft.Tables), want, 2, 1, 2)
	if got := exchange(lasting, patient); got != vip4+" sees "+inner4 {
		t.Errorf("the connection from before: %q", got)
	}
	expect(t, s.client, "new", "tcp", node4, 30099, vip4b+" sees "+inner4)
	ensure(t, new(nft.Tables), nil, 0, 9, 0)
	expect(t, s.client, "off", "tcp", node4, 30080, "none")
	ensure(t, new(nft.Tables), nil, 0, 0, 0)
}

// What somebody else takes away or changes comes back.
func TestMeddling(t *testing.T) {
	s := newSite(t)
	tables := new(nft.Tables)
	ensure(t, tables, usual(), 8, 0, 2)
	ensure(t, new(nft.Tables), nil, 0, 8, 0) // as `nft flush ruleset` does
	ensure(t, tables, usual(), 8, 0, 2)
	needNFT(t)
	for line, want := range map[string]nft.Change{
		"nft flush map ip kuryr-services node-ports":      {Added: 2},
		"nft flush set ip kuryr-services node-port-flows": {},
		"nft flush chain ip kuryr-services output":        {Built: 1},
		"nft delete table ip6 kuryr-services":             {Added: 4, Built: 1},
		"nft flush table ip6 kuryr-services":              {Built: 1},
		"nft add rule ip kuryr-services output drop":      {Built: 1},
		"nft add chain ip kuryr-services mine; nft add element ip kuryr-services node-ports '{tcp . 1 : 1.1.1.1 . 2}'": {Removed: 1},
	} {
		s.node.run(t, line)
		if got, err := tables.Ensure(t.Context(), usual()); err != nil || got != want {
			t.Errorf("after %s: Ensure() = %+v, %v, want %+v", line, got, err, want)
		}
		expect(t, s.client, line, "tcp", node4, 30080, vip4+" sees "+inner4)
		expect(t, s.node, line, "tcp", node6, 30080, vip6+" sees "+inner6)
	}
}

// As many as there are node ports fit, and a change among them costs little.
func TestMany(t *testing.T) {
	s := newSite(t)
	tables := new(nft.Tables)
	want := nodeport.Table{}
	for port := range 2768 {
		add(want, any4, uint16(30000+port), vip4)
		add(want, any6, uint16(30000+port), vip6)
		add(want, fmt.Sprintf("203.0.%d.%d", port/250, port%250), 80, vip4)
	}
	began := time.Now()
	ensure(t, tables, want, len(want), 0, 2)
	t.Logf("%d frontends made in %s", len(want), time.Since(began).Round(time.Millisecond))
	expect(t, s.client, "last", "tcp", node6, 30000+2767, vip6+" sees "+inner6)
	add(want, any4, 32767, vip4b)
	began = time.Now()
	ensure(t, tables, want, 2, 2, 0)
	t.Logf("one changed in %s", time.Since(began).Round(time.Millisecond))
	expect(t, s.client, "last", "tcp", node4, 30000+2767, vip4b+" sees "+inner4)
	ensure(t, tables, nil, 0, len(want), 0)
}

// Others change their tables all the time: what is read is whole nevertheless, and
// Kuryr's table is not made anew for that.
func TestWhileOthersChange(t *testing.T) {
	s := newSite(t)
	tables := new(nft.Tables)
	want := nodeport.Table{}
	for port := range 2768 {
		add(want, any4, uint16(30000+port), vip4)
	}
	ensure(t, tables, want, 5536, 0, 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			err = nft.Meddle()
		}
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for i := range 40 {
		add(want, any4, 30500, []string{vip4b, vip4}[i%2])
		ensure(t, tables, want, 2, 2, 0)
	}
	expect(t, s.client, "afterwards", "tcp", node4, 30500, vip4+" sees "+inner4)
}

// Where IPv6 is off, IPv4 is served, and what is wanted of IPv6 does no harm.
func TestWithoutIPv6(t *testing.T) {
	s := newSite(t)
	s.node.run(t, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1")
	t.Cleanup(func() { s.node.run(t, "sysctl -qw net.ipv6.conf.all.disable_ipv6=0") })
	ensure(t, new(nft.Tables), usual(), 8, 0, 2)
	expect(t, s.client, "IPv4", "tcp", node4, 30080, vip4+" sees "+inner4)
}

func TestForwarding(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		sysctl string
		v6     bool
	}{{"net.ipv4.ip_forward", false}, {"net.ipv6.conf.all.forwarding", true}} {
		for value, want := range map[string]bool{"0": false, "1": true} {
			s.node.run(t, "sysctl -qw "+c.sysctl+"="+value)
			if got, err := new(nft.Tables).Forwarding(c.v6); err != nil || got != want {
				t.Errorf("Forwarding(%v) with %s=%s = %v, %v, want %v", c.v6, c.sysctl, value, got, err, want)
			}
		}
		s.node.run(t, "sysctl -qw "+c.sysctl+"=1")
	}
}
