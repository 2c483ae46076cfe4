// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// routerID is the one router of a cloud. It has an interface in each subnet that is not external, and a
// gateway to the external network.
const routerID = "router"

// SurveyNetworks implements sdn.Survey. An error of a hook is the error of each part.
func (b *Backend) SurveyNetworks(ctx context.Context, q sdn.NetworkQuery) sdn.NetworkSurvey {
	out := sdn.NetworkSurvey{Quotas: map[string]sdn.Read[map[string]sdn.Usage]{}}
	c := b.cloud
	err := c.do(ctx, SurveyNetworks, func() error {
		c.surveySubnets(&out, q)
		c.surveyRest(&out, q)
		c.surveyOwn(&out, q)
		return nil
	})
	out.Extensions.Err, out.Subnets.Err, out.Networks.Err, out.RouterInterfaces.Err, out.Routers.Err = err, err, err, err, err
	out.Addresses.Err, out.SecurityGroups.Err, out.Agents.Err = err, err, err
	out.Projects.Err = err
	for _, project := range q.ProjectIDs {
		out.Quotas[project] = sdn.Read[map[string]sdn.Usage]{Value: out.Quotas[project].Value, Err: err}
	}
	return out
}

// surveySubnets fills in the subnets, and what follows of them. The caller holds the lock.
func (c *Cloud) surveySubnets(out *sdn.NetworkSurvey, q sdn.NetworkQuery) {
	out.Subnets.Value, out.Networks.Value = map[string]sdn.SurveyedSubnet{}, map[string]sdn.SurveyedNetwork{}
	out.Routers.Value, out.Addresses.Value = map[string]sdn.Router{}, map[string]sdn.Usage{}
	router := sdn.Router{ID: routerID, Name: routerID}
	for _, id := range slices.Sorted(maps.Keys(c.subnets)) {
		s := c.subnets[id]
		asked := slices.Contains(q.SubnetIDs, id)
		if asked || slices.Contains(q.NetworkIDs, s.NetworkID) {
			out.Networks.Value[s.NetworkID] = sdn.SurveyedNetwork{ID: s.NetworkID, Name: s.NetworkID, MTU: s.MTU, External: s.External, Type: "geneve"}
		}
		if s.External {
			router.ExternalNetwork = s.NetworkID
		}
		if !asked {
			continue
		}
		out.Subnets.Value[id] = sdn.SurveyedSubnet{ID: id, Name: id, NetworkID: s.NetworkID, Prefix: s.Prefix, Gateway: s.Gateway}
		out.Addresses.Value[id] = c.usage(s)
		if c.ownSubnets[id] == nil && !s.External {
			out.RouterInterfaces.Value = append(out.RouterInterfaces.Value, sdn.RouterInterface{RouterID: routerID, NetworkID: s.NetworkID, SubnetID: id, Address: ifaceOf(s)})
		}
	}
	if c.ifacesOfOwn(out) {
		out.BindsShown = new(true)
	}
	if slices.ContainsFunc(out.RouterInterfaces.Value, func(l sdn.RouterInterface) bool { return l.RouterID == routerID }) {
		out.Routers.Value[routerID], out.BindsShown = router, new(true)
	}
}

// legsOfOwn fills in the interfaces and routers of subnets that backends made. The caller holds the lock.
func (c *Cloud) ifacesOfOwn(out *sdn.NetworkSurvey) (any bool) {
	for id, s := range out.Subnets.Value {
		for _, r := range c.subnetWith(id).RouterIDs {
			out.RouterInterfaces.Value = append(out.RouterInterfaces.Value, sdn.RouterInterface{RouterID: r, NetworkID: s.NetworkID, SubnetID: id, Address: s.Gateway})
			out.Routers.Value[r] = sdn.Router{ID: r, Name: r}
			any = true
		}
	}
	return any
}

// legOf is the address of the router: the gateway, or the first of the subnet.
func ifaceOf(s Subnet) netip.Addr {
	if s.Gateway.IsValid() {
		return s.Gateway
	}
	return s.Prefix.Addr().Next()
}

// surveyRest fills in what does not depend on subnets. The caller holds the lock.
func (c *Cloud) surveyRest(out *sdn.NetworkSurvey, q sdn.NetworkQuery) {
	out.Extensions.Value = []string{
		"allowed-address-pairs", "binding", "external-net", "net-mtu", "network-ip-availability", "quota_details", "router", "security-group",
		"standard-attr-timestamp", "trunk",
	}
	for _, project := range q.ProjectIDs {
		out.Quotas[project] = sdn.Read[map[string]sdn.Usage]{Value: map[string]sdn.Usage{
			"port":           {Used: len(c.ports), Limit: c.quota},
			"floatingip":     {Used: len(c.floating), Limit: -1},
			"security_group": {Used: len(c.groups) + len(c.made), Limit: -1},
		}}
	}
	out.SecurityGroups.Value = map[string]sdn.SurveyedGroup{}
	for _, id := range q.SecurityGroupIDs {
		switch g := c.made[id]; {
		case g != nil:
			out.SecurityGroups.Value[id] = surveyedGroup(g.SecurityGroup)
		case c.groups[id]: // a foreign one lets all in
			out.SecurityGroups.Value[id] = sdn.SurveyedGroup{ID: id, Name: id, In: []sdn.SurveyedRule{{}, {IPv6: true}}}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(c.hosts)) {
		out.Agents.Value = append(out.Agents.Value, sdn.Agent{Type: "OVN Controller agent", Host: host, Alive: true})
	}
}

// SurveyBalancing implements sdn.Survey.
func (b *Backend) SurveyBalancing(ctx context.Context, _ string) sdn.BalancingSurvey {
	var out sdn.BalancingSurvey
	c := b.cloud
	err := c.do(ctx, SurveyBalancing, func() error {
		for _, name := range slices.Sorted(maps.Keys(c.providers)) {
			if name != "" {
				out.Providers.Value = append(out.Providers.Value, name)
			}
		}
		out.Quotas.Value = map[string]int{"load_balancer": c.lbQuota, "listener": -1, "pool": -1, "member": c.memberQuota}
		return nil
	})
	out.Providers.Err, out.Quotas.Err = err, err
	return out
}
