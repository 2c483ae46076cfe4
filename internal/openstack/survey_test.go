// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"testing"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// One list that fails leaves the others, and what depends on it has its error.
func TestSurveySaysWhatFailed(t *testing.T) {
	for _, c := range []struct {
		dial string
		want error
		of   func(sdn.NetworkSurvey) []error // these fail
	}{
		{"network GET /v2.0/agents: 403", sdn.ErrForbidden, func(s sdn.NetworkSurvey) []error { return []error{s.Agents.Err} }},
		{"network GET /v2.0/networks: 503", sdn.ErrUnavailable, func(s sdn.NetworkSurvey) []error { return []error{s.Networks.Err} }},
		{"network GET /v2.0/ports: 503", sdn.ErrUnavailable, func(s sdn.NetworkSurvey) []error { return []error{s.RouterInterfaces.Err, s.Routers.Err} }},
		{"network GET /v2.0/subnets: 503", sdn.ErrUnavailable, func(s sdn.NetworkSurvey) []error {
			return []error{s.Subnets.Err, s.RouterInterfaces.Err, s.Routers.Err, s.Addresses.Err}
		}},
		{"network GET /v2.0/quotas/**: 503", sdn.ErrUnavailable, func(s sdn.NetworkSurvey) []error { return []error{s.Quotas[""].Err} }},
	} {
		t.Run(c.dial, func(t *testing.T) {
			on := newOnSim(t)
			must(t, on.sim.Dial(c.dial))
			s := on.target.Backend.(sdn.Survey).SurveyNetworks(t.Context(), sdn.NetworkQuery{ProjectIDs: []string{""}, SubnetIDs: on.subnetIDs[:1], NetworkIDs: []string{on.network}})
			on.sim.SetDials(&dial.Set{})
			failed := 0
			for _, err := range []error{
				s.Extensions.Err, s.Subnets.Err, s.Networks.Err, s.RouterInterfaces.Err, s.Routers.Err, s.Addresses.Err, s.Quotas[""].Err, s.SecurityGroups.Err, s.Agents.Err,
			} {
				if err != nil {
					failed++
				}
			}
			want := c.of(s)
			for _, err := range want {
				if !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
			}
			if failed != len(want) {
				t.Errorf("%d parts failed, want %d: %+v", failed, len(want), s)
			}
		})
	}
}

// A member sees neither agents nor the quota of another project.
func TestSurveyOfAMember(t *testing.T) {
	s := newOnSim(t)
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", Cloud: "tenant"})
	must(t, err)
	got := b.SurveyNetworks(t.Context(), sdn.NetworkQuery{ProjectIDs: []string{"", s.project}, SubnetIDs: s.subnetIDs})
	if got.Quotas[""].Err != nil || !errors.Is(got.Quotas[s.project].Err, sdn.ErrForbidden) || len(got.Agents.Value) > 0 || len(got.Subnets.Value) > 0 {
		t.Errorf("SurveyNetworks of a member = %+v, want his own quota only", got)
	}
}
