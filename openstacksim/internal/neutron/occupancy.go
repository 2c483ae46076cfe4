// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/netip"
	"slices"
)

// occupancy answers /v2.0/network-ip-availabilities: the number of addresses and of taken
// addresses (neutron 21.0.0: db/network_ip_availability_db.py). Only administrators may read it.
func (c *call) occupancy(rest []string) (int, any, *fault) {
	if c.request.Method != http.MethodGet {
		return 0, nil, notAllowed()
	}
	if len(rest) == 1 {
		n, ok := c.networks.rows.Get(rest[0])
		if !ok {
			return 0, nil, c.networks.notFound(rest[0])
		}
		if !c.showsOccupancy() {
			return 0, nil, noSuchPath()
		}
		return http.StatusOK, map[string]any{"network_ip_availability": c.occupied(n)}, nil
	}
	list := []any{}
	ids := c.query()["network_id"]
	for n := range c.networks.rows.All() {
		if c.showsOccupancy() && (len(ids) == 0 || slices.Contains(ids, n.ID)) {
			list = append(list, c.occupied(n))
		}
	}
	return http.StatusOK, map[string]any{"network_ip_availabilities": list}, nil
}

// occupied returns the entry of one network.
func (c *call) occupied(n *network) any {
	subnets, used, total := []any{}, 0, new(big.Int)
	for _, s := range c.subnetsOf(n.ID) {
		taken, size := 0, s.size()
		for _, p := range c.portsOn(s.ID) {
			for _, ip := range p.FixedIPs {
				if ip.SubnetID == s.ID {
					taken++
				}
			}
		}
		used += taken
		total.Add(total, size)
		subnets = append(subnets, map[string]any{
			"subnet_id": s.ID, "subnet_name": s.Name, "cidr": s.CIDR, "ip_version": s.IPVersion,
			"total_ips": json.Number(size.String()), "used_ips": taken,
		})
	}
	out := map[string]any{
		"network_id": n.ID, "network_name": n.Name, "project_id": n.ProjectID, "tenant_id": n.TenantID,
		"subnet_ip_availability": subnets, "used_ips": used, "total_ips": json.Number(total.String()),
	}
	if fields := c.fields(); len(fields) > 0 {
		maps.DeleteFunc(out, func(name string, _ any) bool { return !slices.Contains(fields, name) })
	}
	return out
}

// size returns the number of addresses in the pools; without pools, in the subnet.
func (n *subnet) size() *big.Int {
	one := big.NewInt(1)
	if len(n.AllocationPools) == 0 {
		p := n.prefix()
		return one.Lsh(one, uint(p.Addr().BitLen()-p.Bits()))
	}
	total := new(big.Int)
	for _, p := range n.AllocationPools {
		first, end := p.ends()
		total.Add(total, between(first, end))
	}
	return total
}

func between(first, end netip.Addr) *big.Int {
	n := new(big.Int).SetBytes(end.AsSlice())
	n.Sub(n, new(big.Int).SetBytes(first.AsSlice()))
	return n.Add(n, big.NewInt(1))
}

// showsOccupancy reports whether the caller may read how many addresses are taken.
func (c *call) showsOccupancy() bool {
	return c.admin() || ruleRef("get_network_ip_availability").allows(c, func(string) any { return nil })
}
