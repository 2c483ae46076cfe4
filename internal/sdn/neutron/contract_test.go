// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"net/netip"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn/neutron"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// TestContractFake runs the contract over HTTP against a fake, which is as true
// as TestContractReal keeps it.
func TestContractFake(t *testing.T) {
	sdntest.Run(t, func(t *testing.T) sdntest.Target {
		f := newFake(t)
		page := func(c *neutron.Config) { c.PageSize = 2 }
		return sdntest.Target{
			Backend: f.backend("one", page), Other: f.backend("two", page), Cloud: f,
			NetworkID: net1,
			Subnets: []sdntest.Subnet{
				{ID: subnet4, Prefix: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.1.0.1")},
				{ID: subnet6, Prefix: netip.MustParsePrefix("fd00:1::/64")},
			},
			SecurityGroupIDs: []string{groupA, groupB},
			Host:             "n1", UnusableHost: "nowhere", MTU: 1442, VIFType: "ovs", TrunkPortID: parent, PageSize: 2,
		}
	})
}

// MakeForeignPort implements sdntest.Cloud.
func (f *fake) MakeForeignPort(*testing.T) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.newPort(object{"device_owner": "compute:kuryr", "name": "available-port", "description": "kuryr.cluster=one-more", "fixed_ips": []any{}})
	f.ports[p["id"].(string)] = p
	return p["id"].(string)
}

// HasPort implements sdntest.Cloud.
func (f *fake) HasPort(_ *testing.T, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ports[id] != nil
}

// LimitPorts implements sdntest.Cloud.
func (f *fake) LimitPorts(_ *testing.T, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quota = len(f.ports) + n
}

// Subports implements sdntest.Cloud.
func (f *fake) Subports(*testing.T, string) map[string]int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int32{}
	for _, s := range f.trunks[plainTrunk].Subports {
		out[s["port_id"].(string)] = int32(s["segmentation_id"].(float64))
	}
	return out
}
