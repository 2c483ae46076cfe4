// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// surveyIsComplete checks a survey of the target's subnets, and that missing IDs are left out
// instead of failing the rest.
func surveyIsComplete(t *testing.T, f services) {
	wanted := []Subnet{f.Subnet, f.Far, f.Six}
	rule := sdn.Rule{Protocol: "TCP", From: 8080, To: 8081, Remote: "192.0.2.0/24"}
	group, err := f.Backend.EnsureSecurityGroup(f.ctx(), f.owner, sdn.SecurityGroup{Name: f.owner.Name, ProjectID: f.ProjectID, Rules: []sdn.Rule{rule}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Backend.DeleteSecurityGroup(f.ctx(), group.ID) }()
	s := f.Backend.SurveyNetworks(f.ctx(), sdn.NetworkQuery{
		ProjectIDs: []string{f.ProjectID}, SubnetIDs: []string{f.Subnet.ID, "", MissingID, f.Far.ID, f.Six.ID}, NetworkIDs: []string{f.ExternalNetwork, MissingID},
		SecurityGroupIDs: []string{group.ID, MissingID},
	})
	for what, err := range map[string]error{
		"extensions": s.Extensions.Err, "subnets": s.Subnets.Err, "networks": s.Networks.Err, "interfaces": s.RouterInterfaces.Err, "routers": s.Routers.Err,
		"addresses": s.Addresses.Err, "quotas": s.Quotas[f.ProjectID].Err, "security groups": s.SecurityGroups.Err, "agents": s.Agents.Err,
		"projects": s.Projects.Err,
	} {
		if err != nil {
			t.Errorf("the survey of %s: %v", what, err)
		}
	}
	for _, w := range wanted {
		surveyHas(t, f, s, w)
	}
	if len(s.Subnets.Value) != len(wanted) || !s.Networks.Value[f.ExternalNetwork].External || len(s.SecurityGroups.Value) != 1 {
		t.Errorf("the survey has subnets %+v, networks %+v, security groups %v; want what exists", s.Subnets.Value, s.Networks.Value, s.SecurityGroups.Value)
	}
	in := []sdn.SurveyedRule{{Remote: netip.MustParsePrefix("192.0.2.0/24")}}
	if got := s.SecurityGroups.Value[group.ID]; got.Name != f.owner.Name || !slices.Equal(got.In, in) {
		t.Errorf("the survey has security group %+v, want name %s, and in: %+v", got, f.owner.Name, in)
	}
	if _, ok := s.Quotas[f.ProjectID].Value["port"]; !ok || !slices.Contains(s.Extensions.Value, "router") {
		t.Errorf("the survey has quotas %v and extensions %v, want ports and routers among them", s.Quotas[f.ProjectID].Value, s.Extensions.Value)
	}
	if s.BindsShown == nil {
		t.Error("the survey does not say whether the hosts of ports are shown")
	}
}

// surveyHas checks what a survey has of a subnet.
func surveyHas(t *testing.T, f services, s sdn.NetworkSurvey, w Subnet) {
	t.Helper()
	got, iface := s.Subnets.Value[w.ID], ifaceIn(s, w.ID)
	if got.Prefix != w.Prefix || got.NetworkID != f.NetworkID && s.Networks.Value[got.NetworkID].ID == "" {
		t.Errorf("the survey has subnet %+v, want prefix %s and its network", got, w.Prefix)
	}
	if n := s.Networks.Value[got.NetworkID]; n.Type == "" && n.ProjectID == "" || n.Physical != "" || n.Unfiltered {
		t.Errorf("the survey has network %+v of subnet %s, want its type or project, and that it is virtual and has port security", n, w.ID)
	}
	if !w.Prefix.Contains(iface.Address) || s.Routers.Value[iface.RouterID].ExternalNetwork != f.ExternalNetwork {
		t.Errorf("the survey has interface %+v in subnet %s and routers %+v, want a router with a gateway to %s", iface, w.ID, s.Routers.Value, f.ExternalNetwork)
	}
}

func ifaceIn(s sdn.NetworkSurvey, subnetID string) sdn.RouterInterface {
	for _, l := range s.RouterInterfaces.Value {
		if l.SubnetID == subnetID {
			return l
		}
	}
	return sdn.RouterInterface{}
}

func surveyOfBalancing(t *testing.T, f services) {
	s := f.Backend.SurveyBalancing(f.ctx(), f.ProjectID)
	if s.Providers.Err != nil || s.Quotas.Err != nil || f.Provider != "" && !slices.Contains(s.Providers.Value, f.Provider) {
		t.Errorf("SurveyBalancing = %+v, want provider %q", s, f.Provider)
	}
	if _, ok := s.Quotas.Value["load_balancer"]; !ok {
		t.Errorf("SurveyBalancing has quotas %v, want load_balancer among them", s.Quotas.Value)
	}
	if f.Without == nil {
		return
	}
	if s = f.Without(t).SurveyBalancing(f.ctx(), f.ProjectID); !errors.Is(s.Providers.Err, sdn.ErrNoService) {
		t.Errorf("SurveyBalancing of a cloud without load balancers: %v, want ErrNoService", s.Providers.Err)
	}
}
