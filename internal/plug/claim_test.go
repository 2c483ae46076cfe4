// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"encoding/hex"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/plug"
)

// A pod with CAP_NET_ADMIN may change its interface in any way. The next pod sees the same as the
// first one, and so does the parking.
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

// settled waits until the kernel has made eth0's own address, which it does in the background.
func settled(t testing.TB, ns namespace) {
	t.Helper()
	eventually(t, "eth0's own address", func() bool {
		out := ns.run(t, "ip", "address", "show", "scope", "link")
		return strings.Contains(out, "fe80") && !strings.Contains(out, "tentative")
	})
}

// seen returns everything that is visible of eth0 from inside.
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

// A pod that enables allmulticast on its interface, as bridges do, may leave that flag on the far
// end. The parking notices it.
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

// Invariant 3: a call may be interrupted between any two steps. The port still gets to its pod,
// out of it, and back into the parking, and nothing else is left.
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

// An unmarked pair does not name its port. The next daemon removes it. Marked pairs stay.
func TestNamelessPairsGo(t *testing.T) {
	l := newLot(t)
	t.Cleanup(func() { removeDevice("br-park") })
	c := plug.Config{Bridge: "br-park", Parking: l.path}
	s := plug.New(c)
	stays, goes := pod(t, "bridge", 1, newNamespace(t)), pod(t, "bridge", 2, newNamespace(t))
	park(t, s, l, stays)
	park(t, s, l, goes)
	sh(t, "ip", "link", "set", plug.HostDevice(goes.PortID), "alias", "")
	parked(t, s, goes, false)
	s.Close()
	s = plug.New(c)
	t.Cleanup(s.Close)
	parked(t, s, goes, false)
	if hasDevice(t, plug.HostDevice(goes.PortID)) {
		t.Error("it is still there")
	}
	parked(t, s, stays, true)
}

// The bridge sends no packet for an earlier pod to the port of the next one.
func TestBridgeForgetsThePod(t *testing.T) {
	l := newLot(t)
	t.Cleanup(func() { removeDevice("br-park") })
	s := plug.New(plug.Config{Bridge: "br-park", Parking: l.path})
	d, a := driver(t, s, "bridge"), newNamespace(t)
	p, other := pod(t, "bridge", 1, a), pod(t, "bridge", 2, newNamespace(t))
	park(t, s, l, p)
	park(t, s, l, other)
	remembered := func(p plug.Interface) string {
		name := plug.HostDevice(p.PortID)
		seen := sh(t, "bridge", "fdb", "show", "brport", name, "dynamic")
		lines := strings.Split(sh(t, "bridge", "-d", "mdb", "show", "dev", "br-park"), "\n")
		return seen + strings.Join(slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, name) }), "\n")
	}
	before := remembered(p)
	mustPlug(t, d, p)
	mustPlug(t, d, other)
	a.do(t, func() error {
		c, err := net.ListenMulticastUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(239, 1, 2, 3), Port: 5})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := send("eth0", "ffffffffffff 020000000066 88b5"); err != nil {
			return err
		} // And a query of IGMPv2, as routers send them:
		return send("eth0", "01005e000001 020000000066 0800 4500001c000000000102cfd50a070003e0000001 1164ee9b00000000")
	})
	eventually(t, "the bridge to take note of the pod", func() bool {
		got := remembered(p)
		return strings.Contains(got, "02:00:00:00:00:66") && strings.Contains(got, "239.1.2.3") && strings.Contains(got, "router")
	})
	eventually(t, "the bridge to take note of the other pod", func() bool { return strings.Contains(remembered(other), "ff02") })
	mustUnplug(t, d, p)
	parked(t, s, p, true)
	if diff := cmp.Diff(before, remembered(p)); diff != "" {
		t.Errorf("what the bridge remembers (-before +after the pod):\n%s", diff)
	}
	if got := remembered(other); !strings.Contains(got, "ff02") {
		t.Errorf("what the bridge remembers of another pod: %s", got)
	}
}

// send sends an Ethernet frame on a device of the calling thread's namespace.
func send(device, frame string) error {
	b, err := hex.DecodeString(strings.ReplaceAll(frame, " ", ""))
	if err != nil {
		return err
	}
	i, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Sendto(fd, append(b, make([]byte, 60)...), 0, &unix.SockaddrLinklayer{Ifindex: i.Index, Halen: 6})
}
