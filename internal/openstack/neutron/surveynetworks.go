// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// surveyGroups reads security groups with the rules of what they let in.
func (b *Neutron) surveyGroups(ctx context.Context, ids []string) sdn.Read[map[string]sdn.SurveyedGroup] {
	rows, err := readChosen[wireGroup](ctx, b, "security-groups", "id", ids, nil, "id", "name", "security_group_rules")
	out := map[string]sdn.SurveyedGroup{}
	for _, g := range rows {
		group := sdn.SurveyedGroup{ID: g.ID, Name: g.Name}
		for _, r := range g.Rules {
			if r.Direction == "ingress" {
				group.In = append(group.In, r.surveyed())
			}
		}
		out[g.ID] = group
	}
	return sdn.Read[map[string]sdn.SurveyedGroup]{Value: out, Err: err}
}

// surveyed returns a rule as a survey shows it. A prefix that cannot be read lets in nothing.
func (r wireRule) surveyed() sdn.SurveyedRule {
	out := sdn.SurveyedRule{IPv6: r.EtherType == "IPv6", Protocol: r.Protocol}
	if r.Protocol == "any" {
		out.Protocol = ""
	}
	if r.PortMin != nil && r.PortMax != nil {
		out.From, out.To = *r.PortMin, *r.PortMax
	}
	for _, group := range []*string{r.RemoteGroup, r.RemoteAddress} {
		if group != nil && *group != "" {
			out.RemoteGroup = *group
		}
	}
	if r.RemotePrefix == "" {
		return out
	}
	p, err := netip.ParsePrefix(r.RemotePrefix)
	if err != nil {
		out.RemoteGroup = r.RemotePrefix
		return out
	}
	out.Remote = p.Masked()
	return out
}

// surveyOtherLegs reads the legs of routers, then their subnets.
func (b *Neutron) surveyOtherLegs(ctx context.Context, routers []string) sdn.Read[map[string][]sdn.SurveyedSubnet] {
	rows, err := readChosen[wirePort](ctx, b, "ports", "device_id", routers, url.Values{"device_owner": routerOwners}, "id", "device_id", "fixed_ips")
	if err != nil {
		return sdn.Read[map[string][]sdn.SurveyedSubnet]{Err: err}
	}
	var ids []string
	for _, leg := range rows {
		for _, ip := range leg.FixedIPs {
			ids = append(ids, ip.SubnetID)
		}
	}
	subnets := b.surveySubnets(ctx, ids)
	out := map[string][]sdn.SurveyedSubnet{}
	for _, leg := range rows {
		for _, ip := range leg.FixedIPs {
			if s, ok := subnets.Value[ip.SubnetID]; ok {
				out[leg.DeviceID] = append(out[leg.DeviceID], s)
			}
		}
	}
	return sdn.Read[map[string][]sdn.SurveyedSubnet]{Value: out, Err: subnets.Err}
}

// surveyPools reads subnet pools, and at the same time the subnets made of them.
func (b *Neutron) surveyPools(ctx context.Context, ids []string) sdn.Read[map[string]sdn.SurveyedPool] {
	var pools []wirePool
	var subnets []wireSubnet
	var poolErr, subnetErr error
	var both sync.WaitGroup
	both.Go(func() {
		pools, poolErr = readChosen[wirePool](ctx, b, "subnetpools", "id", ids, nil,
			"id", "name", "project_id", "shared", "prefixes", "default_prefixlen", "min_prefixlen", "max_prefixlen")
	})
	both.Go(func() {
		subnets, subnetErr = readChosen[wireSubnet](ctx, b, "subnets", "subnetpool_id", ids, nil, "id", "cidr", "subnetpool_id")
	})
	both.Wait()
	if err := session.First(poolErr, subnetErr); err != nil {
		return sdn.Read[map[string]sdn.SurveyedPool]{Err: err}
	}
	used := map[string][]netip.Prefix{}
	for _, s := range subnets {
		if p, err := netip.ParsePrefix(s.CIDR); err == nil {
			used[s.PoolID] = append(used[s.PoolID], p)
		}
	}
	out := map[string]sdn.SurveyedPool{}
	for _, w := range pools {
		p := sdn.SurveyedPool{
			ID: w.ID, Name: w.Name, ProjectID: w.ProjectID, Shared: w.Shared, Used: used[w.ID],
			DefaultLength: int(w.Default), MinLength: int(w.Min), MaxLength: int(w.Max),
		}
		for _, text := range w.Prefixes {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return sdn.Read[map[string]sdn.SurveyedPool]{Err: fmt.Errorf("%w: Neutron's prefix %q of subnet pool %s: %w", sdn.ErrUnavailable, text, w.ID, err)}
			}
			p.Prefixes = append(p.Prefixes, prefix.Masked())
		}
		out[w.ID] = p
	}
	return sdn.Read[map[string]sdn.SurveyedPool]{Value: out}
}

// surveyProjects looks projects up in Keystone, which shows others than the credential's own to
// administrators and readers only.
func (b *Neutron) surveyProjects(ctx context.Context, ids []string) sdn.Read[sdn.SurveyedProjects] {
	out := sdn.Read[sdn.SurveyedProjects]{Value: sdn.SurveyedProjects{Enabled: map[string]bool{}}}
	for _, id := range distinct(ids) {
		var body struct{ Project struct{ Enabled bool } }
		err := b.Do(ctx, session.Request{To: session.Keystone, Method: http.MethodGet, Path: []string{"projects", id}, Out: &body, Subject: id})
		switch {
		case err == nil:
			out.Value.Enabled[id] = body.Project.Enabled
		case errors.Is(err, sdn.ErrForbidden):
			out.Value.Hidden = append(out.Value.Hidden, id)
		case !errors.Is(err, sdn.ErrNotFound):
			out.Err = fmt.Errorf("looking up project %s: %w", id, err)
			return out
		}
	}
	return out
}

type wirePool struct {
	resource
	IPVersion int `json:"ip_version"`
	Shared    bool
	Prefixes  []string
	Default   wireLength `json:"default_prefixlen"`
	Min       wireLength `json:"min_prefixlen"`
	Max       wireLength `json:"max_prefixlen"`
}

// wireLength is the length of a prefix, which Neutron writes as a string in some answers.
type wireLength int

// UnmarshalJSON implements json.Unmarshaler.
func (l *wireLength) UnmarshalJSON(text []byte) error {
	n, err := strconv.Atoi(strings.Trim(string(text), `"`))
	*l = wireLength(n)
	return err
}
