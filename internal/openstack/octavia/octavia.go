// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package octavia sends the requests to the service that serves load balancers: Octavia, or
// Neutron with LBaaS v2. It creates, changes, reads and lists load balancers, and learns what a
// provider can do. The service's fields are in wire.go. Package session interprets the status
// of answers, and package neutron serves floating IPs.
package octavia

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Octavia is one cluster's view of one load-balancing service. It is safe for concurrent use.
type Octavia struct {
	*session.Client
	dialect   *dialect
	balancers *balancers
	api       sdn.Answers[struct{}, api]
	providers sdn.Answers[struct{}, []string]
}

// New returns the load-balancing service as s reaches it. It sends no request.
func New(s *session.Client) *Octavia {
	d := &octavia
	if s.Config.LoadBalancerAPI == session.LBaaSv2API {
		d = &lbaas
	}
	l := &balancers{own: map[string]fixed{}, able: map[capability]bool{}, usual: map[string]string{}}
	return &Octavia{Client: s, dialect: d, balancers: l}
}

// Remembered counts the load balancers of which something is kept. Nothing is kept of those that no
// longer exist.
func (b *Octavia) Remembered() int {
	l := b.balancers
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.own)
}

// balancers is what this process has learned of the load-balancing service.
type balancers struct {
	mu    sync.Mutex
	own   map[string]fixed    // the load balancers of this cluster, by ID: a change needs no check of the mark
	able  map[capability]bool // true: a load balancer shows it; false: it was refused
	whole bool                // a list of all load balancers has succeeded
	usual map[string]string   // default provider by flavor; "" is without a flavor
}

// fixed is what never changes of a load balancer.
type fixed struct{ provider, subnet string }

// api is what the load-balancing API can do.
type api struct {
	*dialect
	minor int // of v2; Octavia's root document says which feature came with which version
}

// The minor version that each feature came with.
const (
	withUDP          = 1
	withTimeouts     = 1
	withTags         = 5
	withFlavors      = 6
	withAdditive     = 11 // members can be added to a pool in one request
	withSourceRanges = 12
	withSourceIPPort = 13 // and listeners of several protocols on one port
	withZones        = 14
	withProxyV2      = 22
	withSCTP         = 23
	withMoreVIPs     = 26 // the version of Zed and 2023.1
	afterOVNAffinity = 27 // of 2024.1; OVN's provider has affinity, but of TCP, from 2023.1 on
	tellsAffinity    = 30 // of 2025.1, where it was shown; releases between Zed and that were not tried
)

func (a api) has(minor int) bool { return a.minor >= minor }

// balancerAPI returns the API version, from a cache.
func (b *Octavia) balancerAPI(ctx context.Context) (api, error) {
	if !b.dialect.versioned {
		return api{dialect: b.dialect}, nil
	}
	a, err := b.api.Get(ctx, struct{}{}, b.Config.CacheAge, b.askVersions)
	if err != nil {
		return api{}, fmt.Errorf("cannot read Octavia's API versions: %w", err)
	}
	return a, nil
}

func (b *Octavia) askVersions(ctx context.Context) (api, error) {
	var body struct {
		Versions []struct{ ID string }
	}
	if err := b.Do(ctx, session.Request{To: b.dialect.service, Method: http.MethodGet, Out: &body}); err != nil {
		return api{}, err
	}
	now := api{dialect: b.dialect}
	for _, v := range body.Versions {
		if minor, ok := strings.CutPrefix(v.ID, "v2."); ok {
			n, _ := strconv.Atoi(minor)
			now.minor = max(now.minor, n)
		}
	}
	return now, nil
}

// lb sends a request to the load-balancing API.
func (b *Octavia) lb(ctx context.Context, method, id string, body, out any, path ...string) error {
	return b.Do(ctx, session.Request{To: b.dialect.service, Method: method, Path: append([]string{"lbaas"}, path...), Body: body, Out: out, Subject: id})
}

// ask is lb for a request whose answer has one object, of the collection that the path begins with.
func ask[T any](ctx context.Context, b *Octavia, method, id string, body any, path ...string) (T, error) {
	var out map[string]T
	err := b.lb(ctx, method, id, body, &out, path...)
	return out[strings.TrimSuffix(path[0], "s")], err
}

// note notes a load balancer of this cluster.
func (l *balancers) note(w wireBalancer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own[w.ID] = fixed{w.Provider, w.VIPSubnetID}
}

// drop forgets a load balancer.
func (l *balancers) drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.own, id)
}

// ownBalancer checks that a load balancer is this cluster's: ErrNotFound if not. It asks only if it is
// not known.
func (b *Octavia) ownBalancer(ctx context.Context, id string) (fixed, error) {
	b.balancers.mu.Lock()
	known, ok := b.balancers.own[id]
	b.balancers.mu.Unlock()
	if ok {
		return known, nil
	}
	w, err := b.readBalancer(ctx, id)
	return fixed{w.Provider, w.VIPSubnetID}, err
}

// readBalancer reads a load balancer of this cluster and remembers it.
func (b *Octavia) readBalancer(ctx context.Context, id string) (wireBalancer, error) {
	if id == "" {
		return wireBalancer{}, fmt.Errorf("the request names no load balancer: %w", sdn.ErrNotFound)
	}
	w, err := ask[wireBalancer](ctx, b, http.MethodGet, id, nil, "loadbalancers", id)
	if err != nil {
		return wireBalancer{}, err
	}
	if w.mark().Cluster != b.Config.ClusterID {
		return wireBalancer{}, fmt.Errorf("it has no mark of cluster %s: %w", b.Config.ClusterID, sdn.ErrNotFound)
	}
	if w.Provisioning == string(sdn.ProvisioningDeleted) {
		return wireBalancer{}, fmt.Errorf("it is deleted: %w", sdn.ErrNotFound)
	}
	b.balancers.note(w)
	return w, nil
}
