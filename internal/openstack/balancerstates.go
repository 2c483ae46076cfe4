// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"net/http"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// wireStates is a node of the tree of states; a load balancer of LBaaS v2 has those
// of what is below it nowhere else. Octavia's has all of a member but its subnet.
type wireStates struct {
	wireState
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Address   string       `json:"address"`
	Port      int32        `json:"protocol_port"`
	Listeners []wireStates `json:"listeners"`
	Pools     []wireStates `json:"pools"`
	Members   []wireStates `json:"members"`
}

// knownMembers returns the members of pools, by one request for all, as far as
// their subnets are known: those cannot change.
func (b *Backend) knownMembers(ctx context.Context, balancerID string, pools []wirePool) (map[string][]wireMember, error) {
	filled := 0
	for _, p := range pools {
		if len(p.Members) > 0 {
			filled++
		}
	}
	if filled < 2 || b.balancing() == lbaas {
		return nil, nil
	}
	tree, err := b.readStates(ctx, balancerID)
	if err != nil {
		return nil, err
	}
	known := map[string][]wireMember{}
	for _, l := range tree.Listeners {
		for _, p := range l.Pools {
			if all, ok := b.balancers.withSubnets(p); ok {
				known[p.ID] = all
			}
		}
	}
	return known, nil
}

// withSubnets returns the members in a tree, if all their subnets are known.
func (l *balancers) withSubnets(p wireStates) ([]wireMember, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []wireMember
	for _, m := range p.Members {
		subnet, ok := l.subnets[p.ID][m.ID]
		if !ok {
			return nil, false
		}
		all = append(all, wireMember{wireState: m.wireState, ID: m.ID, Name: m.Name, Address: m.Address, Port: m.Port, SubnetID: subnet})
	}
	return all, len(all) > 0
}

// keepSubnets notes the subnets of a pool's members.
func (l *balancers) keepSubnets(poolID string, members []wireMember) {
	kept := map[string]string{}
	for _, m := range members {
		kept[m.ID] = m.SubnetID
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subnets[poolID] = kept
}

func (b *Backend) readStates(ctx context.Context, balancerID string) (wireStates, error) {
	var body struct {
		Statuses struct {
			LoadBalancer wireStates `json:"loadbalancer"`
		}
	}
	if err := b.lb(ctx, http.MethodGet, balancerID, nil, &body, "loadbalancers", balancerID, "statuses"); err != nil {
		return wireStates{}, fmt.Errorf("reading the states below it: %w", err)
	}
	return body.Statuses.LoadBalancer, nil
}

// addStates reads the states of what is below a load balancer.
func (b *Backend) addStates(ctx context.Context, lb *sdn.LoadBalancer) error {
	tree, err := b.readStates(ctx, lb.ID)
	if err != nil {
		return err
	}
	states := map[string]wireState{}
	tree.collect(states)
	for i := range lb.Listeners {
		l := &lb.Listeners[i]
		l.Provisioning, l.Operating = states[l.ID].pair()
		if l.Pool == nil {
			continue
		}
		l.Pool.Provisioning, l.Pool.Operating = states[l.Pool.ID].pair()
		for j := range l.Pool.Members {
			m := &l.Pool.Members[j]
			m.Provisioning, m.Operating = states[m.ID].pair()
		}
	}
	return nil
}

func (w wireState) pair() (sdn.Provisioning, string) {
	return sdn.Provisioning(w.Provisioning), w.Operating
}

func (s wireStates) collect(into map[string]wireState) {
	into[s.ID] = s.wireState
	for _, some := range [][]wireStates{s.Listeners, s.Pools, s.Members} {
		for _, one := range some {
			one.collect(into)
		}
	}
}
