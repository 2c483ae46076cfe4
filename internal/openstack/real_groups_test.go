// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// LetIn implements sdntest.ServiceCloud.
func (r *realServices) LetIn(t *testing.T, groupID string) []sdn.Rule {
	g, err := groups.Get(t.Context(), r.client, groupID).Extract()
	must(t, err)
	var out []sdn.Rule
	for _, one := range g.Rules {
		if one.Direction != "ingress" || one.RemoteGroupID != "" {
			t.Errorf("security group %s has a rule of another kind: %+v", groupID, one)
			continue
		}
		rule := sdn.Rule{Protocol: strings.ToUpper(one.Protocol), From: int32(one.PortRangeMin), To: int32(one.PortRangeMax), Remote: one.RemoteIPPrefix}
		if one.PortRangeMin == 0 {
			rule.From, rule.To = 1, 65535
		}
		out = append(out, rule)
	}
	out, err = sdn.CanonicalRules(out)
	must(t, err)
	return out
}
