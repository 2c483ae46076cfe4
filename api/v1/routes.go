// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"cmp"
	"fmt"
	"net/netip"
)

// MaxRoutes is the number of routes that a KuryrPort can have. Pods do not get the rest: Neutron
// takes 20 of a subnet, unless max_subnet_host_routes is raised.
const MaxRoutes = 64

// PodRoutes returns the routes of v that a pod gets, and why it does not get the others. Neutron
// accepts host routes that Linux refuses, or that would cut off the gateway. Such a route must not
// keep pods from starting. A returned gateway is empty if the destination is on the link: RFC 3442
// writes that as next hop 0.0.0.0.
func (v *VIF) PodRoutes() (routes []Route, leftOut []string) {
	via := map[netip.Prefix]netip.Addr{}
	for _, r := range v.Routes {
		to, _ := netip.ParsePrefix(r.Destination)
		hop, _ := netip.ParseAddr(r.Gateway)
		to = to.Masked()
		first, again := via[to]
		switch why := v.unusable(to, hop); {
		case why == "" && !again:
			via[to] = hop
			if hop.IsUnspecified() {
				routes = append(routes, Route{Destination: to.String()})
			} else {
				routes = append(routes, Route{Destination: to.String(), Gateway: hop.String()})
			}
		case why == "" && first == hop || why == needless: // nobody has to correct that
		default:
			leftOut = append(leftOut, fmt.Sprintf("the route to %s by %s: %s", r.Destination, r.Gateway, cmp.Or(why, "another route has that destination")))
		}
	}
	return routes, leftOut
}

const needless = "the pod needs no such route"

// unusable returns why a pod gets no such route; empty if it gets the route.
func (v *VIF) unusable(to netip.Prefix, hop netip.Addr) string {
	switch {
	case !to.IsValid() || !hop.IsValid() || to.Addr().Is4() != hop.Is4():
		return "destination and next hop are not addresses of one IP family"
	case hop.IsMulticast() || hop.IsLoopback() || hop == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the next hop is not the address of a router"
	}
	for _, a := range v.Addresses {
		ip, _ := netip.ParseAddr(a.IP)
		subnet, _ := ip.Prefix(int(a.PrefixLength))
		switch {
		case hop == ip || to == subnet && hop.IsUnspecified(): // it is the router, or has the route by its address
			return needless
		case to == subnet:
			return "the destination is the subnet itself, which is on the link"
		case hop.Is4() && subnet.Contains(hop) && subnet.Bits() < 31 && !hop.IsUnspecified() && (hop == subnet.Addr() || !subnet.Contains(hop.Next())):
			return "the next hop is the network or broadcast address of the subnet"
		}
	}
	return ""
}
