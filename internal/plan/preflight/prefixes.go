// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// subnetPoolUnusable reports subnet pools that networks cannot have subnets of.
func subnetPoolUnusable(f *Facts, k Kind) []Finding {
	if err := f.Networks.SubnetPools.Err; err != nil && len(f.Config.SubnetPools) > 0 {
		return k.unknown("subnet pools", "they exist", err)
	}
	var out []Finding
	for _, pools := range f.Config.SubnetPools {
		first := map[int]string{} // by bits of addresses
		for _, id := range pools.IDs {
			object := "subnet pool " + id + " of " + pools.Field
			p, ok := f.Networks.SubnetPools.Value[id]
			if !ok {
				out = append(out, k.found(object, fmt.Sprintf("Neutron does not show subnet pool %s: it does not exist, or it is another project's and not shared. "+
					"Networks of mode namespace do not become ready, and their pods wait.", id), "openstack subnet pool list", editConfig))
				continue
			}
			if len(p.Prefixes) == 0 {
				continue
			}
			bits := p.Prefixes[0].Addr().BitLen()
			if other, twice := first[bits]; twice {
				out = append(out, k.found(object, fmt.Sprintf("Subnet pools %s and %s are of one address family. Neutron makes the subnets of one family of a network of one pool only.",
					other, named(id, p.Name)), "openstack subnet pool list --long", editConfig))
			}
			first[bits] = id
			if n := pools.length(p); n != 0 && (n < p.MinLength || n > p.MaxLength) {
				out = append(out, k.found(object, fmt.Sprintf("Subnet pool %s gives prefixes of length %d to %d, and the configuration wants length %d. Neutron refuses the subnets, and pods wait.",
					named(id, p.Name), p.MinLength, p.MaxLength, n), fmt.Sprintf("openstack subnet pool set --min-prefix-length %d --max-prefix-length %d %s", min(n, p.MinLength), max(n, p.MaxLength), id)))
			}
		}
	}
	return out
}

// length returns the configured length of a prefix of a pool; 0: the pool's default.
func (l *Pools) length(p sdn.SurveyedPool) int {
	if len(p.Prefixes) > 0 && p.Prefixes[0].Addr().Is6() {
		return l.PrefixLengthIPv6
	}
	return l.PrefixLength
}

// subnetPoolFull compares the free prefixes of each subnet pool with the namespaces that have no
// network yet. Neutron shows only subnets of the credential's project to those who are no
// administrators, so there may be less.
func subnetPoolFull(f *Facts, k Kind) []Finding {
	waiting := map[string][]Namespace{}
	length := map[string]int{}
	for _, n := range f.missing() {
		if n.Mode != v1.NetworkNamespace {
			continue
		}
		for _, id := range n.SubnetPoolIDs {
			p := f.Networks.SubnetPools.Value[id]
			own := Pools{PrefixLength: n.PrefixLength, PrefixLengthIPv6: n.PrefixLengthIPv6}
			waiting[id] = append(waiting[id], n)
			// The shortest prefix is the largest subnet.
			if l := cmp.Or(own.length(p), p.DefaultLength); length[id] == 0 || l < length[id] {
				length[id] = l
			}
		}
	}
	var out []Finding
	seen := map[string]bool{}
	for _, pools := range f.Config.SubnetPools {
		for _, id := range pools.IDs {
			p, ok := f.Networks.SubnetPools.Value[id]
			if !ok || seen[id] || len(waiting[id]) == 0 {
				continue
			}
			seen[id] = true
			left := 0
			for _, prefix := range p.Prefixes {
				left += room(prefix, length[id], p.Used)
			}
			if left < len(waiting[id]) {
				out = append(out, k.found("subnet pool "+id+" of "+pools.Field, fmt.Sprintf(
					"Subnet pool %s has room for %d more prefixes of length %d, and %d namespaces have no network yet: %s. The last ones to get pods get no network.",
					named(id, p.Name), left, length[id], len(waiting[id]), list(names(waiting[id]))), "openstack subnet pool set --pool-prefix CIDR "+id))
			}
		}
	}
	return out
}

// flatRangeFull compares the free prefixes of the ranges of mode flat with the namespaces that have
// no network yet.
func flatRangeFull(f *Facts, k Kind) []Finding {
	type choice struct {
		field  string
		length int
	}
	waiting, free := map[choice][]Namespace{}, map[choice]int{}
	var order []choice
	taken := f.taken()
	for _, n := range f.missing() {
		if n.Mode != v1.NetworkFlat {
			continue
		}
		for _, bits := range []int{32, 128} {
			length, left, some := n.PrefixLength, 0, false
			if bits == 128 {
				length = n.PrefixLengthIPv6
			}
			for _, r := range n.Ranges {
				if r.Addr().BitLen() == bits {
					left, some = left+room(r, length, taken), true
				}
			}
			if some {
				c := choice{f.fieldOf(n.Ranges), length}
				if len(waiting[c]) == 0 {
					order = append(order, c)
				}
				waiting[c], free[c] = append(waiting[c], n), left
			}
		}
	}
	var out []Finding
	for _, c := range order {
		if n := len(waiting[c]); free[c] < n {
			out = append(out, k.found(c.field, fmt.Sprintf("%s has room for %d more prefixes of length %d, and %d namespaces have no network yet: %s. The last ones to get pods get no network.",
				c.field, free[c], c.length, n, list(names(waiting[c]))), editConfig))
		}
	}
	return out
}

// fieldOf returns the field of the configuration that has these ranges.
func (f *Facts) fieldOf(ranges []netip.Prefix) string {
	for _, r := range f.Config.Ranges {
		if slices.Equal(r.Prefixes, ranges) {
			return r.Field
		}
	}
	return "networks.ranges"
}

// taken are the prefixes that Kuryr chooses no other one in.
func (f *Facts) taken() []netip.Prefix {
	var out []netip.Prefix
	for _, n := range f.Cluster.Namespaces.Value {
		out = append(out, n.Prefixes...)
	}
	for _, o := range f.others() {
		out = append(out, o.prefix)
	}
	return out
}

// other is a prefix that networks of namespaces must not have.
type other struct {
	prefix netip.Prefix
	what   string
}

// others are the addresses of nodes, Services and pods, and of what else is on the routers of the
// namespaces.
func (f *Facts) others() []other {
	var out []other
	for _, n := range f.Cluster.Nodes.Value {
		for _, a := range n.Addresses {
			out = append(out, other{netip.PrefixFrom(a, a.BitLen()), "node " + n.Name + " (" + a.String() + ")"})
		}
	}
	for _, p := range f.Cluster.ServiceCIDRs.Value {
		out = append(out, other{p, "ServiceCIDR " + p.String()})
	}
	known := slices.Concat(f.Config.PodSubnetIDs(), f.Config.ServiceSubnetIDs)
	for _, s := range f.subnets(f.Config.ServiceSubnetIDs) {
		out = append(out, other{s.Prefix, "subnet " + s.ID + " of " + fieldServices + " (" + s.Prefix.String() + ")"})
	}
	for _, s := range f.subnets(f.Config.PodSubnetIDs()) {
		out = append(out, other{s.Prefix, "subnet " + s.ID + " of " + fieldPods + " (" + s.Prefix.String() + ")"})
	}
	for _, n := range f.Cluster.Namespaces.Value {
		known = append(known, n.SubnetIDs...)
	}
	for _, r := range f.routersOfNamespaces() {
		for _, s := range f.Networks.OtherLegs.Value[r.ID] {
			if !slices.Contains(known, s.ID) {
				known = append(known, s.ID)
				out = append(out, other{s.Prefix, "subnet " + named(s.ID, s.Name) + " on router " + r.ID + " (" + s.Prefix.String() + ")"})
			}
		}
	}
	return out
}

// rangeOverlaps reports ranges of mode flat with addresses of others.
func rangeOverlaps(f *Facts, k Kind) []Finding {
	if err := f.Networks.OtherLegs.Err; err != nil && len(f.Config.Ranges) > 0 {
		return k.unknown("networks.ranges", "they overlap with other subnets on the router", err)
	}
	var out []Finding
	others := f.others()
	for _, r := range f.Config.Ranges {
		for _, p := range r.Prefixes {
			var with []string
			for _, o := range others {
				if o.prefix.Overlaps(p) {
					with = append(with, o.what)
				}
			}
			if len(with) > 0 {
				out = append(out, k.found("range "+p.String()+" of "+r.Field, fmt.Sprintf(
					"The range %s overlaps with %s. Kuryr gives namespaces no prefix with these addresses. But machines beside them that Kuryr does not know, such as others of the nodes' network, are not reached by the pods of a namespace that gets their prefix.",
					p, list(with)), "kubectl get nodes -o wide", "kubectl get servicecidrs", editConfig))
			}
		}
	}
	return out
}

func needRangesOfNamespaces(f *Facts) error {
	if len(f.Config.Ranges) == 0 {
		return nil
	}
	return cmp.Or(needAddresses(f), needNamespaces(f))
}
