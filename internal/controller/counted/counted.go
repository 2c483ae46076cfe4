// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package counted counts the changes that the controller requests from the cloud for Services, by
// their result.
package counted

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var writes = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kuryr_loadbalancer_writes_total",
	Help: "Changes of load balancers, what is below them, floating IPs and security groups that the cloud was asked for, by how that went: " +
		"ok, Pending (the load balancer is busy: it is asked again), or the reason why not, as conditions have it.",
}, []string{"change", "result"})

func init() { metrics.Registry.MustRegister(writes) }

// wrote counts a change by its result.
func wrote(change string, err error) {
	result := "ok"
	if err != nil {
		result = outcome.Of(outcome.LoadBalancer, err).Reason
	}
	writes.WithLabelValues(change, result).Inc()
}

// LoadBalancers returns c with its changes counted; nil for nil.
func LoadBalancers(c sdn.LoadBalancers) sdn.LoadBalancers {
	if c == nil {
		return nil
	}
	return countedBalancers{c}
}

// FloatingIPs returns c with its changes counted; nil for nil.
func FloatingIPs(c sdn.FloatingIPs) sdn.FloatingIPs {
	if c == nil {
		return nil
	}
	return countedAddresses{c}
}

// SecurityGroups returns c with its changes counted; nil for nil.
func SecurityGroups(c sdn.SecurityGroups) sdn.SecurityGroups {
	if c == nil {
		return nil
	}
	return countedGroups{c}
}

type countedBalancers struct{ sdn.LoadBalancers }

func (c countedBalancers) CreateLoadBalancer(ctx context.Context, owner sdn.Owner, lb sdn.LoadBalancer) (sdn.LoadBalancer, error) {
	made, err := c.LoadBalancers.CreateLoadBalancer(ctx, owner, lb)
	wrote("CreateLoadBalancer", err)
	return made, err
}

func (c countedBalancers) DeleteLoadBalancer(ctx context.Context, id string) error {
	err := c.LoadBalancers.DeleteLoadBalancer(ctx, id)
	wrote("DeleteLoadBalancer", err)
	return err
}

func (c countedBalancers) MarkLoadBalancer(ctx context.Context, id string, owner sdn.Owner) error {
	err := c.LoadBalancers.MarkLoadBalancer(ctx, id, owner)
	wrote("MarkLoadBalancer", err)
	return err
}

func (c countedBalancers) FailOver(ctx context.Context, id string) error {
	err := c.LoadBalancers.FailOver(ctx, id)
	wrote("FailOver", err)
	return err
}

func (c countedBalancers) CreateListener(ctx context.Context, loadBalancerID string, l sdn.Listener) (sdn.Listener, error) {
	made, err := c.LoadBalancers.CreateListener(ctx, loadBalancerID, l)
	wrote("CreateListener", err)
	return made, err
}

func (c countedBalancers) UpdateListener(ctx context.Context, id string, l sdn.Listener) error {
	err := c.LoadBalancers.UpdateListener(ctx, id, l)
	wrote("UpdateListener", err)
	return err
}

func (c countedBalancers) DeleteListener(ctx context.Context, loadBalancerID, id string) error {
	err := c.LoadBalancers.DeleteListener(ctx, loadBalancerID, id)
	wrote("DeleteListener", err)
	return err
}

func (c countedBalancers) CreatePool(ctx context.Context, listenerID string, p sdn.Pool) (sdn.Pool, error) {
	made, err := c.LoadBalancers.CreatePool(ctx, listenerID, p)
	wrote("CreatePool", err)
	return made, err
}

func (c countedBalancers) UpdatePool(ctx context.Context, id string, p sdn.Pool) error {
	err := c.LoadBalancers.UpdatePool(ctx, id, p)
	wrote("UpdatePool", err)
	return err
}

func (c countedBalancers) DeletePool(ctx context.Context, loadBalancerID, id string) error {
	err := c.LoadBalancers.DeletePool(ctx, loadBalancerID, id)
	wrote("DeletePool", err)
	return err
}

func (c countedBalancers) ChangeMembers(ctx context.Context, poolID string, add, remove []sdn.Member) error {
	err := c.LoadBalancers.ChangeMembers(ctx, poolID, add, remove)
	wrote("ChangeMembers", err)
	return err
}

// FreeVIP also counts calls that found nothing to free: the callers do not know.
func (c countedBalancers) FreeVIP(ctx context.Context, projectID string, vip v1.VIPAddress) error {
	err := c.LoadBalancers.FreeVIP(ctx, projectID, vip)
	wrote("FreeVIP", err)
	return err
}

type countedAddresses struct{ sdn.FloatingIPs }

func (c countedAddresses) CreateFloatingIP(ctx context.Context, owner sdn.Owner, r sdn.FloatingIPRequest) (sdn.FloatingIP, error) {
	made, err := c.FloatingIPs.CreateFloatingIP(ctx, owner, r)
	wrote("CreateFloatingIP", err)
	return made, err
}

func (c countedAddresses) Associate(ctx context.Context, id, portID string) error {
	err := c.FloatingIPs.Associate(ctx, id, portID)
	wrote("Associate", err)
	return err
}

func (c countedAddresses) Dissociate(ctx context.Context, id, portID string) error {
	err := c.FloatingIPs.Dissociate(ctx, id, portID)
	wrote("Dissociate", err)
	return err
}

func (c countedAddresses) DeleteFloatingIP(ctx context.Context, id, portID string) error {
	err := c.FloatingIPs.DeleteFloatingIP(ctx, id, portID)
	wrote("DeleteFloatingIP", err)
	return err
}

func (c countedAddresses) DisownFloatingIP(ctx context.Context, id string) error {
	err := c.FloatingIPs.DisownFloatingIP(ctx, id)
	wrote("DisownFloatingIP", err)
	return err
}

type countedGroups struct{ sdn.SecurityGroups }

// EnsureSecurityGroup also counts calls that found the group unchanged: the callers do not know.
func (c countedGroups) EnsureSecurityGroup(ctx context.Context, owner sdn.Owner, want sdn.SecurityGroup) (sdn.SecurityGroup, error) {
	g, err := c.SecurityGroups.EnsureSecurityGroup(ctx, owner, want)
	wrote("EnsureSecurityGroup", err)
	return g, err
}

func (c countedGroups) DeleteSecurityGroup(ctx context.Context, id string) error {
	err := c.SecurityGroups.DeleteSecurityGroup(ctx, id)
	wrote("DeleteSecurityGroup", err)
	return err
}
