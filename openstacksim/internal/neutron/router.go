// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// router is a router. Its interfaces and its gateway are ports with its ID.
type router struct {
	standard
	Name                  string      `json:"name"`
	AdminStateUp          bool        `json:"admin_state_up"`
	Status                string      `json:"status"`
	Gateway               *gateway    `json:"external_gateway_info"`
	AvailabilityZones     []string    `json:"availability_zones"`
	AvailabilityZoneHints []string    `json:"availability_zone_hints"`
	Routes                []hostRoute `json:"routes"`

	// Neutron 21 does not have the others with ML2/OVN.
	ExternalGateways []onlyGateway `json:"external_gateways"` // only in answers
	FlavorID         *string       `json:"flavor_id"`         // always null
	HA               bool          `json:"ha"`                // always true
	BFD              bool          `json:"enable_default_route_bfd"`
	ECMP             bool          `json:"enable_default_route_ecmp"`

	gatewayPort string
}

// onlyGateway is a gateway in the list of a router's gateways. The simulator has one at most.
type onlyGateway struct {
	NetworkID string    `json:"network_id"`
	FixedIPs  []fixedIP `json:"external_fixed_ips"`
}

// gateway is a router's external gateway.
type gateway struct {
	NetworkID  string    `json:"network_id"`
	FixedIPs   []fixedIP `json:"external_fixed_ips"`
	EnableSNAT bool      `json:"enable_snat"`
	QoSPolicy  *string   `json:"qos_policy_id,omitempty"`
}

func (s *Service) registerRouters() {
	s.routers = &kind[router]{
		one: "router", many: "routers", title: "Router", lost: showsNothing,
		create: createRouter, update: updateRouter, remove: removeRouter, view: viewRouter,
		missing: func(id string) *fault {
			return refuse(http.StatusNotFound, "RouterNotFound", "Router %s could not be found", id)
		},
	}
	register(s, s.routers)
	s.action(http.MethodPut, "/routers/{id}/add_router_interface", addInterface)
	s.action(http.MethodPut, "/routers/{id}/remove_router_interface", removeInterface)
}

// viewRouter returns a router for an answer.
func viewRouter(c *call, r *router) *router {
	if !c.Later {
		return r
	}
	shown := *r
	shown.HA, shown.ExternalGateways = true, []onlyGateway{}
	if g := r.Gateway; g != nil {
		shown.ExternalGateways = append(shown.ExternalGateways, onlyGateway{g.NetworkID, g.FixedIPs})
	}
	return &shown
}

func badRouter(format string, args ...any) *fault {
	f := refuse(http.StatusBadRequest, "BadRequest", format, args...)
	f.message = "Bad router request: " + f.message + "."
	return f
}

// createRouter completes a new router (neutron 21.0.0: db/l3_db.py).
func createRouter(c *call, r *router, in values) *fault {
	if hints := in.list("availability_zone_hints"); len(hints) > 0 {
		return noZone(hints)
	}
	r.AvailabilityZones, r.AvailabilityZoneHints, r.Routes = []string{}, []string{}, []hostRoute{}
	r.Status, r.Gateway = "ACTIVE", nil
	if in.has("flavor_id") {
		return refuse(404, "FlavorNotFound", "Flavor %s could not be found.", in.text("flavor_id"))
	}
	if c.Later {
		r.RevisionNumber = 1 // the writes to a table of further attributes
	}
	if info := in.object("external_gateway_info"); len(info) > 0 {
		if f := c.setGateway(r, info); f != nil {
			return f
		}
		r.RevisionNumber = 2 // one for the port, one for the router's reference to it
	}
	return nil
}

// updateRouter checks a change. A gateway is written separately from the router. Adding one
// counts as one more change, removing it as two (observed on Neutron 21.0.0).
func updateRouter(c *call, r, old *router, in values) *fault {
	if in.given("routes") {
		if f := c.checkRoutes(r, nil, nil); f != nil {
			return f
		}
	}
	if !in.given("external_gateway_info") {
		return nil
	}
	r.Gateway = old.Gateway
	if f := c.setGateway(r, in.object("external_gateway_info")); f != nil {
		return f
	}
	counted := *r
	counted.Gateway, counted.gatewayPort, counted.RevisionNumber = old.Gateway, old.gatewayPort, old.RevisionNumber
	c.aside(r, old, equal(&counted, old) && r.translates() == old.translates())
	return nil
}

// translates reports whether the router translates addresses. Neutron keeps that if there is no
// gateway, with true as the default.
func (r *router) translates() bool { return r.Gateway == nil || r.Gateway.EnableSNAT }

// removeRouter refuses while the router has interfaces. Its gateway is removed with it.
func removeRouter(c *call, r *router) *fault {
	var ifaces []string
	for _, p := range c.ifaces(r.ID) {
		if p.DeviceOwner == ownerRouter {
			ifaces = append(ifaces, p.ID)
		}
	}
	if len(ifaces) > 0 {
		return conflict("RouterInUse", "Router %s has ports still attached: %s", r.ID, strings.Join(ifaces, ", "))
	}
	return c.dropGateway(r)
}

// ifaces returns the ports of a router, ordered by ID.
func (c *call) ifaces(id string) []*port {
	var out []*port
	for p := range c.ports.rows.All() {
		if p.DeviceID == id && (p.DeviceOwner == ownerRouter || p.DeviceOwner == ownerGateway) {
			out = append(out, p)
		}
	}
	return out
}

// setGateway sets the gateway that info asks for, or removes it (neutron 21.0.0: db/l3_db.py,
// _update_router_gw_info).
func (c *call) setGateway(r *router, info map[string]any) *fault {
	id, _ := info["network_id"].(string)
	wanted, _ := info["external_fixed_ips"].([]any)
	if id == "" {
		if r.Gateway != nil {
			r.RevisionNumber += 2
		}
		return c.dropGateway(r)
	}
	net, f := c.networks.find(c, id)
	if f != nil {
		return f
	}
	if f := c.gatewayWrong(r, net, wishes(wanted)); f != nil {
		return f
	}
	snat := true
	if v, given := info["enable_snat"].(bool); given {
		snat = v
	}
	same := r.Gateway != nil && r.Gateway.NetworkID == net.ID
	if same && (len(wanted) == 0 || sameAddresses(r.Gateway.FixedIPs, wishes(wanted))) {
		g := *r.Gateway
		g.EnableSNAT = snat
		r.Gateway = &g
		return nil
	}
	if !same && r.Gateway != nil {
		if f := c.dropGateway(r); f != nil {
			return f
		}
		c.stays(func() { c.withoutGateway(r.ID) })
	}
	return c.makeGateway(r, net, wishes(wanted), snat, same)
}

// gatewayWrong checks a gateway against its network and the router's routes.
func (c *call) gatewayWrong(r *router, net *network, wanted []wish) *fault {
	if !net.External {
		return badRouter("Network %s is not an external network", net.ID)
	}
	var cidrs []netip.Prefix
	for _, s := range c.subnetsOf(net.ID) {
		cidrs = append(cidrs, s.prefix())
		for _, w := range wanted {
			if s.GatewayIP != nil && w.address == *s.GatewayIP {
				return badRouter("External IP %s is the same as the gateway IP", w.address)
			}
		}
	}
	if len(r.Routes) == 0 {
		return nil
	}
	ifaces, ips := c.reach(r, r.gatewayPort)
	return c.checkRoutes(r, append(cidrs, ifaces...), ips)
}

// sameAddresses reports whether a gateway has the wanted subnets and addresses.
func sameAddresses(have []fixedIP, wanted []wish) bool {
	subnets, addresses := map[string]bool{}, map[string]bool{}
	for _, w := range wanted {
		if w.subnet != "" {
			subnets[w.subnet] = true
		}
		if w.address != "" {
			addresses[w.address] = true
		}
	}
	for _, ip := range have {
		if !subnets[ip.SubnetID] || !addresses[ip.IPAddress] {
			return false
		}
	}
	return len(subnets) > 0 && len(addresses) == len(have)
}

// makeGateway makes the gateway's port, or moves the existing port to other addresses.
func (c *call) makeGateway(r *router, net *network, wanted []wish, snat, moved bool) *fault {
	if len(wanted) == 0 {
		wanted = nil
	}
	if f := c.overlaps(r, c.subnetsOf(net.ID), moved); f != nil {
		return f
	}
	old := r.gatewayPort
	if moved { // Neutron changes the port; the simulator keeps only its ID
		if f := c.dropPort(old); f != nil {
			return f
		}
	} else {
		r.RevisionNumber++
	}
	p, f := c.newPort(portSpec{NetworkID: net.ID, DeviceID: r.ID, DeviceOwner: ownerGateway, Addresses: wanted})
	if f != nil {
		return f
	}
	if moved {
		same := p.copied()
		same.ID = old
		c.ports.drop(c, p.ID)
		c.ports.put(c, same)
		p = same
	}
	r.gatewayPort = p.ID
	r.Gateway = &gateway{NetworkID: net.ID, FixedIPs: p.FixedIPs, EnableSNAT: snat}
	return nil
}

// dropGateway removes a router's gateway, unless floating IPs need it.
func (c *call) dropGateway(r *router) *fault {
	if r.Gateway == nil {
		return nil
	}
	for fip := range c.floatingIPs.rows.All() {
		if fip.RouterID != nil && *fip.RouterID == r.ID {
			c.translateAgain(r.ID)
			return conflict("RouterExternalGatewayInUseByFloatingIp",
				"Gateway cannot be updated for router %s, since a gateway to external network %s is required by one or more floating IPs.", r.ID, r.Gateway.NetworkID)
		}
	}
	if f := c.dropPort(r.gatewayPort); f != nil {
		return f
	}
	r.Gateway, r.gatewayPort = nil, ""
	return nil
}

// translateAgain sets enable_snat to its default for a refused removal of the gateway. Neutron
// does so before it refuses, and does not undo it (observed on Neutron 21.0.0).
func (c *call) translateAgain(id string) {
	c.stays(func() {
		old, ok := c.routers.rows.Get(id)
		if !ok || old.Gateway == nil || old.Gateway.EnableSNAT {
			return
		}
		r, g := *old, *old.Gateway
		g.EnableSNAT, r.Gateway = true, &g
		r.touch(c)
		c.routers.store(&r)
	})
}

// withoutGateway leaves a router without a gateway if the one in another network is refused. Neutron
// deletes the first before it makes the second, in no common transaction (neutron 21.0.0:
// db/l3_db.py, _update_router_gw_info).
func (c *call) withoutGateway(id string) {
	if old, ok := c.routers.rows.Get(id); ok {
		r := *old
		if c.dropGateway(&r) == nil {
			r.touch(c)
			c.routers.store(&r)
		}
	}
}

// maxExtraRoutes is Neutron's default (neutron 21.0.0: conf/db/extraroute_db.py).
const maxExtraRoutes = 30

// checkRoutes checks that the next hops are on networks of the router. Without cidrs it looks up
// the router's networks itself (neutron 21.0.0: db/extraroute_db.py).
func (c *call) checkRoutes(r *router, cidrs []netip.Prefix, ips []string) *fault {
	if len(r.Routes) > maxExtraRoutes {
		return refuse(400, "RoutesExhausted", "Unable to complete operation for %s. The number of routes exceeds the maximum %d.", r.ID, maxExtraRoutes)
	}
	if cidrs == nil {
		cidrs, ips = c.reach(r, "")
	}
	for _, route := range r.Routes {
		hop, _ := parseAddress(route.NextHop)
		reason := ""
		switch {
		case !slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Contains(hop) }):
			reason = "the nexthop is not connected with router"
		case slices.Contains(ips, route.NextHop):
			reason = "the nexthop is used by router"
		}
		if reason != "" {
			return refuse(400, "InvalidRoutes", "Invalid format for routes: %s, %s", showRoutes(r.Routes), reason)
		}
	}
	return nil
}

func showRoutes(routes []hostRoute) string {
	list := make([]any, len(routes))
	for i, r := range routes {
		list[i] = map[string]any{"destination": r.Destination, "nexthop": r.NextHop}
	}
	return repr(list)
}

// reach returns the networks of a router and its own addresses there, without those of the port
// except.
func (c *call) reach(r *router, except string) (cidrs []netip.Prefix, ips []string) {
	cidrs = []netip.Prefix{}
	for _, p := range c.ifaces(r.ID) {
		if p.ID == except {
			continue
		}
		for _, ip := range p.FixedIPs {
			if s, ok := c.subnets.rows.Get(ip.SubnetID); ok {
				cidrs, ips = append(cidrs, s.prefix()), append(ips, ip.IPAddress)
			}
		}
	}
	return cidrs, ips
}
