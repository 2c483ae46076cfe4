// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ServeLoadBalancers sets whether the cloud has a load balancer service; a new cloud has one.
// Without it, calls about load balancers return ErrNoService. Existing load balancers stay.
func (c *Cloud) ServeLoadBalancers(serves bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unserved = !serves
}

// AddFlavors restricts the existing flavors to these and those added before.
func (c *Cloud) AddFlavors(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.flavors[id] = true
	}
}

// SetLoadBalancerQuota sets the quota of load balancers of each project; negative is no quota.
func (c *Cloud) SetLoadBalancerQuota(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lbQuota = n
}

// SetMemberQuota sets the quota of members, of all pools together; negative is no quota.
func (c *Cloud) SetMemberQuota(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memberQuota = n
}

// serves returns an error if the call needs load balancers and the cloud has none. The caller
// holds the lock.
func (c *Cloud) serves(call string) error {
	switch call {
	case GetFeatures, CreateLoadBalancer, GetLoadBalancer, ListLoadBalancers, DeleteLoadBalancer, MarkLoadBalancer, FailOver,
		CreateListener, UpdateListener, DeleteListener, CreatePool, UpdatePool, DeletePool, ChangeMembers, SurveyBalancing:
		if c.unserved {
			return fmt.Errorf("load balancers: %w: %w", sdn.ErrNoService, sdn.ErrUnsupported)
		}
	}
	return nil
}

// balancer is a load balancer and its pending change.
type balancer struct {
	cluster string           // empty: the load balancer is foreign
	busy    int              // calls that still find it busy; negative: busy until Settle
	next    sdn.Provisioning // the provisioning status that follows; empty: it is not busy
	sdn.LoadBalancer
}

func (lb *balancer) isBusy() bool { return lb.next != "" }

// Settle ends the pending change of a load balancer.
func (c *Cloud) Settle(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lb := c.balancers[id]; lb != nil && lb.isBusy() {
		c.settle(lb)
	}
}

// SetError puts a load balancer in ERROR.
func (c *Cloud) SetError(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lb := c.balancers[id]; lb != nil {
		lb.busy, lb.next, lb.Provisioning, lb.Operating = 0, "", sdn.ProvisioningError, "ERROR"
	}
}

// KeepInError makes the deletion of the load balancer, listener, pool or member with this ID end
// in ERROR, though it is accepted. The resource is still deleted with the resource that contains
// it. A pool is also deleted with its listener.
func (c *Cloud) KeepInError(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.undeletable == nil {
		c.undeletable = map[string]bool{}
	}
	c.undeletable[id] = true
}

// LoseMember makes a member known to the load balancers' API alone. This happens if the API is
// killed while it passes the member to the provider. The member's deletion is accepted and ends
// in ERROR, until the member is added again.
func (c *Cloud) LoseMember(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = map[string]bool{}
	}
	c.lost[id] = true
}

// leaves returns the status after a deletion: gone, or ERROR if the deletion of id must fail.
func (c *Cloud) leaves(id string, gone sdn.Provisioning) sdn.Provisioning {
	if c.undeletable[id] {
		return sdn.ProvisioningError
	}
	return gone
}

// without returns the members without one of them. If that one cannot be deleted, it stays, in
// ERROR.
func (c *Cloud) without(all []sdn.Member, gone sdn.Member) []sdn.Member {
	for i := range all {
		if m := &all[i]; same(gone)(*m) && (c.undeletable[m.ID] || c.lost[m.ID]) {
			m.Provisioning, m.Operating = sdn.ProvisioningError, "ERROR"
			return all
		}
	}
	return slices.DeleteFunc(all, same(gone))
}

// LoseTags removes a part of a load balancer's mark. The load balancer is still listed.
func (c *Cloud) LoseTags(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lb := c.balancers[id]; lb != nil {
		lb.Unmarked = true
	}
}

// EditLoadBalancer changes a load balancer, or anything below it, behind the backends' backs. A
// new part below it needs an ID.
func (c *Cloud) EditLoadBalancer(id string, edit func(*sdn.LoadBalancer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lb := c.balancers[id]; lb != nil {
		edit(&lb.LoadBalancer)
	}
}

// RemoveLoadBalancer removes a load balancer behind the backends' backs.
func (c *Cloud) RemoveLoadBalancer(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropBalancer(id)
}

// LeaveVIP marks a VIP as left behind by a refused creation, as by Octavia's drivers. It stays
// taken until FreeVIP.
func (c *Cloud) LeaveVIP(vip v1.VIPAddress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := addressKey{vip.SubnetID, vip.IP}
	c.left[at], c.used[at] = true, true
}

// TakenVIP reports whether a VIP is in use.
func (c *Cloud) TakenVIP(vip v1.VIPAddress) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used[addressKey{vip.SubnetID, vip.IP}]
}

// AddForeignLoadBalancer makes a load balancer without a mark and returns its ID. It panics where
// CreateLoadBalancer would refuse.
func (c *Cloud) AddForeignLoadBalancer(lb sdn.LoadBalancer) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	made, err := c.createBalancer("", sdn.Owner{}, lb)
	if err != nil {
		panic(err)
	}
	return made.ID
}

// BalancerItem is a load balancer of the cloud and its cluster.
type BalancerItem struct {
	Cluster      string // empty: it bears no cluster's mark
	LoadBalancer sdn.LoadBalancer
}

// LoadBalancers returns all load balancers, foreign ones included, in no order.
func (c *Cloud) LoadBalancers() []BalancerItem {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []BalancerItem
	for _, lb := range c.balancers {
		all = append(all, BalancerItem{Cluster: lb.cluster, LoadBalancer: cloneBalancer(lb.LoadBalancer)})
	}
	return all
}

// The caller of the functions below holds the lock.

// look returns a load balancer of a cluster. It counts as one call that finds it busy.
func (c *Cloud) look(cluster, id string) (*balancer, error) {
	lb := c.balancers[id]
	if lb == nil || lb.cluster != cluster {
		return nil, fmt.Errorf("load balancer %s: %w", id, sdn.ErrNotFound)
	}
	c.tick(lb)
	if c.balancers[id] == nil {
		return nil, fmt.Errorf("load balancer %s: %w", id, sdn.ErrNotFound)
	}
	return lb, nil
}

func (c *Cloud) tick(lb *balancer) {
	switch {
	case !lb.isBusy() || lb.busy < 0:
	case lb.busy == 0:
		c.settle(lb)
	default:
		lb.busy--
	}
}

func (c *Cloud) settle(lb *balancer) {
	lb.Provisioning, lb.Operating, lb.busy, lb.next = lb.next, "ONLINE", 0, ""
	if lb.Provisioning == sdn.ProvisioningError {
		lb.Operating = "ERROR"
	}
	if lb.Provisioning == sdn.ProvisioningDeleted {
		c.dropBalancer(lb.ID)
	}
}

// begin makes a load balancer busy for as many calls as its provider says. next is the status
// that follows.
func (c *Cloud) begin(lb *balancer, pending, next sdn.Provisioning) {
	p := c.providers[lb.Provider]
	if p.Broken && next == sdn.ProvisioningActive {
		next = sdn.ProvisioningError
	}
	lb.Provisioning, lb.next, lb.busy = pending, next, p.Busy
	if p.Busy == 0 {
		c.settle(lb)
	}
}

func (c *Cloud) changed(lb *balancer) {
	c.begin(lb, "PENDING_UPDATE", sdn.ProvisioningActive)
}

func (c *Cloud) dropBalancer(id string) {
	lb := c.balancers[id]
	if lb == nil {
		return
	}
	delete(c.used, addressKey{lb.VIP.SubnetID, lb.VIP.IP})
	for _, f := range c.floating {
		if f.PortID == lb.VIPPortID {
			f.PortID = ""
		}
	}
	delete(c.balancers, id)
}

// cloneBalancer keeps callers from changing the state of the cloud.
func cloneBalancer(lb sdn.LoadBalancer) sdn.LoadBalancer {
	lb.Listeners = slices.Clone(lb.Listeners)
	for i, l := range lb.Listeners {
		lb.Listeners[i] = cloneListener(l)
	}
	return lb
}

func cloneListener(l sdn.Listener) sdn.Listener {
	l.SourceRanges = slices.Clone(l.SourceRanges)
	l.ConnectionLimit = copied(l.ConnectionLimit)
	for _, t := range []**int64{&l.TimeoutClientData, &l.TimeoutMemberData, &l.TimeoutMemberConnect, &l.TimeoutTCPInspect} {
		*t = copied(*t)
	}
	if l.Pool != nil {
		p := clonePool(*l.Pool)
		l.Pool = &p
	}
	return l
}

func clonePool(p sdn.Pool) sdn.Pool {
	p.AffinitySeconds, p.Monitor, p.Members = copied(p.AffinitySeconds), copied(p.Monitor), slices.Clone(p.Members)
	return p
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func (c *Cloud) createBalancer(cluster string, owner sdn.Owner, want sdn.LoadBalancer) (sdn.LoadBalancer, error) {
	p := c.providers[want.Provider]
	if p == nil {
		return sdn.LoadBalancer{}, &sdn.InvalidError{Field: sdn.FieldProvider, Value: want.Provider, Err: fmt.Errorf("provider %q does not exist: %w", want.Provider, sdn.ErrInvalid)}
	}
	if c.lbQuota >= 0 && c.balancersIn(want.ProjectID) >= c.lbQuota {
		return sdn.LoadBalancer{}, fmt.Errorf("quota of %d load balancers: %w", c.lbQuota, sdn.ErrQuota)
	}
	if len(c.flavors) > 0 && want.FlavorID != "" && !c.flavors[want.FlavorID] {
		return sdn.LoadBalancer{}, &sdn.InvalidError{Field: sdn.FieldFlavor, Value: want.FlavorID, Err: fmt.Errorf("flavor %q does not exist: %w", want.FlavorID, sdn.ErrInvalid)}
	}
	vip, err := c.vip(want.VIP)
	if err != nil {
		return sdn.LoadBalancer{}, err
	}
	lb := &balancer{cluster: cluster, LoadBalancer: sdn.LoadBalancer{
		Owner: owner, Name: want.Name, ProjectID: want.ProjectID, Provider: p.Features.Provider, FlavorID: want.FlavorID,
		AvailabilityZone: want.AvailabilityZone, VIP: vip,
	}}
	guessed := want.Provider == "" && c.hidden
	for _, l := range want.Listeners {
		if _, err := c.addListener(lb, l, true); err != nil && !guessed {
			return sdn.LoadBalancer{}, err
		}
	}
	if p.Bare || guessed {
		lb.Listeners = nil
	}
	c.hidden = c.hidden && !guessed
	lb.ID, lb.VIPPortID = c.nextID(), c.nextID()
	c.balancers[lb.ID], c.used[addressKey{vip.SubnetID, vip.IP}] = lb, true
	c.begin(lb, sdn.ProvisioningCreating, sdn.ProvisioningActive)
	return cloneBalancer(lb.LoadBalancer), nil
}

func (c *Cloud) balancersIn(project string) (n int) {
	for _, lb := range c.balancers {
		if lb.ProjectID == project {
			n++
		}
	}
	return n
}

// vip checks the address of a load balancer, and picks a free one if none is given.
func (c *Cloud) vip(want v1.VIPAddress) (v1.VIPAddress, error) {
	s, ok := c.subnets[want.SubnetID]
	if !ok {
		return want, &sdn.InvalidError{Field: sdn.FieldSubnet, Value: want.SubnetID, Err: fmt.Errorf("subnet %s does not exist: %w", want.SubnetID, sdn.ErrInvalid)}
	}
	if want.IP == "" {
		a, err := c.freeAddress(s)
		return v1.VIPAddress{IP: a.IP, SubnetID: s.ID}, err
	}
	ip, err := inside(want.IP, s)
	if err != nil {
		return want, err
	}
	want.IP = ip
	if c.used[addressKey{s.ID, ip}] {
		return want, fmt.Errorf("address %s of subnet %s is taken: %w", ip, s.ID, sdn.ErrConflict)
	}
	return want, nil
}
