// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// SurveyBalancing implements sdn.Survey.
func (b *Octavia) SurveyBalancing(ctx context.Context, projectID string) sdn.BalancingSurvey {
	out := sdn.BalancingSurvey{Providers: b.surveyProviders(ctx), Quotas: b.surveyQuotas(ctx, projectID)}
	a, err := b.balancerAPI(ctx)
	if out.Old.Err = err; err == nil && b.dialect.versioned && !a.has(withMoreVIPs) {
		out.Old.Value = fmt.Sprintf("v2.%d", a.minor)
	}
	return out
}

func (b *Octavia) surveyProviders(ctx context.Context) sdn.Read[[]string] {
	names, err := b.askProviders(ctx)
	if err != nil {
		err = fmt.Errorf("asking for the load-balancing providers: %w", err)
	}
	return sdn.Read[[]string]{Value: names, Err: err}
}

// surveyQuotas returns limits only: Octavia does not tell the usage. Neutron with LBaaS v2 has the
// limits of all its kinds in one answer, with its own words for two of them.
func (b *Octavia) surveyQuotas(ctx context.Context, projectID string) sdn.Read[map[string]int] {
	projectID, err := b.ProjectOr(ctx, projectID)
	if err != nil {
		return sdn.Read[map[string]int]{Err: fmt.Errorf("asking for the quotas of load balancing: %w", err)}
	}
	var body struct {
		Quota map[string]*int `json:"quota"`
	}
	path := append(slices.Clone(b.dialect.quotas), projectID)
	err = b.Do(ctx, session.Request{To: b.dialect.service, Method: http.MethodGet, Path: path, Out: &body, Subject: projectID})
	if err != nil {
		return sdn.Read[map[string]int]{Err: fmt.Errorf("asking for the quotas of load balancing of project %s: %w", projectID, err)}
	}
	limits := map[string]int{}
	for kind, limit := range body.Quota {
		if limit != nil {
			limits[cmp.Or(kindNames[kind], kind)] = *limit
		}
	}
	return sdn.Read[map[string]int]{Value: limits}
}

// kindNames are today's names of what early Octavia and LBaaS v2 write without an underscore.
var kindNames = map[string]string{"loadbalancer": "load_balancer", "healthmonitor": "health_monitor"}
