// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

const (
	// leftoverName is how OVN's driver begins the names of its VIPs' ports; the load
	// balancer's ID follows.
	leftoverName = "ovn-lb-vip-"
	// leftoverAge: a load balancer that is being made has its port before Octavia shows
	// it, and one with many members is being made for minutes.
	leftoverAge = 15 * time.Minute
)

type leftoverBody struct {
	Ports []struct {
		ID      string    `json:"id"`
		Name    string    `json:"name"`
		Created time.Time `json:"created_at"`
	} `json:"ports"`
}

// freeLeftover removes the port that keeps a VIP if that is of a load balancer that
// there is not, and reports whether it did. OVN's driver (3.0.0) leaves such a port
// behind if something below a new load balancer is refused, as for a quota: nobody
// else would ever remove it, and its VIP would be lost to the Service. One that was
// made after since is of a request that has been refused; others have to be old.
func (b *Octavia) freeLeftover(ctx context.Context, vip v1.VIPAddress, since time.Time) bool {
	if vip.IP == "" {
		return false
	}
	query := url.Values{"fields": {"id", "name", "created_at"}, "fixed_ips": {"ip_address=" + vip.IP, "subnet_id=" + vip.SubnetID}}
	var body leftoverBody
	err := b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"ports"}, Query: query, Out: &body, Creates: true})
	if err != nil || len(body.Ports) != 1 {
		return false
	}
	p := body.Ports[0]
	balancer, is := strings.CutPrefix(p.Name, leftoverName)
	// Neutron says it in whole seconds.
	ours := !since.IsZero() && !p.Created.Before(since.Truncate(time.Second))
	if !is || p.Created.IsZero() || !ours && time.Since(p.Created) < leftoverAge {
		return false
	}
	if err := b.lb(ctx, http.MethodGet, balancer, nil, nil, "loadbalancers", balancer); !errors.Is(err, sdn.ErrNotFound) {
		return false
	}
	return b.Do(ctx, session.Request{Method: http.MethodDelete, Path: []string{"ports", p.ID}, Subject: "PortNotFound"}) == nil
}
