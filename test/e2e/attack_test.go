// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/nodetest/frame"
)

// sandboxed is a pod as its node has it.
type sandboxed struct {
	*corev1.Pod
	netns string
	mac   net.HardwareAddr
	ip    netip.Addr
	vif   v1.VIF
}

// sandbox finds a pod's network namespace by the journal of its node.
func (f *fixture) sandbox(t testing.TB, pod *corev1.Pod) sandboxed {
	t.Helper()
	s := sandboxed{Pod: pod, ip: must(netip.ParseAddr(pod.Status.PodIP))(t)}
	eventually(t, func() error {
		port, err := f.KuryrPortOf(t.Context(), pod)
		if err != nil {
			return err
		}
		a := port.Status.Attachment
		if a == nil {
			return fmt.Errorf("KuryrPort %s has no attachment: %w", port.Name, errNotYet)
		}
		out, err := f.OnNode(t.Context(), pod.Spec.NodeName, "cat", fmt.Sprintf("/var/lib/kuryr/attachments/%s@%s.json", a.ContainerID, a.Interface))
		if err != nil {
			return err
		}
		var entry struct{ Netns string }
		if err := json.Unmarshal([]byte(out), &entry); err != nil {
			return err
		}
		s.netns, s.vif = entry.Netns, port.Spec.VIF
		s.mac, err = net.ParseMAC(port.Spec.VIF.MACAddress)
		return err
	})
	return s
}

// inside runs a command in a pod's network namespace, with all rights there: what a pod
// with NET_RAW and NET_ADMIN has.
func (f *fixture) inside(ctx context.Context, s sandboxed, command ...string) (string, error) {
	return f.OnNode(ctx, s.Spec.NodeName, append([]string{"nsenter", "--net=" + s.netns}, command...)...)
}

// wire sends frames by eth0 for three seconds, and says whether a frame came in that
// has certain bytes in it.
const wire = `
import socket, sys, time
wanted, frames = bytes.fromhex(sys.argv[1].strip("-")), [bytes.fromhex(a) for a in sys.argv[2:]]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("eth0", 3))
s.settimeout(0.1)
end = time.time() + 3
while time.time() < end:
    for f in frames:
        s.send(f)
    pause = time.time() + 0.3
    while time.time() < pause:
        try:
            got, at = s.recvfrom(4096)
        except socket.timeout:
            continue
        if wanted and at[2] != socket.PACKET_OUTGOING and wanted in got:
            print("heard")
            sys.exit()
print("nothing")
`

// hears reports whether by hears a frame that has wanted in it, while from sends frames.
func (f *fixture) hears(t testing.TB, by sandboxed, wanted []byte, from sandboxed, frames ...[]byte) bool {
	t.Helper()
	send := []string{"python3", "-c", wire, "-"}
	for _, b := range frames {
		send = append(send, hex.EncodeToString(b))
	}
	sent := make(chan error, 1)
	go func() {
		_, err := f.inside(t.Context(), from, send...)
		sent <- err
	}()
	out, err := f.inside(t.Context(), by, "python3", "-c", wire, hex.EncodeToString(wanted)+"-")
	if err := <-sent; err != nil {
		t.Fatalf("sending frames from %s: %v", from.Name, err)
	}
	if err != nil {
		t.Fatalf("listening in %s: %v", by.Name, err)
	}
	return strings.Contains(out, "heard")
}

// neighbour is the MAC address that a pod has for an address that it has just spoken to.
func (f *fixture) neighbour(t testing.TB, s sandboxed, address string) string {
	t.Helper()
	out := must(f.inside(t.Context(), s, "ip", "neigh", "show", address, "dev", "eth0"))(t)
	_, rest, _ := strings.Cut(out, "lladdr ")
	mac, _, _ := strings.Cut(rest, " ")
	return mac
}

// A pod with NET_RAW and NET_ADMIN gets nowhere with addresses that are not its own:
// the port security of OVN, or of neutron-openvswitch-agent's firewall, is on its port, and its node keeps out of what comes by the port's
// device. What it may send by its own addresses is the business of security groups, which let all
// pass here; internal/plug has the same for other types of ports.
func TestAttacks(t *testing.T) {
	f := onBed(t)
	pods := f.pods(t, "attacker", "elsewhere", "victim") // the first and the last are on one node
	evil, victim := f.sandbox(t, pods[0]), f.sandbox(t, pods[2])
	gateway := must(netip.ParseAddr(evil.vif.Addresses[0].Gateway))(t)
	_, _ = f.inside(t.Context(), victim, "ping", "-c1", "-W2", gateway.String())
	before := f.neighbour(t, victim, gateway.String())
	router, err := net.ParseMAC(before)
	if err != nil {
		t.Fatalf("the victim does not know its gateway %s: %v", gateway, err)
	}
	to := netip.AddrPortFrom(victim.ip, 9)
	word := func(text string) []byte { return []byte(text + ", and long enough for a frame of Ethernet") }

	honest := word("an honest word")
	if !f.hears(t, victim, honest, evil, frame.UDP(victim.mac, evil.mac, netip.AddrPortFrom(evil.ip, 9), to, honest)) {
		t.Fatal("what the attacker sends by its own addresses does not come in: the rest would say nothing")
	}
	for what, lie := range map[string]func(b []byte) []byte{
		"from the gateway's IP address": func(b []byte) []byte { return frame.UDP(victim.mac, evil.mac, netip.AddrPortFrom(gateway, 9), to, b) },
		"from the gateway's MAC address": func(b []byte) []byte {
			return frame.UDP(victim.mac, router, netip.AddrPortFrom(evil.ip, 9), to, b)
		},
		"with a VLAN tag": func(b []byte) []byte {
			return frame.Tagged(frame.UDP(victim.mac, evil.mac, netip.AddrPortFrom(evil.ip, 9), to, b), 5)
		},
	} {
		if what == "with a VLAN tag" && byAgents() {
			continue // the agent's firewall passes it by the pod's own addresses, in the pod's own network: TestAgentsNetworksAreApart
		}
		if b := word("a lie " + what); f.hears(t, victim, b, evil, lie(b)) {
			t.Errorf("a neighbour gets what a pod sends %s", what)
		}
	}
	f.attackGateway(t, evil, victim, gateway, router)
	f.attackNode(t, evil)
}

// attackGateway has a pod say that it is the gateway, a router, and its neighbour.
func (f *fixture) attackGateway(t testing.TB, evil, victim sandboxed, gateway netip.Addr, router net.HardwareAddr) {
	t.Helper()
	time.Sleep(1100 * time.Millisecond) // for so long Linux holds on to what it was told before
	secret := []byte("in confidence, and long enough for a frame of Ethernet")
	heard := f.hears(t, evil, secret, victim, frame.Ether(router, victim.mac, 0x88b6, secret))
	lies := [][]byte{
		frame.ARP(frame.Reply, victim.mac, evil.mac, gateway, victim.ip),
		frame.ARP(frame.Reply, frame.Broadcast, router, gateway, gateway),
		frame.Ether(frame.Broadcast, router, 0x88b5, secret), // for switches that learn
		frame.Ether(frame.Broadcast, victim.mac, 0x88b5, secret),
		frame.RouterAdvertisement(evil.mac),
	}
	f.hears(t, victim, nil, evil, lies...)
	if got := f.neighbour(t, victim, gateway.String()); got != router.String() {
		t.Errorf("a neighbour takes %s for the gateway, whose MAC address is %s; the attacker's is %s", got, router, evil.mac)
	}
	if heard || f.hears(t, evil, secret, victim, frame.Ether(router, victim.mac, 0x88b6, secret)) {
		t.Error("the attacker hears what a neighbour sends to the gateway")
	}
	if out := must(f.inside(t.Context(), victim, "ip", "-6", "address"))(t); strings.Contains(out, "2001:db8:bad") {
		t.Errorf("a neighbour has taken an address from a pod that says to be a router:\n%s", out)
	}
}

// attackNode has a pod look for its node at the node's end of its pair.
func (f *fixture) attackNode(t testing.TB, evil sandboxed) {
	t.Helper()
	port, err := f.KuryrPortOf(t.Context(), evil.Pod)
	if err != nil {
		t.Fatal(err)
	}
	node, tap := evil.Spec.NodeName, "tap"+port.Name[:11]
	text := strings.TrimSpace(must(f.OnNode(t.Context(), node, "cat", "/sys/class/net/"+tap+"/address"))(t))
	mac := must(net.ParseMAC(text))(t)
	address := must(netip.ParseAddr(f.nodeIP(t, node)))(t)
	frames := [][]byte{
		frame.RouterAdvertisement(evil.mac),
		frame.ARP(frame.Request, frame.Broadcast, evil.mac, evil.ip, address),
		frame.ARP(frame.Request, frame.Broadcast, evil.mac, netip.IPv4Unspecified(), address),
		frame.Solicitation(evil.mac, frame.LinkLocal(evil.mac), frame.LinkLocal(mac)),
		frame.Echo6(frame.Multicast6(frame.AllNodes), evil.mac, frame.LinkLocal(evil.mac), frame.AllNodes),
	}
	if f.hears(t, evil, mac, evil, frames...) {
		t.Errorf("node %s answers a pod by %s", node, tap)
	}
	out := must(f.OnNode(t.Context(), node, "sh", "-c", "ip -6 address; ip -6 route; cat /proc/sys/net/ipv6/conf/"+tap+"/disable_ipv6"))(t)
	if strings.Contains(out, "2001:db8:bad") || !strings.HasSuffix(strings.TrimSpace(out), "1") {
		t.Errorf("node %s believes a pod that says to be a router:\n%s", node, out)
	}
}
