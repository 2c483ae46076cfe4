// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Features implements sdn.LoadBalancers. If the main session has to guess the cloud's default
// provider, the one that made the last load balancer may know it.
func (c *Cloud) Features(ctx context.Context, provider string) (sdn.Features, error) {
	f, err := c.main.Features(ctx, provider)
	c.mu.Lock()
	taught := c.taught
	c.mu.Unlock()
	if err == nil && f.Unsure && taught != nil && taught != c.main {
		if other, err := taught.Features(ctx, provider); err == nil {
			return other, nil
		}
	}
	return f, err
}

// CreateLoadBalancer implements sdn.LoadBalancers.
func (c *Cloud) CreateLoadBalancer(ctx context.Context, owner sdn.Owner, lb sdn.LoadBalancer) (sdn.LoadBalancer, error) {
	k := c.of(lb.ProjectID)
	made, err := k.CreateLoadBalancer(ctx, owner, lb)
	c.keep(k, made.ID)
	if err == nil {
		c.mu.Lock()
		c.taught = k
		c.mu.Unlock()
	}
	return made, k.explain(err)
}

// LoadBalancer implements sdn.LoadBalancers.
func (c *Cloud) LoadBalancer(ctx context.Context, id string) (sdn.LoadBalancer, error) {
	return read(ctx, c, Balancer, id, func(lb sdn.LoadBalancer) string { return lb.ProjectID }, func(s Session) (sdn.LoadBalancer, error) { return s.LoadBalancer(ctx, id) })
}

// ListLoadBalancers implements sdn.LoadBalancers.
func (c *Cloud) ListLoadBalancers(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	return list(c, func(lb sdn.LoadBalancerSummary) string { return lb.ID }, func(lb sdn.LoadBalancerSummary) string { return lb.ProjectID },
		func(k *credential) ([]sdn.LoadBalancerSummary, error) { return k.ListLoadBalancers(ctx) })
}

// DeleteLoadBalancer implements sdn.LoadBalancers.
func (c *Cloud) DeleteLoadBalancer(ctx context.Context, id string) error {
	return c.remove(ctx, Balancer, id, func(s Session) error { return s.DeleteLoadBalancer(ctx, id) })
}

// FreeVIP implements sdn.LoadBalancers.
func (c *Cloud) FreeVIP(ctx context.Context, projectID string, vip v1.VIPAddress, portID string) error {
	k := c.of(projectID)
	return k.explain(k.FreeVIP(ctx, projectID, vip, portID))
}

// LeftVIPs implements sdn.LoadBalancers.
func (c *Cloud) LeftVIPs(ctx context.Context, projectID, subnetID string) (map[string]v1.VIPAddress, error) {
	return in(c, projectID, nil, func(s Session) (map[string]v1.VIPAddress, error) { return s.LeftVIPs(ctx, projectID, subnetID) })
}

// MarkLoadBalancer implements sdn.LoadBalancers.
func (c *Cloud) MarkLoadBalancer(ctx context.Context, id string, owner sdn.Owner) error {
	return c.change(ctx, Balancer, id, func(s Session) error { return s.MarkLoadBalancer(ctx, id, owner) })
}

// FailOver implements sdn.LoadBalancers.
func (c *Cloud) FailOver(ctx context.Context, id string) error {
	return c.change(ctx, Balancer, id, func(s Session) error { return s.FailOver(ctx, id) })
}

// CreateListener implements sdn.LoadBalancers.
func (c *Cloud) CreateListener(ctx context.Context, loadBalancerID string, l sdn.Listener) (sdn.Listener, error) {
	return read(ctx, c, Balancer, loadBalancerID, nil, func(s Session) (sdn.Listener, error) { return s.CreateListener(ctx, loadBalancerID, l) })
}

// UpdateListener implements sdn.LoadBalancers.
func (c *Cloud) UpdateListener(ctx context.Context, loadBalancerID, id string, l sdn.Listener) error {
	return c.change(ctx, Balancer, loadBalancerID, func(s Session) error { return s.UpdateListener(ctx, loadBalancerID, id, l) })
}

// DeleteListener implements sdn.LoadBalancers.
func (c *Cloud) DeleteListener(ctx context.Context, loadBalancerID, id string) error {
	return c.remove(ctx, Balancer, loadBalancerID, func(s Session) error { return s.DeleteListener(ctx, loadBalancerID, id) })
}

// CreatePool implements sdn.LoadBalancers.
func (c *Cloud) CreatePool(ctx context.Context, loadBalancerID, listenerID string, p sdn.Pool) (sdn.Pool, error) {
	return read(ctx, c, Balancer, loadBalancerID, nil, func(s Session) (sdn.Pool, error) { return s.CreatePool(ctx, loadBalancerID, listenerID, p) })
}

// UpdatePool implements sdn.LoadBalancers.
func (c *Cloud) UpdatePool(ctx context.Context, loadBalancerID, id string, p sdn.Pool) error {
	return c.change(ctx, Balancer, loadBalancerID, func(s Session) error { return s.UpdatePool(ctx, loadBalancerID, id, p) })
}

// DeletePool implements sdn.LoadBalancers.
func (c *Cloud) DeletePool(ctx context.Context, loadBalancerID, id string) error {
	return c.remove(ctx, Balancer, loadBalancerID, func(s Session) error { return s.DeletePool(ctx, loadBalancerID, id) })
}

// ChangeMembers implements sdn.LoadBalancers.
func (c *Cloud) ChangeMembers(ctx context.Context, loadBalancerID, poolID string, add, remove []sdn.Member) error {
	return c.change(ctx, Balancer, loadBalancerID, func(s Session) error { return s.ChangeMembers(ctx, loadBalancerID, poolID, add, remove) })
}
