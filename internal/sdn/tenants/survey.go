// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// SurveyNetworks implements sdn.Survey. Quotas are read with the credential of each project. What
// the main session does not show is asked of the others: what each of them shows is added.
func (c *Cloud) SurveyNetworks(ctx context.Context, q sdn.NetworkQuery) sdn.NetworkSurvey {
	others := c.all()[1:]
	own := func(id string) bool { return c.of(id) != c.main }
	first := q
	first.ProjectIDs = slices.DeleteFunc(slices.Clone(q.ProjectIDs), own)
	first.KnownProjectIDs = slices.DeleteFunc(slices.Clone(q.KnownProjectIDs), own)
	out := c.main.SurveyNetworks(ctx, first)
	if len(others) == 0 {
		return out
	}
	out.Credentials = map[string]error{}
	answers := make([]sdn.NetworkSurvey, len(others))
	var at sync.WaitGroup
	for i, k := range others {
		at.Go(func() { answers[i] = k.SurveyNetworks(ctx, unseen(q, &out, k, c)) })
	}
	at.Wait()
	for i, k := range others {
		if err := answers[i].Extensions.Err; errors.Is(err, sdn.ErrLogin) || errors.Is(err, sdn.ErrUnavailable) {
			out.Credentials[k.ProjectID] = k.explain(err)
			answers[i].Projects.Value.Hidden = []string{k.ProjectID}
		}
		merge(&out, &answers[i])
	}
	return out
}

// unseen returns what to ask of a project's session: the quotas of the project, and what the main
// one did not show.
func unseen(q sdn.NetworkQuery, seen *sdn.NetworkSurvey, k *credential, c *Cloud) sdn.NetworkQuery {
	others := func(id string) bool { return c.of(id) != k }
	return sdn.NetworkQuery{
		ProjectIDs:       slices.DeleteFunc(slices.Clone(q.ProjectIDs), others),
		KnownProjectIDs:  slices.DeleteFunc(slices.Clone(q.KnownProjectIDs), others),
		SubnetIDs:        append(without(q.SubnetIDs, seen.Subnets.Value), shared(q.SubnetIDs, seen, k)...),
		NetworkIDs:       without(q.NetworkIDs, seen.Networks.Value),
		SecurityGroupIDs: without(q.SecurityGroupIDs, seen.SecurityGroups.Value),
		RouterIDs:        without(q.RouterIDs, seen.Routers.Value),
	}
}

// shared returns the subnets that the main session sees, but not the routers' ports there: the
// network is the project's.
func shared(ids []string, seen *sdn.NetworkSurvey, k *credential) (out []string) {
	for _, id := range ids {
		network := seen.Subnets.Value[id].NetworkID
		if of := seen.Networks.Value[network].ProjectID; network != "" && sdn.SameID(of, k.ProjectID) {
			out = append(out, id)
		}
	}
	return out
}

func without[T any](ids []string, seen map[string]T) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, is := seen[id]; return is || id == "" })
}

// merge adds what a project's session shows. An error there says nothing about what the main one
// shows.
func merge(out, more *sdn.NetworkSurvey) {
	add(&out.Quotas, more.Quotas)
	add(&out.Subnets.Value, more.Subnets.Value)
	add(&out.Networks.Value, more.Networks.Value)
	add(&out.Routers.Value, more.Routers.Value)
	add(&out.SecurityGroups.Value, more.SecurityGroups.Value)
	add(&out.Addresses.Value, more.Addresses.Value)
	add(&out.Projects.Value.Enabled, more.Projects.Value.Enabled)
	out.Projects.Value.Hidden = append(out.Projects.Value.Hidden, more.Projects.Value.Hidden...)
	slices.Sort(out.Projects.Value.Hidden)
	if out.BindsShown == nil {
		out.BindsShown = more.BindsShown
	}
	for _, iface := range more.RouterInterfaces.Value {
		if !slices.Contains(out.RouterInterfaces.Value, iface) {
			out.RouterInterfaces.Value = append(out.RouterInterfaces.Value, iface)
		}
	}
}

func add[T any](to *map[string]T, more map[string]T) {
	if *to == nil && len(more) > 0 {
		*to = map[string]T{}
	}
	maps.Copy(*to, more)
}

// SurveyBalancing implements sdn.Survey.
func (c *Cloud) SurveyBalancing(ctx context.Context, projectID string) sdn.BalancingSurvey {
	return c.of(projectID).SurveyBalancing(ctx, projectID)
}
