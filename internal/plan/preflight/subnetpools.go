// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"

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
