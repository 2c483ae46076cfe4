// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// surveyGroups reads security groups with the rules of what they let in.
func (b *Neutron) surveyGroups(ctx context.Context, ids []string) sdn.Read[map[string]sdn.SurveyedGroup] {
	return surveyed(ctx, b, groupKind, ids, func(g wireGroup) (sdn.SurveyedGroup, error) {
		group := sdn.SurveyedGroup{ID: g.ID, Name: g.Name}
		for _, r := range g.Rules {
			if r.Direction == "ingress" {
				group.In = append(group.In, r.surveyed())
			}
		}
		return group, nil
	}, "id", "name", "security_group_rules")
}

// surveyed returns a rule as a survey shows it. A prefix that cannot be read lets in nothing.
func (r wireRule) surveyed() sdn.SurveyedRule {
	out := sdn.SurveyedRule{IPv6: r.EtherType == "IPv6"}
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
}
