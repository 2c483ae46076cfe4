// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// within returns the subnet that has all of a prefix.
func within(subnets []sdn.SurveyedSubnet, p netip.Prefix) bool {
	return slices.ContainsFunc(subnets, func(s sdn.SurveyedSubnet) bool {
		return s.Prefix.Bits() <= p.Bits() && s.Prefix.Contains(p.Addr())
	})
}

// covered reports whether subnets together have all of a prefix.
func covered(subnets []sdn.SurveyedSubnet, p netip.Prefix) bool {
	if within(subnets, p) {
		return true
	}
	if !slices.ContainsFunc(subnets, func(s sdn.SurveyedSubnet) bool { return s.Prefix.Overlaps(p) }) {
		return false
	}
	half := p.Bits() + 1 // p is larger than a subnet in it, so it has two halves
	return covered(subnets, netip.PrefixFrom(p.Masked().Addr(), half)) && covered(subnets, netip.PrefixFrom(network.Last(p), half).Masked())
}

// serviceRangeOutside reports ranges of cluster IPs that no VIP can have.
func serviceRangeOutside(f *Facts, k Kind) []Finding {
	if !f.serves() || errors.Is(f.Cluster.ServiceCIDRs.Err, sdn.ErrNotFound) {
		return nil
	}
	if err := cmp.Or(f.Cluster.ServiceCIDRs.Err, f.Networks.Subnets.Err); err != nil {
		return k.unknown("ServiceCIDRs", "they are in the subnets of "+fieldServices, err)
	}
	subnets := f.subnets(f.Config.ServiceSubnetIDs)
	k = k.ifAll(!slices.ContainsFunc(f.Cluster.Services.Value, func(s Service) bool { return s.in(subnets) }))
	var out []Finding
	for _, p := range f.Cluster.ServiceCIDRs.Value {
		if !covered(subnets, p) {
			out = append(out, k.found("ServiceCIDR "+p.String(), fmt.Sprintf(
				"The subnets of %s do not have all of %s. Services with a cluster IP outside of these subnets get no load balancer. "+
					"The subnet must be larger than the range, with gateway and pool outside of the range: docs/services-howto.md.", fieldServices, p),
				"kubectl get servicecidrs",
				"openstack subnet create --network NETWORK --no-dhcp --subnet-range CIDR --gateway ADDRESS --allocation-pool start=FIRST,end=LAST services-2 # CIDR has "+p.String()+" and more",
				"openstack router add subnet ROUTER services-2", editConfig))
		}
	}
	return out
}

// serviceRangeShared reports ranges of cluster IPs whose addresses Neutron may give to others.
func serviceRangeShared(f *Facts, k Kind) []Finding {
	var out []Finding
	for _, p := range f.Cluster.ServiceCIDRs.Value {
		for _, s := range f.subnets(f.Config.ServiceSubnetIDs) {
			object := "subnet " + s.ID + " of " + fieldServices
			if p.Contains(s.Gateway) {
				out = append(out, k.found(object, fmt.Sprintf("The gateway %s of subnet %s is in ServiceCIDR %s. A Service that gets this cluster IP gets no load balancer.",
					s.Gateway, named(s.ID, s.Name), p), f.otherGateway(s, p)...))
			}
			for _, pool := range s.Pools {
				if !p.Contains(pool.First) && !pool.Contains(p.Addr()) {
					continue
				}
				out = append(out, k.found(object, fmt.Sprintf("The allocation pool %s-%s of subnet %s overlaps ServiceCIDR %s. "+
					"Neutron may give a router, or a machine, a cluster IP that Kubernetes later gives to a Service.", pool.First, pool.Last, named(s.ID, s.Name), p),
					fmt.Sprintf("openstack subnet set --no-allocation-pool --allocation-pool start=FIRST,end=LAST %s # outside of %s", s.ID, p)))
			}
		}
	}
	return out
}

// otherGateway are commands that give a subnet a gateway outside of a range. Neutron refuses to change
// one that is the address of a router.
func (f *Facts) otherGateway(s sdn.SurveyedSubnet, p netip.Prefix) []string {
	set := fmt.Sprintf("openstack subnet set --gateway ADDRESS %s # outside of %s and of the allocation pools", s.ID, p)
	for _, l := range f.Networks.RouterInterfaces.Value {
		if l.SubnetID == s.ID && l.Address == s.Gateway {
			return []string{
				fmt.Sprintf("openstack router remove subnet %s %s # cuts the subnet off until the last command", l.RouterID, s.ID), set,
				fmt.Sprintf("openstack router add subnet %s %s", l.RouterID, s.ID),
			}
		}
	}
	return []string{set}
}

// dnsOutside reports the cluster's DNS if no cluster IP of it is in a subnet of services.subnetIDs. Another
// Service says so itself, in condition Planned.
func dnsOutside(f *Facts, k Kind) []Finding {
	if !f.serves() {
		return nil
	}
	if err := cmp.Or(f.Cluster.Services.Err, f.Networks.Subnets.Err); err != nil {
		return k.unknown("cluster IPs of DNS", "they are in the subnets of "+fieldServices, err)
	}
	subnets := f.subnets(f.Config.ServiceSubnetIDs)
	var bad []string
	for _, s := range f.Cluster.Services.Value {
		if s.DNS && !s.in(subnets) {
			bad = append(bad, fmt.Sprintf("%s/%s (%v)", s.Namespace, s.Name, s.ClusterIPs))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return []Finding{k.found("Services outside of "+fieldServices, fmt.Sprintf("The cluster IP of %s is in no subnet of %s. Pods cannot resolve names.", list(bad), fieldServices),
		"kubectl get services -A", editConfig)}
}

// addressesOverlap reports addresses that belong to others as well.
func addressesOverlap(f *Facts, k Kind) []Finding {
	var out []Finding
	for _, part := range []struct {
		field string
		ids   []string
	}{{fieldPods, f.Config.PodSubnetIDs()}, {fieldServices, f.Config.ServiceSubnetIDs}} {
		for _, s := range f.subnets(part.ids) {
			object := "subnet " + s.ID + " of " + part.field
			var nodes []string
			for _, n := range f.Cluster.Nodes.Value {
				for _, a := range n.Addresses {
					if s.Prefix.Contains(a) && (part.field == fieldServices || f.apart(n, s)) {
						nodes = append(nodes, n.Name+" ("+a.String()+")")
					}
				}
			}
			if len(nodes) > 0 {
				out = append(out, k.found(object, fmt.Sprintf("Subnet %s (%s) has addresses of nodes: %s. Pods do not reach these nodes, unless they have ports in it.",
					named(s.ID, s.Name), s.Prefix, list(nodes)), "kubectl get nodes -o wide", "openstack port list --fixed-ip subnet="+s.ID))
			}
		}
	}
	return append(out, f.podsOverServices(k)...)
}

// apart reports whether a node with an address of a pods' subnet surely is none of that network's
// machines: a virtual machine has its port there, and a host may be on a physical network or have a
// Linux bridge there.
func (f *Facts) apart(n Node, s sdn.SurveyedSubnet) bool {
	return !n.Virtual && n.VIFType != vifTypeBridge && f.virtual(s)
}

// podsOverServices reports subnets of pods with cluster IPs, which are not the Services' subnet.
func (f *Facts) podsOverServices(k Kind) []Finding {
	var out []Finding
	for _, s := range f.subnets(f.Config.PodSubnetIDs()) {
		for _, p := range f.Cluster.ServiceCIDRs.Value {
			if f.serves() && s.Prefix.Overlaps(p) && !slices.Contains(f.Config.ServiceSubnetIDs, s.ID) {
				out = append(out, k.found("subnet "+s.ID+" of "+fieldPods, fmt.Sprintf(
					"Subnet %s (%s) overlaps ServiceCIDR %s. Pods look for these cluster IPs in their own subnet, and do not reach them.",
					named(s.ID, s.Name), s.Prefix, p), "kubectl get servicecidrs", editConfig))
			}
		}
	}
	return out
}

func policiesNotEnforced(f *Facts, k Kind) []Finding {
	if err := f.Cluster.Policies.Err; err != nil {
		return k.unknown("NetworkPolicies", "there are any, which Kuryr does not enforce", err)
	}
	if !f.Cluster.Policies.Value {
		return nil
	}
	return []Finding{k.found("NetworkPolicies", "The cluster has NetworkPolicies, and Kuryr does not enforce them. Unless another program does, pods get and send what the security groups of their ports let pass. pods.securityGroups gives some pods groups of their own.",
		"kubectl get networkpolicies -A", "kubectl get events -A --field-selector reason=NotEnforced", editConfig)}
}
