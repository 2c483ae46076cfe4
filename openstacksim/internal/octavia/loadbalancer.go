// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"net/netip"
	"slices"
)

func (c *call) routeLoadBalancers(rest []string) *controller {
	if len(rest) == 0 {
		return &controller{
			get: c.listLoadBalancers, extra: true, remove: lacking("id"),
			post: &bodied{argument: "load_balancer", root: "LoadBalancerRootPOST", do: c.createLoadBalancer},
			put:  &bodied{argument: "load_balancer", root: "LoadBalancerRootPUT", need: "id"},
		}
	}
	id := rest[0]
	if len(rest) > 1 {
		switch rest[1] {
		case "status", "statuses":
			return &controller{get: func() (answer, *fault) { return c.statusOf(id) }}
		case "stats":
			return &controller{get: func() (answer, *fault) { return c.statsOf(id) }}
		case "failover":
			return &controller{put: &bodied{do: func(values) (answer, *fault) { return c.failOver(id) }}}
		}
	}
	return &controller{
		get: func() (answer, *fault) {
			lb, bad := c.loadBalancer(id, mayRead)
			if bad != nil {
				return answer{}, bad
			}
			return c.one("loadbalancer", c.viewLoadBalancer(lb), rest)
		}, extra: true,
		post:   misplaced("load_balancer", "LoadBalancerRootPOST", id),
		put:    &bodied{argument: "load_balancer", root: "LoadBalancerRootPUT", do: func(in values) (answer, *fault) { return c.updateLoadBalancer(id, in) }},
		remove: func() (answer, *fault) { return c.deleteLoadBalancer(id) },
		names:  []string{"cascade"},
	}
}

// one answers with one object. Octavia takes the rest of the path after the ID for the requested
// fields.
func (c *call) one(name string, r record, rest []string) (answer, *fault) {
	if len(rest) > 1 {
		for field := range r {
			if field != rest[1] {
				delete(r, field)
			}
		}
	}
	return answer{200, record{name: c.pick(r)}}, nil
}

// loadBalancer returns a load balancer that is not deleted, if the caller has the right.
func (c *call) loadBalancer(id string, r right) (*loadBalancer, *fault) {
	lb, ok := c.loadBalancers.Get(id)
	if !ok || lb.ProvisioningStatus == deleted {
		return nil, notFound("Load Balancer", id)
	}
	return lb, c.allow(r, lb.ProjectID)
}

// parent returns the load balancer of a new child. It may be deleted already; then it is reported
// as immutable, not as missing.
func (c *call) parent(in values, name string) (*loadBalancer, *fault) {
	id := str(in[name])
	if lb, ok := c.loadBalancers.Get(id); ok {
		return lb, c.allow(mayWrite, lb.ProjectID)
	}
	return nil, notFound("Load Balancer", id)
}

func (c *call) listLoadBalancers() (answer, *fault) {
	project, bad := c.scope(mayRead, mayReadAll)
	if bad != nil {
		return answer{}, bad
	}
	return list(c, c.loadBalancers, "loadbalancers", project, func(lb *loadBalancer) bool { return lb.ProvisioningStatus != deleted }, c.viewLoadBalancer)
}

func (c *call) createLoadBalancer(body values) (answer, *fault) {
	in, bad := below(body, "loadbalancer", "project_id")
	if bad != nil {
		return answer{}, bad
	}
	lb := &loadBalancer{AdditionalVIPs: []additionalVIP{}, VIPVNICType: "normal"}
	if bad = c.prepare(lb, in); bad != nil {
		return answer{}, bad
	}
	provider, bad := c.choose(lb, in)
	if bad != nil {
		return answer{}, bad
	}
	if c.overQuota("load_balancer", lb.ProjectID, 1) {
		return answer{}, quotaMet("Load Balancer")
	}
	if tags := in.texts("tags"); len(slices.Compact(slices.Sorted(slices.Values(tags)))) < len(tags) {
		return answer{}, refuse(409, "Already an entity with that specified id.")
	}
	if bad = c.zoneAccepts(provider, lb); bad != nil {
		return answer{}, bad
	}
	// The port is made before the children are checked. If one of them is refused, Octavia leaves
	// the port: nothing in ovn-octavia-provider 3.0.0 removes it.
	if bad = provider.vip(c, lb); bad != nil {
		return answer{}, bad
	}
	if c.death == RolledBack {
		return answer{status: 201}, nil
	}
	if bad = c.populate(provider, lb, in); bad != nil {
		return answer{}, bad
	}
	return answer{201, record{"loadbalancer": c.fullLoadBalancer(lb)}}, nil
}

// prepare sets the fields of lb, except its provider and its port.
func (c *call) prepare(lb *loadBalancer, in values) *fault {
	project := in.text("project_id")
	if in.given("tenant_id") {
		project = in.text("tenant_id")
	}
	if project == "" {
		project = c.who.ProjectID
	}
	if project == "" {
		return invalid("Missing project ID in request where one is required. " +
			"An administrator should check the keystone settings in the Octavia configuration.")
	}
	if bad := c.allow(mayWrite, project); bad != nil {
		return bad
	}
	if bad := c.place(lb, in); bad != nil {
		return bad
	}
	b := c.fresh(project)
	address, subnet := lb.VIPAddress, lb.VIPSubnetID
	network := lb.VIPNetworkID
	lb.base = b
	apply(lb, in.without("project_id", "tenant_id"))
	lb.VIPAddress, lb.VIPSubnetID, lb.VIPNetworkID = address, subnet, network
	if lb.Tags == nil {
		lb.Tags = []string{}
	}
	if lb.AdditionalVIPs == nil {
		lb.AdditionalVIPs = []additionalVIP{}
	}
	if lb.VIPGroups == nil {
		lb.VIPGroups = []string{}
	}
	return nil
}

// place finds the network, subnet and address of the VIP: octavia 11.0.0,
// api/v2/controllers/load_balancer.py, _validate_vip_request_object.
func (c *call) place(lb *loadBalancer, in values) *fault {
	lb.VIPAddress = in.text("vip_address")
	lb.VIPSubnetID = in.text("vip_subnet_id")
	lb.VIPNetworkID = in.text("vip_network_id")
	var bad *fault
	switch {
	case in.text("vip_port_id") != "":
		bad = c.placeByPort(lb, in.text("vip_port_id"))
	case lb.VIPNetworkID != "":
		bad = c.placeByNetwork(lb)
	case lb.VIPSubnetID != "":
		network, known := c.subnet(lb.VIPSubnetID)
		if !known {
			return refuse(400, "Subnet %s not found.", lb.VIPSubnetID)
		}
		lb.VIPNetworkID = network
	default:
		return invalid("VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.")
	}
	if bad != nil {
		return bad
	}
	// The simulator has no QoS policies.
	if in.text("vip_qos_policy_id") != "" {
		return refuse(400, "qos_policy %s not found.", in.text("vip_qos_policy_id"))
	}
	return c.placeMore(lb, in)
}

// subnet returns the network of a subnet that the caller sees.
func (c *call) subnet(id string) (string, bool) {
	network, _, ok := c.o.Networks.Subnet(c.who, id)
	return network, ok
}

func (c *call) placeByPort(lb *loadBalancer, id string) *fault {
	p, ok := c.o.Networks.Port(c.who, id)
	if !ok {
		return refuse(400, "Port %s not found.", id)
	}
	if p.DeviceID != "" {
		return invalid("Port %s is already used by device %s ", id, p.DeviceID)
	}
	lb.VIPPortID, lb.VIPNetworkID = id, p.NetworkID
	asked := lb.VIPAddress
	for _, a := range p.Addresses {
		fits := lb.VIPSubnetID == "" && asked == "" && len(p.Addresses) == 1
		if lb.VIPSubnetID != "" {
			fits = a.SubnetID == lb.VIPSubnetID
		} else if asked != "" {
			fits = sameAddress(asked, a.Address)
		}
		if fits {
			lb.VIPSubnetID, lb.VIPAddress = a.SubnetID, a.Address.String()
			return nil
		}
	}
	switch {
	case lb.VIPSubnetID != "":
		if _, known := c.subnet(lb.VIPSubnetID); !known {
			return refuse(400, "Subnet %s not found.", lb.VIPSubnetID)
		}
		return invalid("No VIP address found on the specified VIP port within the specified subnet.")
	case asked != "":
		return invalid("Specified VIP address not found on the specified VIP port.")
	}
	return invalid("VIP port's subnet could not be determined. Please specify either a VIP subnet or address.")
}

func sameAddress(text string, a netip.Addr) bool {
	b, err := netip.ParseAddr(text)
	return err == nil && a == b
}

func (c *call) placeByNetwork(lb *loadBalancer) *fault {
	subnets := c.o.Networks.NetworkSubnets(c.who, lb.VIPNetworkID)
	if subnets == nil {
		return refuse(400, "Network %s not found.", lb.VIPNetworkID)
	}
	if lb.VIPSubnetID != "" {
		if !slices.Contains(subnets, lb.VIPSubnetID) {
			return refuse(400, "Subnet %s not found.", lb.VIPSubnetID)
		}
		return nil
	}
	if lb.VIPAddress == "" && len(subnets) == 0 {
		return invalid("Supplied network does not contain a subnet.")
	}
	for _, id := range subnets { // IPv4 is preferred
		_, cidr, _ := c.o.Networks.Subnet(octavia, id)
		address, err := netip.ParseAddr(lb.VIPAddress)
		switch {
		case lb.VIPAddress == "" && cidr.Addr().Is4(), err == nil && cidr.Contains(address):
			lb.VIPSubnetID = id
			return nil
		case lb.VIPAddress == "" && lb.VIPSubnetID == "":
			lb.VIPSubnetID = id
		}
	}
	if lb.VIPSubnetID == "" {
		return invalid("Supplied network does not contain a subnet for VIP address specified.")
	}
	return nil
}

// placeMore checks the subnets of additional VIPs. Octavia reads them with its own credentials:
// _validate_subnets_share_network_but_no_duplicates.
func (c *call) placeMore(lb *loadBalancer, in values) *fault {
	seen := []string{lb.VIPSubnetID}
	for _, v := range in.objects("additional_vips") {
		if v == nil {
			return crash("'NoneType' object has no attribute 'subnet_id'")
		}
		if slices.Contains(seen, v.text("subnet_id")) {
			return invalid("Duplicate VIP subnet(s) specified. Only one IP can be bound per subnet.")
		}
		seen = append(seen, v.text("subnet_id"))
	}
	for _, id := range seen[1:] {
		network, _, known := c.o.Networks.Subnet(octavia, id)
		if !known {
			return refuse(404, "Subnet %s not found.", id)
		}
		if network != lb.VIPNetworkID {
			return invalid("All VIP subnets must belong to the same network.")
		}
	}
	return nil
}
