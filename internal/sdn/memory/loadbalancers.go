// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var (
	_ sdn.LoadBalancers = (*Backend)(nil)
	_ sdn.FloatingIPs   = (*Backend)(nil)
	_ sdn.Subnets       = (*Backend)(nil)
)

// answer runs a call with a result. If the answer is lost, so is the result.
func answer[T any](ctx context.Context, b *Backend, call string, effect func() (T, error)) (T, error) {
	var out, none T
	var stopped error
	err := b.cloud.do(ctx, call, func() error {
		out, stopped = effect()
		return stopped
	})
	if !errors.Is(err, stopped) {
		return none, err
	}
	return out, err
}

// Features implements sdn.LoadBalancers.
func (b *Backend) Features(ctx context.Context, provider string) (sdn.Features, error) {
	return answer(ctx, b, GetFeatures, func() (sdn.Features, error) {
		p := b.cloud.providers[provider]
		if p == nil {
			return sdn.Features{}, &sdn.InvalidError{Field: sdn.FieldProvider, Value: provider, Err: fmt.Errorf("provider %q does not exist: %w", provider, sdn.ErrInvalid)}
		}
		f := p.Features
		if provider == "" && b.cloud.hidden {
			f = b.cloud.providers["amphora"].Features
			f.Unsure = true
		}
		f.Protocols, f.Algorithms, f.Monitors = slices.Clone(f.Protocols), slices.Clone(f.Algorithms), slices.Clone(f.Monitors)
		return f, nil
	})
}

// CreateLoadBalancer implements sdn.LoadBalancers.
func (b *Backend) CreateLoadBalancer(ctx context.Context, owner sdn.Owner, lb sdn.LoadBalancer) (sdn.LoadBalancer, error) {
	return answer(ctx, b, CreateLoadBalancer, func() (sdn.LoadBalancer, error) {
		made, err := b.cloud.createBalancer(b.cluster, owner, lb)
		if err != nil {
			return sdn.LoadBalancer{}, fmt.Errorf("creating load balancer %q: %w", lb.Name, err)
		}
		return made, nil
	})
}

// LoadBalancer implements sdn.LoadBalancers.
func (b *Backend) LoadBalancer(ctx context.Context, id string) (sdn.LoadBalancer, error) {
	return answer(ctx, b, GetLoadBalancer, func() (sdn.LoadBalancer, error) {
		lb, err := b.cloud.look(b.cluster, id)
		if err != nil {
			return sdn.LoadBalancer{}, fmt.Errorf("reading: %w", err)
		}
		return cloneBalancer(lb.LoadBalancer), nil
	})
}

// ListLoadBalancers implements sdn.LoadBalancers. The result is sorted by ID.
func (b *Backend) ListLoadBalancers(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	return answer(ctx, b, ListLoadBalancers, func() ([]sdn.LoadBalancerSummary, error) {
		var out []sdn.LoadBalancerSummary
		for id := range b.cloud.balancers {
			lb, err := b.cloud.look(b.cluster, id)
			if err != nil {
				continue
			}
			out = append(out, sdn.LoadBalancerSummary{ID: id, Name: lb.Name, Owner: lb.Owner, ProjectID: lb.ProjectID, VIPPortID: lb.VIPPortID, Provisioning: lb.Provisioning})
		}
		slices.SortFunc(out, func(x, y sdn.LoadBalancerSummary) int { return strings.Compare(x.ID, y.ID) })
		return out, nil
	})
}

// DeleteLoadBalancer implements sdn.LoadBalancers.
func (b *Backend) DeleteLoadBalancer(ctx context.Context, id string) error {
	return b.cloud.do(ctx, DeleteLoadBalancer, func() error {
		lb, _ := b.cloud.look(b.cluster, id)
		if lb != nil && !lb.isBusy() {
			b.cloud.begin(lb, sdn.ProvisioningDeleting, b.cloud.leaves(id, sdn.ProvisioningDeleted))
		}
		if lb != nil && b.cloud.balancers[id] != nil {
			return busy(lb)
		}
		return nil
	})
}

// FreeVIP implements sdn.LoadBalancers.
func (b *Backend) FreeVIP(ctx context.Context, _ string, vip v1.VIPAddress, _ string) error {
	return b.cloud.do(ctx, FreeVIP, func() error {
		if at := (addressKey{vip.SubnetID, vip.IP}); b.cloud.left[at] {
			delete(b.cloud.left, at)
			delete(b.cloud.used, at)
		}
		return nil
	})
}

// LeftVIPs implements sdn.LoadBalancers.
func (b *Backend) LeftVIPs(ctx context.Context, _, subnetID string) (map[string]v1.VIPAddress, error) {
	return answer(ctx, b, LeftVIPs, func() (map[string]v1.VIPAddress, error) {
		left := map[string]v1.VIPAddress{}
		for at := range b.cloud.left {
			if at.subnet == subnetID {
				left["left-at-"+at.ip] = v1.VIPAddress{IP: at.ip, SubnetID: subnetID}
			}
		}
		return left, nil
	})
}

// MarkLoadBalancer implements sdn.LoadBalancers.
func (b *Backend) MarkLoadBalancer(ctx context.Context, id string, owner sdn.Owner) error {
	return b.cloud.do(ctx, MarkLoadBalancer, func() error {
		lb, err := b.cloud.look(b.cluster, id)
		if err != nil {
			return fmt.Errorf("marking: %w", err)
		}
		if !lb.Unmarked {
			return nil
		}
		return b.change(lb, func(sdn.Features) error {
			lb.Owner, lb.Unmarked = owner, false
			return nil
		})
	})
}

// FailOver implements sdn.LoadBalancers.
func (b *Backend) FailOver(ctx context.Context, id string) error {
	return b.cloud.do(ctx, FailOver, func() error {
		lb, err := b.cloud.look(b.cluster, id)
		if err != nil {
			return fmt.Errorf("failing over: %w", err)
		}
		if f := b.cloud.providers[lb.Provider].Features; !f.FailOver {
			return unsupported(f, "failing over load balancer", id)
		}
		if lb.isBusy() {
			return busy(lb)
		}
		b.cloud.changed(lb)
		return nil
	})
}

func busy(lb *balancer) error {
	return &sdn.PendingError{What: fmt.Sprintf("load balancer %s, which is %s", lb.ID, lb.Provisioning), Retry: time.Second}
}

// change runs effect on a load balancer of this cluster that is ACTIVE. Any other one is busy,
// also one in ERROR. The caller holds the lock.
func (b *Backend) change(lb *balancer, effect func(sdn.Features) error) error {
	if lb.Provisioning != sdn.ProvisioningActive {
		return busy(lb)
	}
	if err := effect(b.cloud.providers[lb.Provider].Features); err != nil {
		return err
	}
	b.cloud.changed(lb)
	return nil
}

// CreateListener implements sdn.LoadBalancers. If a change makes the load balancer busy, the
// listener has no pool yet.
func (b *Backend) CreateListener(ctx context.Context, loadBalancerID string, l sdn.Listener) (sdn.Listener, error) {
	return answer(ctx, b, CreateListener, func() (out sdn.Listener, err error) {
		lb, err := b.cloud.look(b.cluster, loadBalancerID)
		if err != nil {
			return out, fmt.Errorf("creating listener %q: %w", l.Name, err)
		}
		atOnce := b.cloud.providers[lb.Provider].Busy == 0
		if err := b.change(lb, func(sdn.Features) error {
			made, err := b.cloud.addListener(lb, l, atOnce)
			if err == nil {
				out = cloneListener(*made)
			}
			return err
		}); err != nil {
			return out, fmt.Errorf("creating listener %q: %w", l.Name, err)
		}
		if l.Pool != nil && out.Pool == nil {
			return out, fmt.Errorf("creating the pool of listener %q: %w", l.Name, busy(lb))
		}
		return out, nil
	})
}

// UpdateListener implements sdn.LoadBalancers.
func (b *Backend) UpdateListener(ctx context.Context, loadBalancerID, id string, l sdn.Listener) error {
	return b.cloud.do(ctx, UpdateListener, func() error {
		lb, i := b.listener(loadBalancerID, id)
		if lb == nil {
			return fmt.Errorf("updating listener %s: %w", id, sdn.ErrNotFound)
		}
		return b.change(lb, func(f sdn.Features) error { return setListener(&lb.Listeners[i], f, l) })
	})
}

// DeleteListener implements sdn.LoadBalancers.
func (b *Backend) DeleteListener(ctx context.Context, loadBalancerID, id string) error {
	return b.cloud.do(ctx, DeleteListener, func() error {
		lb, i := b.listener(loadBalancerID, id)
		if lb == nil {
			return nil
		}
		half := lb.Listeners[i].Pool != nil && b.cloud.providers[lb.Provider].Halves
		if err := b.change(lb, func(sdn.Features) error {
			switch l := &lb.Listeners[i]; {
			case half:
				l.Pool = nil
			case b.cloud.undeletable[l.ID]:
				l.Pool, l.Provisioning, l.Operating = nil, sdn.ProvisioningError, "ERROR"
			default:
				lb.Listeners = slices.Delete(lb.Listeners, i, i+1)
			}
			return nil
		}); err != nil {
			return err
		}
		if half {
			return busy(lb)
		}
		return nil
	})
}

// CreatePool implements sdn.LoadBalancers.
func (b *Backend) CreatePool(ctx context.Context, loadBalancerID, listenerID string, p sdn.Pool) (sdn.Pool, error) {
	return answer(ctx, b, CreatePool, func() (out sdn.Pool, err error) {
		lb, i := b.listener(loadBalancerID, listenerID)
		if lb == nil {
			return out, fmt.Errorf("creating the pool of listener %s: %w", listenerID, sdn.ErrNotFound)
		}
		l := &lb.Listeners[i]
		err = b.change(lb, func(sdn.Features) error {
			if l.Pool != nil {
				return fmt.Errorf("listener %s has pool %s: %w", listenerID, l.Pool.ID, sdn.ErrConflict)
			}
			made, err := b.cloud.newPool(lb, *l, p)
			if err == nil {
				l.Pool, out = &made, clonePool(made)
			}
			return err
		})
		return out, err
	})
}

// UpdatePool implements sdn.LoadBalancers.
func (b *Backend) UpdatePool(ctx context.Context, loadBalancerID, id string, p sdn.Pool) error {
	return b.cloud.do(ctx, UpdatePool, func() error {
		lb, i := b.pool(loadBalancerID, id)
		if lb == nil {
			return fmt.Errorf("updating pool %s: %w", id, sdn.ErrNotFound)
		}
		return b.change(lb, func(f sdn.Features) error { return setPool(lb.Listeners[i].Pool, f, p) })
	})
}

// DeletePool implements sdn.LoadBalancers.
func (b *Backend) DeletePool(ctx context.Context, loadBalancerID, id string) error {
	return b.cloud.do(ctx, DeletePool, func() error {
		lb, i := b.pool(loadBalancerID, id)
		if lb == nil {
			return nil
		}
		return b.change(lb, func(sdn.Features) error {
			if b.cloud.undeletable[id] {
				p := clonePool(*lb.Listeners[i].Pool)
				p.Provisioning, p.Operating = sdn.ProvisioningError, "ERROR"
				lb.Listeners[i].Pool = &p
				return nil
			}
			lb.Listeners[i].Pool = nil
			return nil
		})
	})
}

// ChangeMembers implements sdn.LoadBalancers.
func (b *Backend) ChangeMembers(ctx context.Context, loadBalancerID, poolID string, add, remove []sdn.Member) error {
	return b.cloud.do(ctx, ChangeMembers, func() error {
		lb, i := b.pool(loadBalancerID, poolID)
		if lb == nil {
			return fmt.Errorf("changing members of pool %s: %w", poolID, sdn.ErrNotFound)
		}
		return b.change(lb, func(sdn.Features) error {
			p := clonePool(*lb.Listeners[i].Pool) // all or nothing
			for _, m := range add {
				if err := b.cloud.addMember(lb, &p, m); err != nil {
					return err
				}
			}
			for _, m := range remove {
				p.Members = b.cloud.without(p.Members, m)
			}
			more := len(p.Members) - len(lb.Listeners[i].Pool.Members)
			if quota := b.cloud.memberQuota; more > 0 && quota >= 0 && b.cloud.members()+more > quota {
				return fmt.Errorf("changing members of pool %s: quota of %d members: %w", poolID, quota, sdn.ErrQuota)
			}
			lb.Listeners[i].Pool = &p
			return nil
		})
	})
}

// members counts the members of all pools. The caller holds the lock.
func (c *Cloud) members() (n int) {
	for _, lb := range c.balancers {
		for i := range lb.Listeners {
			if p := lb.Listeners[i].Pool; p != nil {
				n += len(p.Members)
			}
		}
	}
	return n
}

// listener finds a listener of a load balancer of this cluster. The load balancer is nil if no such
// listener exists. The caller holds the lock.
func (b *Backend) listener(loadBalancerID, id string) (*balancer, int) {
	return b.find(loadBalancerID, func(l sdn.Listener) bool { return l.ID == id })
}

// pool finds the listener of a pool, as listener does.
func (b *Backend) pool(loadBalancerID, id string) (*balancer, int) {
	return b.find(loadBalancerID, func(l sdn.Listener) bool { return l.Pool != nil && l.Pool.ID == id })
}

func (b *Backend) find(loadBalancerID string, is func(sdn.Listener) bool) (*balancer, int) {
	lb, err := b.cloud.look(b.cluster, loadBalancerID)
	if err != nil {
		return nil, 0
	}
	if i := slices.IndexFunc(lb.Listeners, is); i >= 0 {
		return lb, i
	}
	return nil, 0
}
