// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// Memory puts the world between a cloud in memory and its callers, and returns it as the world's
// Cloud. It uses the cloud's hooks.
func (w *World) Memory(c *memory.Cloud) Cloud {
	m := &memoryCloud{w: w, cloud: c, begun: map[string]*passage{}}
	c.Before, c.After = m.before, m.after
	return m
}

type memoryCloud struct {
	w     *World
	cloud *memory.Cloud
	mu    sync.Mutex
	begun map[string]*passage
}

func (m *memoryCloud) before(ctx context.Context, call string, n int) error {
	p := processOf(ctx)
	if p == nil {
		m.w.fault("%s is called by nobody: the context is not that of Life.Start", call)
		return nil
	}
	x, err := m.w.beginCloud(p, Call{
		To: TheCloud, What: call, Write: !memory.Reads(call), Inventory: call == memory.ListPorts || call == memory.ListLoadBalancers,
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %w", call, sdn.ErrUnavailable, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun[fmt.Sprint(call, n)] = x
	return nil
}

func (m *memoryCloud) after(_ context.Context, call string, n int) error {
	key := fmt.Sprint(call, n)
	m.mu.Lock()
	x := m.begun[key]
	delete(m.begun, key)
	m.mu.Unlock()
	if x == nil {
		return nil
	}
	if err := m.w.endCloud(x); err != nil { //nolint:contextcheck // the world looks for itself, also when who asked is gone
		return fmt.Errorf("%s: %w: %w", call, sdn.ErrUnavailable, err)
	}
	return nil
}

// Resources implements Cloud.
func (m *memoryCloud) Resources() ([]Resource, error) {
	var out []Resource
	for _, item := range m.cloud.Inventory() {
		content := item.Port
		content.Active = false // only the cloud changes it
		out = append(out, Resource{
			Kind: "port", ID: item.Port.ID, Cluster: item.Cluster, Owner: item.Port.Owner, Content: fmt.Sprintf("%+v", content),
		})
	}
	for _, item := range m.cloud.LoadBalancers() {
		lb := item.LoadBalancer
		content := fmt.Sprintf("%+v %d listeners at %+v", lb.Name, len(lb.Listeners), lb.VIP)
		out = append(out, Resource{Kind: "loadbalancer", ID: lb.ID, Cluster: item.Cluster, Owner: lb.Owner, Content: content})
	}
	for _, item := range m.cloud.FloatingIPs() {
		f := item.FloatingIP
		out = append(out, Resource{Kind: "floatingip", ID: f.ID, Cluster: item.Cluster, Owner: f.Owner, Content: fmt.Sprintf("%+v", f)})
	}
	for _, item := range m.cloud.Networks() {
		n := item.Network
		r := Resource{Kind: "network", ID: n.ID, Cluster: item.Cluster, Owner: n.Owner, Project: n.ProjectID, Content: fmt.Sprintf("%s with MTU %d", n.Name, n.MTU)}
		out = append(out, r)
		for _, s := range n.Subnets {
			if item.Cluster != "" {
				r.Kind, r.ID, r.Content = "subnet", s.ID, fmt.Sprintf("%+v", s)
				out = append(out, r)
			}
		}
	}
	return out, nil
}
