// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// UntilSettled as Provider.Busy keeps a load balancer busy until Settle.
const UntilSettled = -1

// Provider makes load balancers. A cloud has two at first: ovn, the default, is
// never busy and refuses much; amphora is busy for a call after each change, and so
// removes a listener in two steps.
type Provider struct {
	// Features are also what it refuses: what they do not name is ErrUnsupported.
	Features sdn.Features
	// Busy is how many calls find a load balancer busy after each change of it.
	Busy int
	// Halves removes the pool with the first DeleteListener and the listener with the
	// next, as Octavia's API has it where each change makes the load balancer busy.
	Halves bool
	// Near wants a member outside of the VIP's subnet to name its own: else it is
	// ErrUnsupported.
	Near bool
	// Bare makes load balancers with nothing below them.
	Bare bool
	// Broken has each change end in ERROR.
	Broken bool
}

func providers() map[string]*Provider {
	ovn := sdn.Features{
		Provider: "ovn", Protocols: []string{"TCP", "UDP", "SCTP"}, Algorithm: "SOURCE_IP_PORT", Algorithms: []string{"SOURCE_IP_PORT"}, Affinity: true,
		Monitors: []string{"TCP", "UDP-CONNECT"}, KeepsClientAddress: true, ManyProtocols: true, FarMembers: true,
	}
	amphora := sdn.Features{
		Provider: "amphora", Protocols: []string{"TCP", "UDP", "SCTP"}, Algorithm: "ROUND_ROBIN",
		Algorithms: []string{"ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP"}, Affinity: true, AffinityTimeout: true,
		SourceRanges: true, Timeouts: true, ConnectionLimit: true, Monitors: []string{"TCP", "UDP-CONNECT", "SCTP", "HTTP"},
		ProxyProtocol: true, ManyProtocols: true, FailOver: true, FarMembers: true,
	}
	o := &Provider{Features: ovn, Near: true}
	return map[string]*Provider{"": o, "ovn": o, "amphora": {Features: amphora, Busy: 1, Halves: true}}
}

// SetProvider adds a provider, or replaces the one of that name.
func (c *Cloud) SetProvider(p Provider) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := p.Features.Provider
	if c.providers[""].Features.Provider == name {
		c.providers[""] = &p
	}
	c.providers[name] = &p
}

// HideDefault keeps the name of the default provider from everybody until a load
// balancer was made that names none. Until then amphora is what they guess.
func (c *Cloud) HideDefault() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden = true
}

// ServeLoadBalancers says whether the cloud has load balancers at all, as it has at
// first. Without, their calls are ErrNoService; what there is stays.
func (c *Cloud) ServeLoadBalancers(serves bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unserved = !serves
}

// AddFlavors makes only these flavors and those added before exist.
func (c *Cloud) AddFlavors(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.flavors[id] = true
	}
}

// SetLoadBalancerQuota lets the cloud hold n load balancers; negative is no quota.
func (c *Cloud) SetLoadBalancerQuota(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lbQuota = n
}

// SetMemberQuota lets the cloud hold n members of pools; negative is no quota.
func (c *Cloud) SetMemberQuota(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memberQuota = n
}

// serves is called with the lock held.
func (c *Cloud) serves(call string) error {
	switch call {
	case GetFeatures, CreateLoadBalancer, GetLoadBalancer, ListLoadBalancers, DeleteLoadBalancer, MarkLoadBalancer, FailOver,
		CreateListener, UpdateListener, DeleteListener, CreatePool, UpdatePool, ChangeMembers:
		if c.unserved {
			return fmt.Errorf("load balancers: %w: %w", sdn.ErrNoService, sdn.ErrUnsupported)
		}
	}
	return nil
}

// balancer is a load balancer and what becomes of it.
type balancer struct {
	cluster string           // empty: a foreign one
	busy    int              // calls that still find it busy; negative: until Settle
	next    sdn.Provisioning // what it is after that
	sdn.LoadBalancer
}

func (lb *balancer) isBusy() bool { return lb.next != "" }

// Settle ends what a load balancer is busy with.
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

// LoseTags has a part of a load balancer's mark missing. It is listed all the same.
func (c *Cloud) LoseTags(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lb := c.balancers[id]; lb != nil {
		lb.Unmarked = true
	}
}

// EditLoadBalancer changes a load balancer, or what is below it, behind the
// backends' backs. What is new below it needs an ID.
func (c *Cloud) EditLoadBalancer(id string, edit func(*sdn.LoadBalancer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lb := c.balancers[id]; lb != nil {
		edit(&lb.LoadBalancer)
	}
}

// RemoveLoadBalancer removes one behind the backends' backs.
func (c *Cloud) RemoveLoadBalancer(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropBalancer(id)
}

// AddForeignLoadBalancer makes one that bears nobody's mark and returns its ID. It
// panics where CreateLoadBalancer would refuse.
func (c *Cloud) AddForeignLoadBalancer(lb sdn.LoadBalancer) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	made, err := c.createBalancer("", sdn.Owner{}, lb)
	if err != nil {
		panic(err)
	}
	return made.ID
}

// BalancerItem is a load balancer of the cloud and whose it is.
type BalancerItem struct {
	Cluster      string // empty: it bears nobody's mark
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

// What follows is called with the lock held.

// look returns a load balancer of a cluster; that counts as a look at how busy it is.
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

// begin makes a load balancer as busy as its provider makes it; next is what it is then.
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

// cloneBalancer keeps the caller from changing what the cloud holds.
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
		return sdn.LoadBalancer{}, fmt.Errorf("provider %q does not exist: %w", want.Provider, sdn.ErrInvalid)
	}
	if c.lbQuota >= 0 && len(c.balancers) >= c.lbQuota {
		return sdn.LoadBalancer{}, fmt.Errorf("quota of %d load balancers: %w", c.lbQuota, sdn.ErrQuota)
	}
	if len(c.flavors) > 0 && want.FlavorID != "" && !c.flavors[want.FlavorID] {
		return sdn.LoadBalancer{}, fmt.Errorf("flavor %q does not exist: %w", want.FlavorID, sdn.ErrInvalid)
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
	c.begin(lb, "PENDING_CREATE", sdn.ProvisioningActive)
	return cloneBalancer(lb.LoadBalancer), nil
}

// vip checks the address of a load balancer, and finds one where none is named.
func (c *Cloud) vip(want v1.VIPAddress) (v1.VIPAddress, error) {
	s, ok := c.subnets[want.SubnetID]
	if !ok {
		return want, fmt.Errorf("subnet %s does not exist: %w", want.SubnetID, sdn.ErrInvalid)
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
