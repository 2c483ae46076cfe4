// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// noSuchPath is Neutron's word for what it does not know, or does not show to
// this credential, where no object is meant.
const noSuchPath = "HTTPNotFound"

// Room implements sdn.Capacity with at most two requests. A subnet's addresses are those of its
// allocation pools. Neutron's usage also counts addresses outside the pools, such as a router's.
func (b *Neutron) Room(ctx context.Context, projectID string, subnetIDs []string) (sdn.Room, error) {
	var room sdn.Room
	var err error
	if room.Ports, err = b.portQuota(ctx, projectID); err != nil {
		return sdn.Room{}, fmt.Errorf("reading the port quota of project %q: %w", projectID, err)
	}
	if room.Subnets, err = b.addresses(ctx, subnetIDs); err != nil {
		return sdn.Room{}, fmt.Errorf("reading the free addresses of subnets %q: %w", subnetIDs, err)
	}
	return room, nil
}

// hidden reports whether an error only means that nothing is visible.
func hidden(err error) bool {
	return errors.Is(err, sdn.ErrForbidden) || errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid)
}

// portQuota returns nil if it is not to be known.
func (b *Neutron) portQuota(ctx context.Context, projectID string) (*sdn.Usage, error) {
	quotas, err := b.projectQuotas(ctx, projectID)
	if hidden(err) {
		return nil, nil
	}
	q, ok := quotas["port"]
	if err != nil || !ok {
		return nil, err
	}
	return &q, nil
}

// projectQuotas returns usage and limits of a project, an empty one of the credential's, by
// Neutron's words. ErrNotFound if Neutron does not tell, or the credential is of no project.
func (b *Neutron) projectQuotas(ctx context.Context, projectID string) (map[string]sdn.Usage, error) {
	projectID, err := b.ProjectOr(ctx, projectID)
	switch {
	case err != nil:
		return nil, err
	case projectID == "":
		return nil, fmt.Errorf("the credential is of no project: %w", sdn.ErrNotFound)
	}
	var body struct {
		Quota map[string]struct{ Limit, Used, Reserved int } `json:"quota"`
	}
	err = b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"quotas", projectID, "details.json"}, Out: &body, Subject: noSuchPath})
	if err != nil {
		return nil, err
	}
	out := make(map[string]sdn.Usage, len(body.Quota))
	for kind, q := range body.Quota {
		out[kind] = sdn.Usage{Used: q.Used + q.Reserved, Limit: q.Limit}
	}
	return out, nil
}

// addresses returns what is known of subnets.
func (b *Neutron) addresses(ctx context.Context, subnetIDs []string) (map[string]sdn.Usage, error) {
	var networks []string
	for _, id := range subnetIDs {
		s, err := b.details.subnet(ctx, id)
		if hidden(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		networks = append(networks, s.networkID)
	}
	out, err := b.networkAddresses(ctx, distinct(networks))
	maps.DeleteFunc(out, func(id string, _ sdn.Usage) bool { return !slices.Contains(subnetIDs, id) })
	return out, err
}

// networkAddresses returns what is known of the subnets of networks.
func (b *Neutron) networkAddresses(ctx context.Context, networkIDs []string) (map[string]sdn.Usage, error) {
	out := map[string]sdn.Usage{}
	if len(networkIDs) == 0 {
		return out, nil
	}
	query := url.Values{"fields": {"subnet_ip_availability"}, "network_id": networkIDs}
	// A list shows nothing to whom it is not for; a single network would be a 404.
	var body struct {
		Networks []struct {
			Subnets []struct {
				ID    string      `json:"subnet_id"`
				Used  json.Number `json:"used_ips"`
				Total json.Number `json:"total_ips"` // 2⁶⁴ and more with IPv6
			} `json:"subnet_ip_availability"`
		} `json:"network_ip_availabilities"`
	}
	err := b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"network-ip-availabilities"}, Query: query, Out: &body, Subject: noSuchPath})
	if err != nil && !hidden(err) {
		return nil, err
	}
	for _, n := range body.Networks {
		for _, s := range n.Subnets {
			out[s.ID] = sdn.Usage{Used: bounded(s.Used), Limit: bounded(s.Total)}
		}
	}
	return out, nil
}

// bounded is a whole number, or the largest int there is.
func bounded(n json.Number) int {
	i, _ := n.Int64() // which returns the largest one with its error
	return int(i)
}
