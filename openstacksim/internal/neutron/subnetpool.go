// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
)

// subnetPool is a subnet pool. Answers show its lengths as strings, except the answer to a PUT
// (observed on Neutron 21.0.0).
type subnetPool struct {
	standard
	Name             string   `json:"name"`
	Prefixes         []string `json:"prefixes"`
	DefaultQuota     *int     `json:"default_quota"`
	IPVersion        int      `json:"ip_version"`
	DefaultPrefixLen length   `json:"default_prefixlen"`
	MinPrefixLen     length   `json:"min_prefixlen"`
	MaxPrefixLen     length   `json:"max_prefixlen"`
	IsDefault        bool     `json:"is_default"`
	Shared           bool     `json:"shared"`
	AddressScopeID   *string  `json:"address_scope_id"`
}

// length is a prefix length.
type length int

func (l length) MarshalJSON() ([]byte, error) {
	return []byte(strconv.Quote(strconv.Itoa(int(l)))), nil
}

func (s *Service) registerSubnetPools() {
	s.subnetPools = &kind[subnetPool]{
		one: "subnetpool", many: "subnetpools", title: "SubnetPool",
		create: createSubnetPool, update: updateSubnetPool, remove: removeSubnetPool,
		shown:   func(c *call, p *subnetPool) bool { return p.Shared || c.owns(p.ProjectID) },
		changed: changedSubnetPool,
		missing: func(id string) *fault {
			return refuse(http.StatusNotFound, "SubnetPoolNotFound", "Subnet pool %s could not be found.", id)
		},
	}
	register(s, s.subnetPools)
}

// createSubnetPool completes a new pool (neutron 21.0.0: ipam/subnet_alloc.py,
// SubnetPoolReader).
func createSubnetPool(c *call, p *subnetPool, in values) *fault {
	if f := p.checkPrefixes(); f != nil {
		return f
	}
	bits := map[int]int{4: 32, 6: 128}[p.IPVersion]
	if !in.given("min_prefixlen") {
		p.MinPrefixLen = length(map[int]int{4: 8, 6: 64}[p.IPVersion])
	}
	if !in.given("max_prefixlen") {
		p.MaxPrefixLen = length(bits)
	}
	if !in.given("default_prefixlen") {
		p.DefaultPrefixLen = p.MinPrefixLen
	}
	return c.checkPool(p, bits)
}

func (c *call) checkPool(p *subnetPool, bits int) *fault {
	bounds := func(what string, n length, base string, limit length) *fault {
		return refuse(400, "IllegalSubnetPoolPrefixBounds", "Illegal prefix bounds: %s=%d, %s=%d.", what, n, base, limit)
	}
	switch {
	case p.MinPrefixLen > p.MaxPrefixLen:
		return bounds("min_prefixlen", p.MinPrefixLen, "max_prefixlen", p.MaxPrefixLen)
	case int(p.MaxPrefixLen) > bits:
		return bounds("max_prefixlen", p.MaxPrefixLen, "ip_version_max", length(bits))
	case p.DefaultPrefixLen < p.MinPrefixLen:
		return bounds("default_prefixlen", p.DefaultPrefixLen, "min_prefixlen", p.MinPrefixLen)
	case p.DefaultPrefixLen > p.MaxPrefixLen:
		return bounds("default_prefixlen", p.DefaultPrefixLen, "max_prefixlen", p.MaxPrefixLen)
	}
	if p.AddressScopeID != nil {
		return refuse(404, "AddressScopeNotFound", "Address scope %s could not be found", *p.AddressScopeID)
	}
	if !p.IsDefault {
		return nil
	}
	if o := c.defaultPool(p.IPVersion); o != nil && o.ID != p.ID {
		return invalid("A default subnetpool for this IP family has already been set. Only one default may exist per IP family")
	}
	return nil
}

// defaultPool returns the pool for requests that name no pool.
func (c *call) defaultPool(version int) *subnetPool {
	for o := range c.subnetPools.rows.All() {
		if o.IsDefault && o.IPVersion == version {
			return o
		}
	}
	return nil
}

// checkPrefixes converts the prefixes to their normal form.
func (p *subnetPool) checkPrefixes() *fault {
	if len(p.Prefixes) == 0 {
		return refuse(400, "EmptySubnetPoolPrefixList", "Empty subnet pool prefix list.")
	}
	var list []netip.Prefix
	for _, s := range p.Prefixes {
		a, bits, _ := parseNetwork(s)
		list = append(list, masked(a, bits))
		if list[0].Addr().Is4() != a.Is4() {
			return refuse(400, "PrefixVersionMismatch", "Cannot mix IPv4 and IPv6 prefixes in a subnet pool.")
		}
	}
	p.IPVersion, p.Prefixes = 6, nil
	if list[0].Addr().Is4() {
		p.IPVersion = 4
	}
	for _, q := range compact(list) {
		p.Prefixes = append(p.Prefixes, q.String())
	}
	return nil
}

// compact sorts prefixes, drops those inside of others, and joins neighbours.
func compact(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	var out []netip.Prefix
	for _, p := range list {
		if n := len(out); n > 0 && out[n-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
		for n := len(out); n > 1 && out[n-2].Bits() == out[n-1].Bits(); n = len(out) {
			wide := netip.PrefixFrom(out[n-2].Addr(), out[n-2].Bits()-1).Masked()
			if out[n-2].Bits() == 0 || wide.Addr() != out[n-2].Addr() || !wide.Contains(out[n-1].Addr()) {
				break
			}
			out = append(out[:n-2], wide)
		}
	}
	return out
}

// prefixes returns the pool's prefixes, parsed.
func (p *subnetPool) prefixes() []netip.Prefix {
	out := make([]netip.Prefix, len(p.Prefixes))
	for i, s := range p.Prefixes {
		out[i], _ = netip.ParsePrefix(s)
	}
	return out
}

// updateSubnetPool checks a change. Prefixes can be added, but not removed (neutron 21.0.0:
// db/db_base_plugin_v2.py, _update_subnetpool_dict).
func updateSubnetPool(c *call, p, old *subnetPool, in values) *fault {
	if in.given("prefixes") {
		if f := p.checkPrefixes(); f != nil {
			return f
		}
		now := p.prefixes()
		for _, q := range old.prefixes() {
			if !slices.ContainsFunc(now, func(o netip.Prefix) bool { return o.Bits() <= q.Bits() && o.Contains(q.Addr()) }) {
				return refuse(400, "IllegalSubnetPoolPrefixUpdate", "Illegal update to prefixes: Existing prefixes must be a subset of the new prefixes.")
			}
		}
	}
	return c.checkPool(p, map[int]int{4: 32, 6: 128}[p.IPVersion])
}

// changedSubnetPool returns the answer to a PUT. Lengths are numbers there, and null values are
// omitted (observed on Neutron 21.0.0).
func changedSubnetPool(p *subnetPool) map[string]any {
	out := map[string]any{}
	text, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(err) // cannot happen: a struct of plain values
	}
	for name, v := range out {
		if v == nil {
			delete(out, name)
		}
	}
	out["default_prefixlen"], out["min_prefixlen"], out["max_prefixlen"] = int(p.DefaultPrefixLen), int(p.MinPrefixLen), int(p.MaxPrefixLen)
	return out
}

func removeSubnetPool(c *call, p *subnetPool) *fault {
	for n := range c.subnets.rows.All() {
		if n.SubnetPoolID != nil && *n.SubnetPoolID == p.ID {
			return refuse(400, "SubnetPoolDeleteError", "Unable to delete subnet pool: Subnet pool has existing allocations.")
		}
	}
	return nil
}

// poolFor returns the pool of a new subnet, nil if it has none.
func (c *call) poolFor(n *subnet, in values) (*subnetPool, *fault) {
	id, byDefault := in.text("subnetpool_id"), in.truth("use_default_subnetpool")
	switch {
	case id != "" && byDefault:
		return nil, badSubnet("subnetpool_id and use_default_subnetpool cannot both be specified")
	case id == "prefix_delegation":
		return nil, badSubnet("No default subnetpool found for IPv%d", n.IPVersion)
	case id != "":
		if n.CIDR == "" && in.has("allocation_pools") {
			return nil, badSubnet("allocation_pools allowed only for specific subnet requests.")
		}
		return c.subnetPools.find(c, id)
	case byDefault:
		if p := c.defaultPool(n.IPVersion); p != nil {
			return p, nil
		}
		return nil, badSubnet("No default subnetpool found for IPv%d", n.IPVersion)
	}
	return nil, nil
}

// fromPool gives a new subnet a CIDR of a pool (neutron 21.0.0: ipam/subnet_alloc.py,
// allocate_subnet).
func (c *call) fromPool(n *subnet, p *subnetPool, bits int, in values) *fault {
	if n.IPVersion != p.IPVersion {
		return badSubnet("Cannot allocate IPv%d subnet from IPv%d subnet pool", n.IPVersion, p.IPVersion)
	}
	n.SubnetPoolID = &p.ID
	if n.CIDR != "" {
		bits = n.prefix().Bits()
	} else if !in.has("prefixlen") {
		bits = int(p.DefaultPrefixLen)
	}
	switch {
	case bits > int(p.MaxPrefixLen):
		return refuse(400, "MaxPrefixSubnetAllocationError", "Unable to allocate subnet with prefix length %d, maximum allowed prefix is %d.", bits, p.MaxPrefixLen)
	case bits < int(p.MinPrefixLen):
		return refuse(400, "MinPrefixSubnetAllocationError", "Unable to allocate subnet with prefix length %d, minimum allowed prefix is %d.", bits, p.MinPrefixLen)
	}
	if f := c.poolQuota(p, bits); f != nil {
		return f
	}
	free := c.freePrefixes(p)
	for _, q := range free {
		if n.CIDR == "" && q.Bits() <= bits {
			n.CIDR = netip.PrefixFrom(q.Addr(), bits).String()
			return nil
		}
		if n.CIDR != "" && q.Bits() <= bits && q.Contains(n.prefix().Addr()) {
			return nil
		}
	}
	reason := "Cannot allocate requested subnet from the available set of prefixes"
	if n.CIDR == "" {
		reason = fmt.Sprintf("Insufficient prefix space to allocate subnet size /%d", bits)
	}
	// Neutron has no status for this error, so it becomes 500 (observed on 21.0.0).
	return refuse(http.StatusInternalServerError, "SubnetAllocationError", "Failed to allocate subnet: %s.", reason)
}

// poolQuota checks the quota, in units of a /32 of IPv4 and a /64 of IPv6.
func (c *call) poolQuota(p *subnetPool, bits int) *fault {
	if p.DefaultQuota == nil || *p.DefaultQuota == 0 {
		return nil
	}
	unit := map[int]int{4: 32, 6: 64}[p.IPVersion]
	size := func(bits int) float64 {
		if bits > unit {
			return 1 / float64(uint64(1)<<min(bits-unit, 63))
		}
		return float64(uint64(1) << min(unit-bits, 63))
	}
	used := size(bits)
	for o := range c.subnets.rows.All() {
		if o.SubnetPoolID != nil && *o.SubnetPoolID == p.ID && o.ProjectID == p.ProjectID {
			used += size(o.prefix().Bits())
		}
	}
	if used > float64(*p.DefaultQuota) {
		return conflict("SubnetPoolQuotaExceeded", "Per-tenant subnet pool prefix quota exceeded.")
	}
	return nil
}

// freePrefixes returns the parts of a pool without subnets, the smallest first.
func (c *call) freePrefixes(p *subnetPool) []netip.Prefix {
	free := p.prefixes()
	for o := range c.subnets.rows.All() {
		if o.SubnetPoolID == nil || *o.SubnetPoolID != p.ID {
			continue
		}
		var left []netip.Prefix
		for _, q := range free {
			left = append(left, without(q, o.prefix())...)
		}
		free = left
	}
	slices.SortStableFunc(free, func(a, b netip.Prefix) int { return cmp.Or(b.Bits()-a.Bits(), a.Addr().Compare(b.Addr())) })
	return free
}

// without returns q without the prefix out.
func without(q, out netip.Prefix) []netip.Prefix {
	switch {
	case !q.Overlaps(out):
		return []netip.Prefix{q}
	case q.Bits() >= out.Bits():
		return nil
	}
	low := netip.PrefixFrom(q.Addr(), q.Bits()+1)
	high := netip.PrefixFrom(last(low).Next(), q.Bits()+1)
	return append(without(low, out), without(high, out)...)
}

// samePool requires all subnets of one IP version on a network to come from one pool, or from
// none (neutron 21.0.0: db/ipam_backend_mixin.py, _validate_network_subnetpools).
func (c *call) samePool(n *subnet, net *network) *fault {
	for _, id := range net.Subnets {
		o, ok := c.subnets.rows.Get(id)
		if !ok || o.IPVersion != n.IPVersion {
			continue
		}
		if n.SubnetPoolID == nil && o.SubnetPoolID == nil || n.SubnetPoolID != nil && o.SubnetPoolID != nil && *n.SubnetPoolID == *o.SubnetPoolID {
			continue
		}
		return refuse(400, "NetworkSubnetPoolAffinityError", "Subnets hosted on the same network must be allocated from the same subnet pool.")
	}
	return nil
}
