// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"net/url"
	"slices"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// noSuchPath is Neutron's word for what it does not know, or does not show to
// this credential, where no object is meant.
const noSuchPath = "HTTPNotFound"

// Room implements sdn.Capacity with two requests at most. A subnet's addresses
// are those of its allocation pools; Neutron counts those that are used outside of
// them, as a router's, too.
func (b *Neutron) Room(ctx context.Context, projectID string, subnetIDs []string) (sdn.Room, error) {
	var room sdn.Room
	var err error
	if room.Ports, err = b.portQuota(ctx, projectID); err != nil {
		return sdn.Room{}, fmt.Errorf("asking for the port quota of project %q: %w", projectID, err)
	}
	if room.Subnets, err = b.addresses(ctx, subnetIDs); err != nil {
		return sdn.Room{}, fmt.Errorf("asking for the addresses of subnets %q: %w", subnetIDs, err)
	}
	return room, nil
}

// hidden reports whether an error says no more than that there is nothing to see.
func hidden(err error) bool {
	return errors.Is(err, sdn.ErrForbidden) || errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid)
}

// portQuota returns nil if it is not to be known.
func (b *Neutron) portQuota(ctx context.Context, projectID string) (*sdn.Usage, error) {
	own, err := b.Project(ctx)
	if err != nil {
		return nil, err
	}
	if projectID == "" {
		projectID = own
	}
	if projectID == "" {
		return nil, nil // a credential that is of no project
	}
	var body struct {
		Quota map[string]struct{ Limit, Used, Reserved int } `json:"quota"`
	}
	err = b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"quotas", projectID, "details.json"}, Out: &body, Subject: noSuchPath})
	if hidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	q, ok := body.Quota["port"]
	if !ok {
		return nil, nil
	}
	return &sdn.Usage{Used: q.Used + q.Reserved, Limit: q.Limit}, nil
}

// addresses returns what is known of subnets.
func (b *Neutron) addresses(ctx context.Context, subnetIDs []string) (map[string]sdn.Usage, error) {
	out := map[string]sdn.Usage{}
	query := url.Values{"fields": {"subnet_ip_availability"}}
	for _, id := range subnetIDs {
		s, err := b.details.subnet(ctx, id)
		if hidden(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(query["network_id"], s.networkID) {
			query.Add("network_id", s.networkID)
		}
	}
	if len(query["network_id"]) == 0 {
		return out, nil
	}
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
			if slices.Contains(subnetIDs, s.ID) {
				out[s.ID] = sdn.Usage{Used: bounded(s.Used), Limit: bounded(s.Total)}
			}
		}
	}
	return out, nil
}

// bounded is a whole number, or the largest int there is.
func bounded(n json.Number) int {
	i, ok := new(big.Int).SetString(n.String(), 10)
	if !ok {
		return 0
	}
	if !i.IsInt64() || i.Int64() > math.MaxInt {
		return math.MaxInt
	}
	return int(i.Int64())
}
