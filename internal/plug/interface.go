// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// ErrInvalid: the interface cannot be plugged as described, and a repeated call fails, too.
var ErrInvalid = errors.New("invalid interface")

var (
	typeRE      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	portIDRE    = regexp.MustCompile(`^[A-Za-z0-9][-_.A-Za-z0-9]{0,63}$`)
	containerRE = regexp.MustCompile(`^[A-Za-z0-9][-_.A-Za-z0-9]{0,127}$`)
	// The kernel accepts nearly every other name, too. But it reads % as a template, and
	// ifconfig(8) reads : as an alias.
	deviceRE = regexp.MustCompile(`^[^/:%\s\x00-\x1f\x7f]{1,15}$`)
)

const (
	minMTU     = 68     // RFC 791: every link must carry it
	minMTUv6   = 1280   // RFC 8200; below it the kernel has no IPv6 on a device
	maxMTUVeth = 65_535 // the kernel's limit for veth
)

// HostDevice returns the name of the node's end of the port's device pair: tap and the first
// eleven characters of the port's ID. OpenStack's agents use the same form, so that the name
// shows on the node which port it is.
func HostDevice(portID string) string {
	return "tap" + portID[:min(len(portID), 11)]
}

// HardwareAddr returns the MAC address of the sandbox's end: i.MAC, or a locally administered
// address if i.MAC is empty. That address is derived from the port's ID alone. So it need not be
// stored, and is the same after any interruption. It also moves with the port to another sandbox,
// so neighbours still find it. An address of the kernel's choice would change each time.
func (i Interface) HardwareAddr() net.HardwareAddr {
	if len(i.MAC) > 0 {
		return i.MAC
	}
	const local, multicast = 2, 1
	sum := sha256.Sum256([]byte("kuryr MAC address of " + i.PortID))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^multicast | local
	return mac
}

// checkIdentity returns an error unless i has valid values for everything that unplug needs.
func (i Interface) checkIdentity() error {
	switch {
	case !portIDRE.MatchString(i.PortID):
		return fmt.Errorf("port ID %q: %w", i.PortID, ErrInvalid)
	case !containerRE.MatchString(i.ContainerID):
		return fmt.Errorf("container ID %q: %w", i.ContainerID, ErrInvalid)
	}
	return nil
}

// check returns an error if i cannot be plugged.
func (i Interface) check() error {
	if err := i.checkIdentity(); err != nil {
		return err
	}
	switch {
	case !deviceName(i.Name):
		return fmt.Errorf("name %q of the interface: %w", i.Name, ErrInvalid)
	case i.Bridge != "" && !deviceName(i.Bridge):
		return fmt.Errorf("name %q of the bridge: %w", i.Bridge, ErrInvalid)
	case len(i.MAC) != 0 && (len(i.MAC) != 6 || i.MAC[0]&1 == 1 || i.MAC.String() == "00:00:00:00:00:00"):
		return fmt.Errorf("MAC address %q: %w", i.MAC, ErrInvalid)
	case i.MTU != 0 && (i.MTU < minMTU || i.MTU > maxMTUVeth):
		return fmt.Errorf("MTU of %d bytes: %w", i.MTU, ErrInvalid)
	}
	if err := i.checkType(); err != nil {
		return err
	}
	return i.checkAddresses()
}

// checkType returns what a port of its type lacks.
func (i Interface) checkType() error {
	switch {
	case i.Type == "ovs" && i.Hybrid:
		return fmt.Errorf("port %s: %w", i.PortID, errHybrid)
	case (i.Type == "ovs" || i.Type == "macvlan") && len(i.MAC) == 0:
		return fmt.Errorf("port %s has no MAC address, and the SDN passes only the traffic of the port's own: %w", i.PortID, ErrInvalid)
	case i.Type == "vlan" && (i.VLANID < 1 || i.VLANID > 4094):
		return fmt.Errorf("VLAN ID %d of port %s, want 1 to 4094: %w", i.VLANID, i.PortID, ErrInvalid)
	}
	return nil
}

func (i Interface) checkAddresses() error {
	for _, a := range i.Addresses {
		addr := a.Prefix.Addr()
		if !a.Prefix.IsValid() || addr.Is4In6() || addr.IsMulticast() || addr.IsUnspecified() || addr.IsLoopback() {
			return fmt.Errorf("address %s: %w", a.Prefix, ErrInvalid)
		}
		if a.Gateway.IsValid() && a.Gateway.Is4() != addr.Is4() {
			return fmt.Errorf("gateway %s of %s: %w", a.Gateway, a.Prefix, ErrInvalid)
		}
	}
	for _, r := range i.Routes {
		if !r.Destination.IsValid() || r.Gateway.IsValid() && r.Gateway.Is4() != r.Destination.Addr().Is4() {
			return fmt.Errorf("route to %s by %s: %w", r.Destination, r.Gateway, ErrInvalid)
		}
	}
	return nil
}

// deviceName reports whether a device may have this name. all and default are names of folders
// that stand for every device under /proc/sys/net.
func deviceName(s string) bool {
	return deviceRE.MatchString(s) && s != "." && s != ".." && s != "all" && s != "default" && s != "lo"
}

func (i Interface) hasIPv6() bool {
	return slices.ContainsFunc(i.Addresses, func(a Address) bool { return a.Prefix.Addr().Is6() })
}

// Hop is one complete route of the sandbox.
type Hop struct {
	Destination netip.Prefix
	Gateway     netip.Addr // invalid: the destination is on the link
	OnLink      bool       // the gateway is in none of i's subnets, but still on the link
}

// Hops returns the routes of i's sandbox, in addition to those of the addresses. A default route
// among i.Routes wins over the subnets' gateways, as for a DHCP client (RFC 3442). Without
// i.Default there is no default route.
func (i Interface) Hops() []Hop {
	var hops []Hop
	done := map[netip.Prefix]bool{}
	add := func(destination netip.Prefix, gateway netip.Addr) {
		destination = destination.Masked()
		if done[destination] || destination.Bits() == 0 && !i.Default {
			return
		}
		done[destination] = true
		hops = append(hops, Hop{destination, gateway, gateway.IsValid() && !i.onLink(gateway)})
	}
	for _, r := range i.Routes {
		add(r.Destination, r.Gateway)
	}
	for _, a := range i.Addresses {
		if a.Gateway.IsValid() {
			add(netip.PrefixFrom(unspecified(a.Gateway), 0), a.Gateway)
		}
	}
	return hops
}

// onLink reports whether the kernel reaches a directly: by a subnet of i, or by its scope.
func (i Interface) onLink(a netip.Addr) bool {
	return a.Is6() && a.IsLinkLocalUnicast() || slices.ContainsFunc(i.Addresses, func(own Address) bool { return own.Prefix.Contains(a) })
}

func unspecified(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// mark is the alias of the node's end. It names the owner, outlives the daemon, and is visible in
// "ip link".
//
// on is set when the sandbox's device is on top of the far end, which stays parked: see Parking.
type mark struct {
	port, sandbox, name string
	on                  bool
}

const (
	markWord = "kuryr"
	markOn   = " on=" + parkingName
)

func markOf(i Interface) mark { return mark{port: i.PortID, sandbox: i.ContainerID, name: i.Name} }

// is reports whether the device belongs to i, as a pair of its own or on top of a parked one.
func (m mark) is(i Interface) bool { m.on = false; return m == markOf(i) }

func (m mark) String() string {
	s := fmt.Sprintf("%s port=%s sandbox=%s interface=%s", markWord, m.port, m.sandbox, m.name)
	if m.on {
		s += markOn
	}
	return s
}

// parseMark parses the output of String, and nothing else.
func parseMark(alias string) (mark, bool) {
	alias, on := strings.CutSuffix(alias, markOn)
	word := strings.Split(alias, " ")
	if len(word) != 4 || word[0] != markWord {
		return mark{}, false
	}
	port, ok1 := strings.CutPrefix(word[1], "port=")
	sandbox, ok2 := strings.CutPrefix(word[2], "sandbox=")
	name, ok3 := strings.CutPrefix(word[3], "interface=")
	m := mark{port, sandbox, name, on}
	ok := ok1 && ok2 && ok3 && portIDRE.MatchString(port) && containerRE.MatchString(sandbox) && deviceName(name)
	if !ok {
		return mark{}, false
	}
	return m, true
}
