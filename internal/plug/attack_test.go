// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/nodetest/frame"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// What a pod with NET_RAW and NET_ADMIN can do to its node, to a neighbour and to the gateway, by
// type of port. docs/security.md says the same. The tests also assert the attacks that a type
// does not prevent, so that they fail if that changes.
const (
	routerOfTheNode     = "be a router of the node"
	heardByTheNode      = "have the node answer, by IPv6 or ARP"
	packetsToTheNode    = "send packets to the node"
	broadcastsToTheNode = "send DHCP to the node"
	routerOfNeighbours  = "be a router of a neighbour"
	gatewayByARP        = "be the gateway of a neighbour, by ARP"
	gatewayByNDP        = "be the gateway of a neighbour, by NDP"
	serverOfDHCP        = "send DHCP offers to a neighbour"
	tags                = "send frames with a VLAN tag to a neighbour"
	addressOfTheGateway = "send to a neighbour from the gateway's IP address"
	placeOfTheNeighbour = "get what is for a neighbour, by its MAC address"
	placeOfTheGateway   = "get what a neighbour sends to the gateway, by its MAC address"
)

var (
	all4          = netip.MustParseAddr("255.255.255.255")
	gateway4      = netip.MustParseAddr("10.7.0.1")
	gateway6      = netip.MustParseAddr("fd07::1")
	addressOfNode = netip.MustParseAddr(nodesOwn)
)

// scene is an attacker, its neighbour, and their gateway.
type scene struct {
	testing.TB
	pod, victim plug.Interface
	node        []string  // the node's devices that may receive frames of pods
	gateway     namespace // the namespace with the gateway's addresses
	iface       string    // the device with the gateway's addresses

	a, v, g *attacker
}

// play runs attacks in turn, those by MAC addresses last, and returns the successful ones.
func (s *scene) play(attacks ...string) []string {
	s.Helper()
	s.a, s.v = attack(s, namespace{s.pod.Netns}, s.pod.Name), attack(s, namespace{s.victim.Netns}, s.victim.Name)
	if s.iface != "" {
		s.g = attack(s, s.gateway, s.iface)
	}
	try := map[string]func() bool{
		routerOfTheNode: s.routerOfTheNode, heardByTheNode: s.heardByTheNode, packetsToTheNode: s.packetsToTheNode,
		broadcastsToTheNode: s.broadcastsToTheNode, routerOfNeighbours: s.routerOfNeighbours,
		gatewayByARP: s.gatewayByARP, gatewayByNDP: s.gatewayByNDP, serverOfDHCP: s.serverOfDHCP, tags: s.tags,
		addressOfTheGateway: s.addressOfTheGateway, placeOfTheNeighbour: s.placeOfTheNeighbour, placeOfTheGateway: s.placeOfTheGateway,
	}
	var can []string
	for _, name := range attacks {
		if try[name]() {
			can = append(can, name)
		}
	}
	return can
}

func never([]byte) bool { return false }

func (s *scene) routerOfTheNode() bool {
	s.a.provokes(frame.RouterAdvertisement(s.a.mac), never)
	out := sh(s, "ip", "-6", "route") + sh(s, "ip", "-6", "address")
	return strings.Contains(out, "2001:db8:bad") || strings.Contains(out, "default")
}

// nodeMACs returns the MAC addresses of the node's devices that the attacker may know.
func (s *scene) nodeMACs() []net.HardwareAddr {
	var all []net.HardwareAddr
	for _, name := range s.node {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, dev.HardwareAddr)
	}
	return all
}

func (s *scene) heardByTheNode() bool {
	nodeHas(s, nodesOwn)
	macs := s.nodeMACs()
	return s.a.hears(func() {
		s.a.send(frame.Echo6(frame.Multicast6(frame.AllNodes), s.a.mac, frame.LinkLocal(s.a.mac), frame.AllNodes))
		s.a.send(frame.ARP(frame.Request, frame.Broadcast, s.a.mac, s.pod.Addresses[0].Prefix.Addr(), addressOfNode))
		s.a.send(frame.ARP(frame.Request, frame.Broadcast, s.a.mac, netip.IPv4Unspecified(), addressOfNode))
		for _, mac := range macs {
			s.a.send(frame.Solicitation(s.a.mac, frame.LinkLocal(s.a.mac), frame.LinkLocal(mac)))
		}
	}, func(got []byte) bool {
		return slices.ContainsFunc(macs, func(mac net.HardwareAddr) bool { return from(mac)(got) })
	})
}

func (s *scene) packetsToTheNode() bool {
	conn := nodeHas(s, nodesOwn)
	to := netip.AddrPortFrom(addressOfNode, netip.MustParseAddrPort(conn.LocalAddr().String()).Port())
	return gets(s, conn, func() {
		for _, source := range []netip.Addr{s.pod.Addresses[0].Prefix.Addr(), gateway4, addressOfNode} {
			for _, mac := range append(s.nodeMACs(), frame.Broadcast) {
				s.a.send(frame.UDP(mac, s.a.mac, netip.AddrPortFrom(source, 1), to, nil))
			}
		}
	})
}

func (s *scene) broadcastsToTheNode() bool {
	conn, err := net.ListenPacket("udp4", "0.0.0.0:67")
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return gets(s, conn, func() {
		s.a.send(frame.UDP(frame.Broadcast, s.a.mac, netip.AddrPortFrom(netip.IPv4Unspecified(), 68), netip.AddrPortFrom(all4, 67), []byte("discover")))
	})
}

func (s *scene) routerOfNeighbours() bool {
	victim := namespace{s.victim.Netns}
	before := victim.run(s, "ip", "-6", "route", "show", "default")
	s.a.provokes(frame.RouterAdvertisement(s.a.mac), never)
	return strings.Contains(victim.run(s, "ip", "-6", "address"), "2001:db8:bad") || victim.run(s, "ip", "-6", "route", "show", "default") != before
}

// believes reports whether the victim sends to the attacker for an address that it has just used.
func (s *scene) believes(address netip.Addr, lie func()) bool {
	victim := namespace{s.victim.Netns}
	ping(s, victim, address.String())
	time.Sleep(1100 * time.Millisecond) // for this time Linux keeps the entry that it learnt before
	s.a.hears(lie, never)
	return strings.Contains(victim.run(s, "ip", "neigh", "show", address.String()), s.a.mac.String())
}

func (s *scene) gatewayByARP() bool {
	return s.believes(gateway4, func() {
		s.a.send(frame.ARP(frame.Reply, s.v.mac, s.a.mac, gateway4, s.victim.Addresses[0].Prefix.Addr()))
	})
}

func (s *scene) gatewayByNDP() bool {
	return s.believes(gateway6, func() {
		s.a.send(frame.Advertisement(s.v.mac, s.a.mac, gateway6, s.victim.Addresses[1].Prefix.Addr(), gateway6))
	})
}

// reaches reports whether the victim receives a frame of the attacker that contains a word.
func (s *scene) reaches(what []byte, word string) bool {
	return s.v.hears(func() { s.a.send(what) }, func(got []byte) bool { return bytes.Contains(got, []byte(word)) })
}

func (s *scene) serverOfDHCP() bool {
	server := netip.AddrPortFrom(s.pod.Addresses[0].Prefix.Addr(), 67)
	return s.reaches(frame.UDP(frame.Broadcast, s.a.mac, server, netip.AddrPortFrom(all4, 68), []byte("offer")), "offer")
}

func (s *scene) tags() bool {
	return s.reaches(frame.Tagged(frame.Ether(s.v.mac, s.a.mac, 0x88b5, []byte("with a tag, and long enough for a frame of Ethernet")), 5), "with a tag")
}

func (s *scene) addressOfTheGateway() bool {
	to := netip.AddrPortFrom(s.victim.Addresses[0].Prefix.Addr(), 9)
	return s.reaches(frame.UDP(s.v.mac, s.a.mac, netip.AddrPortFrom(gateway4, 9), to, []byte("by the gateway")), "by the gateway")
}

// gets reports whether the attacker receives a frame to another device's MAC address after
// claiming that address. by is the sender.
func (s *scene) gets(by *attacker, mac net.HardwareAddr) bool {
	ears := []*attacker{s.a}
	pod := namespace{s.pod.Netns}
	// A device of its own, if the kernel allows it: this is what NET_ADMIN is for.
	pod.do(s, func() error {
		script := fmt.Sprintf("ip link add link eth0 name evil type macvlan mode bridge && ip link set evil address %s && ip link set evil up", mac)
		if _, err := commandOutput("sh", "-c", script); err == nil {
			ears = append(ears, nil)
		}
		return nil
	})
	if len(ears) > 1 {
		ears[1] = attack(s, pod, "evil")
	}
	defer pod.do(s, func() error { _, _ = commandOutput("ip", "link", "del", "evil"); return nil })
	heard := false
	for _, ear := range ears {
		heard = ear.hears(func() {
			s.a.send(frame.Ether(frame.Broadcast, mac, 0x88b5, []byte("the address is mine, and this is long enough for Ethernet")))
			by.send(frame.Ether(mac, by.mac, 0x88b6, []byte("in confidence, and long enough for a frame of Ethernet")))
		}, func(got []byte) bool { return bytes.Contains(got, []byte("in confidence")) }) || heard
	}
	return heard
}

func (s *scene) placeOfTheNeighbour() bool { return s.gets(s.g, s.v.mac) }
func (s *scene) placeOfTheGateway() bool   { return s.gets(s.v, s.g.mac) }

var (
	onNode      = []string{routerOfTheNode, heardByTheNode, packetsToTheNode, broadcastsToTheNode}
	onNeighbour = []string{
		routerOfNeighbours, gatewayByARP, gatewayByNDP, serverOfDHCP, tags, addressOfTheGateway, placeOfTheNeighbour, placeOfTheGateway,
	}
)

func (s *scene) can(attacks, want []string) {
	s.Helper()
	if diff := cmp.Diff(want, s.play(attacks...)); diff != "" {
		s.Errorf("a pod with NET_RAW and NET_ADMIN can (-want +got):\n%s", diff)
	}
}

// gatewayPod returns a pod with the gateway's addresses.
func gatewayPod(t testing.TB, typ string) plug.Interface {
	p := pod(t, typ, 92, newNamespace(t))
	p.Addresses = []plug.Address{{Prefix: netip.PrefixFrom(gateway4, 16)}, {Prefix: netip.PrefixFrom(gateway6, 64)}}
	p.Routes = nil
	return p
}

// A Linux bridge is a plain switch: it does not protect neighbours from each other. The node
// accepts IPv4 packets to the bridge's own MAC address, because the replies of host ports need
// it.
func TestAttackOnABridge(t *testing.T) {
	d := bridges(t)
	s := &scene{TB: t, pod: pod(t, "bridge", 90, newNamespace(t)), victim: pod(t, "bridge", 91, newNamespace(t)), iface: "eth0"}
	gateway := gatewayPod(t, "bridge")
	s.gateway = namespace{gateway.Netns}
	for _, p := range []plug.Interface{s.pod, s.victim, gateway} {
		mustPlug(t, d, p)
	}
	s.node = []string{"br-test", plug.HostDevice(s.pod.PortID)}
	s.can(append(onNode, onNeighbour...), []string{
		packetsToTheNode, broadcastsToTheNode, gatewayByARP, gatewayByNDP, serverOfDHCP, tags, addressOfTheGateway, placeOfTheNeighbour, placeOfTheGateway,
	})
	mustCheck(t, d, s.victim)
}

// Independent of the SDN's port security, the node's own stack ignores packets on Open vSwitch's
// userspace data path. The kernel data path takes frames before the node's stack.
func TestAttackOnOpenVSwitch(t *testing.T) {
	v := newVswitch(t)
	d := v.driver(t)
	s := &scene{TB: t, pod: pod(t, "ovs", 90, newNamespace(t)), victim: pod(t, "ovs", 91, newNamespace(t))}
	for _, p := range []plug.Interface{s.pod, s.victim} {
		mustPlug(t, d, p)
		waited(t, d, p)
	}
	s.node = []string{plug.HostDevice(s.pod.PortID)}
	s.can(append(onNode, routerOfNeighbours), []string{broadcastsToTheNode})
}

// With OVN's port security, as Neutron's ports have it, and a security group that admits only the
// gateway, no attack succeeds.
func TestAttackOnOVN(t *testing.T) {
	v := newVswitch(t)
	v.startOVN(t)
	d := v.driver(t)
	s := &scene{TB: t, pod: pod(t, "ovs", 90, newNamespace(t)), victim: pod(t, "ovs", 91, newNamespace(t)), iface: "eth0"}
	gateway := gatewayPod(t, "ovs")
	s.gateway = namespace{gateway.Netns}
	v.nbctl(t, "ls-add", "net")
	for _, p := range []plug.Interface{s.pod, s.victim, gateway} {
		is := p.MAC.String() + " " + addr(p, 0) + " " + addr(p, 1)
		v.nbctl(t, "lsp-add", "net", p.PortID, "--", "lsp-set-addresses", p.PortID, is, "--", "lsp-set-port-security", p.PortID, is)
		v.nbctl(t, "acl-add", "net", "from-lport", "1002", `inport=="`+p.PortID+`" && ip`, "allow-related")
		v.nbctl(t, "acl-add", "net", "to-lport", "1001", `outport=="`+p.PortID+`" && ip`, "drop")
		mustPlug(t, d, p)
		waited(t, d, p)
	}
	v.nbctl(t, "acl-add", "net", "to-lport", "1002", `outport=="`+s.victim.PortID+`" && (ip4.src==10.7.0.1 || ip6.src==fd07::1)`, "allow-related")
	v.nbctl(t, "acl-add", "net", "to-lport", "1002", `outport=="`+gateway.PortID+`" && ip`, "allow-related")
	s.node = []string{plug.HostDevice(s.pod.PortID)}
	s.can(append(onNode, onNeighbour...), []string{broadcastsToTheNode})
	mustCheck(t, d, s.victim)
}

// Pods of one virtual machine are on the kernel's own switch, outside of the SDN.
func TestAttackOnMacvlan(t *testing.T) {
	vm := newVirtualMachine(t, "macvlan", "nic0")
	s := &scene{TB: t, pod: vm.pod(t, 90, newNamespace(t)), victim: vm.pod(t, 91, newNamespace(t)), gateway: vm.outside, iface: "nic0-far"}
	for _, p := range []plug.Interface{s.pod, s.victim} {
		mustPlug(t, vm.driver, p)
	}
	s.node = []string{"nic0"}
	s.can(append(onNode, onNeighbour...), []string{gatewayByARP, gatewayByNDP, serverOfDHCP, tags, addressOfTheGateway, placeOfTheGateway})
	mustCheck(t, vm.driver, s.victim)
}

// Outside of the node, a pod's packets carry its subport's VLAN ID as the outer one. So the SDN
// handles them as that port's packets. The SDN must protect neighbours, also those of the same
// machine.
func TestAttackOnVLAN(t *testing.T) {
	vm := newVirtualMachine(t, "vlan", "nic0")
	s := &scene{TB: t, pod: vm.pod(t, 90, newNamespace(t)), victim: vm.pod(t, 91, newNamespace(t))}
	for _, p := range []plug.Interface{s.pod, s.victim} {
		mustPlug(t, vm.driver, p)
	}
	s.node = []string{"nic0"}
	s.can(append(onNode, routerOfNeighbours), nil)
	others := attack(t, vm.outside, fmt.Sprintf("sub%d", s.victim.VLANID))
	lie := frame.Tagged(frame.Ether(frame.Broadcast, s.a.mac, 0x88b5, []byte("with a neighbour's tag, and long enough for Ethernet")), uint16(s.victim.VLANID))
	if others.hears(func() { s.a.send(lie) }, func(got []byte) bool { return bytes.Contains(got, []byte("neighbour's tag")) }) {
		t.Error("a pod's frame has come out with a neighbour's VLAN ID")
	}
}
