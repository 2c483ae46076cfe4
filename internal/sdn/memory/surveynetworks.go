// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// surveyOwn fills in routers and projects that a query names. The caller holds the lock.
func (c *Cloud) surveyOwn(out *sdn.NetworkSurvey, q sdn.NetworkQuery) {
	for _, id := range q.RouterIDs {
		if r := c.routers[id]; r != nil {
			out.Routers.Value[id] = c.surveyedRouter(r)
		}
	}
	out.Projects.Value.Enabled = map[string]bool{}
	for _, id := range q.KnownProjectIDs {
		if len(c.projects) == 0 || c.projects[id] {
			out.Projects.Value.Enabled[id] = true
		}
	}
}

// surveyedRouter returns a router as a survey shows it. The caller holds the lock.
func (c *Cloud) surveyedRouter(r *router) sdn.Router {
	out := sdn.Router{ID: r.id, Name: r.id}
	if len(r.addresses) == 0 {
		return out
	}
	for _, id := range slices.Sorted(maps.Keys(c.subnets)) {
		if s := c.subnets[id]; s.External {
			out.ExternalNetwork = s.NetworkID
		}
	}
	return out
}

// surveyedGroup returns a group that a backend made as a survey shows it.
func surveyedGroup(g sdn.SecurityGroup) sdn.SurveyedGroup {
	out := sdn.SurveyedGroup{ID: g.ID, Name: g.Name}
	for _, r := range g.Rules {
		remote := netip.MustParsePrefix(r.Remote)
		out.In = append(out.In, sdn.SurveyedRule{IPv6: remote.Addr().Is6(), Remote: remote})
	}
	return out
}
