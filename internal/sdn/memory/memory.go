// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package memory is the seam's reference backend: a cloud in a map, for tests of
// what is above the seam. It is deterministic (identifiers count up, the lowest
// free address is given) and so small that it can be seen to be right; the
// contract in sdntest is what keeps it like the real one.
package memory

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Names of the calls, as hooks and Calls know them.
const (
	CreatePorts = "CreatePorts"
	GetPort     = "Port"
	ListPorts   = "ListPorts"
	UpdatePort  = "UpdatePort"
	DeletePort  = "DeletePort"
	States      = "States"
	Sees        = "Sees"
	Room        = "Room"
	GetDetails  = "Details"
	ParentPort  = "ParentPort"
	Strays      = "Strays"
	Claim       = "Claim"
	DeleteStray = "DeleteStray"

	GetFeatures        = "Features"
	CreateLoadBalancer = "CreateLoadBalancer"
	GetLoadBalancer    = "LoadBalancer"
	ListLoadBalancers  = "ListLoadBalancers"
	DeleteLoadBalancer = "DeleteLoadBalancer"
	MarkLoadBalancer   = "MarkLoadBalancer"
	FailOver           = "FailOver"
	CreateListener     = "CreateListener"
	UpdateListener     = "UpdateListener"
	DeleteListener     = "DeleteListener"
	CreatePool         = "CreatePool"
	UpdatePool         = "UpdatePool"
	ChangeMembers      = "ChangeMembers"
	CreateFloatingIP   = "CreateFloatingIP"
	ListFloatingIPs    = "ListFloatingIPs"
	Associate          = "Associate"
	Dissociate         = "Dissociate"
	DeleteFloatingIP   = "DeleteFloatingIP"
	DisownFloatingIP   = "DisownFloatingIP"
	GetSubnet          = "Subnet"

	EnsureSecurityGroup = "EnsureSecurityGroup"
	ListSecurityGroups  = "ListSecurityGroups"
	DeleteSecurityGroup = "DeleteSecurityGroup"
)

// Reads reports whether a call changes nothing.
func Reads(call string) bool {
	switch call {
	case GetPort, ListPorts, States, Sees, Room, GetDetails, ParentPort, Strays,
		GetFeatures, GetLoadBalancer, ListLoadBalancers, ListFloatingIPs, GetSubnet, ListSecurityGroups:
		return true
	}
	return false
}

// Subnet is a subnet of the cloud.
type Subnet struct {
	ID        string
	NetworkID string
	Prefix    netip.Prefix
	Gateway   netip.Addr // zero: none
	MTU       int32      // of its network
	External  bool       // its network has floating IPs
	Automatic bool       // each port of the network gets an address of it
}

// Hook is called around each call of a backend, without a lock: it may block, as
// a slow cloud does, and may use the Cloud. n counts the calls of that name,
// from 1. The call returns the hook's error, if any, as it is.
type Hook func(ctx context.Context, call string, n int) error

// Cloud is what backends of several clusters share. Its methods are safe for
// concurrent use; the fields are set before the first call.
type Cloud struct {
	// Before is called before a call takes effect: its error means that nothing
	// happened.
	Before Hook
	// After is called when a call has taken effect: its error is a lost answer.
	After Hook
	// Now is the clock of Created; nil is time.Now.
	Now func() time.Time

	mu       sync.Mutex
	subnets  map[string]Subnet
	groups   map[string]bool
	made     map[string]*group // security groups that backends have made
	hosts    map[string]bool
	trunks   map[string]map[string]int32 // parent port → subport → VLAN
	hostsAt  map[addressKey]string       // ports of virtual machines, by what they have
	machines map[string]Machine          // by their port
	pairs    map[string][]Pair           // address pairs of such ports
	most     int                         // pairs that a port may have; negative is any number
	ports    map[string]*port
	used     map[addressKey]bool
	quota    int // ports in all; negative is none
	last     int // number of the last thing made
	calls    map[string]int

	unserved    bool                 // there are no load balancers
	hidden      bool                 // what the default provider is
	providers   map[string]*Provider // by name; the default one also by the empty name
	flavors     map[string]bool
	balancers   map[string]*balancer
	lbQuota     int // load balancers in all; negative is none
	memberQuota int // of members of pools
	floating    map[string]*floatingIP
}

type addressKey struct{ subnet, ip string }

type port struct {
	cluster string // empty: a foreign one
	stray   bool   // an earlier Kuryr left it
	created time.Time
	sdn.Port
}

// New returns a cloud with these subnets and no ports. It takes any host and any
// security group until the first of its kind is added, and has no quota.
func New(subnets ...Subnet) *Cloud {
	c := &Cloud{
		subnets: map[string]Subnet{}, groups: map[string]bool{}, made: map[string]*group{}, hosts: map[string]bool{},
		trunks: map[string]map[string]int32{}, ports: map[string]*port{}, calls: map[string]int{},
		used: map[addressKey]bool{}, quota: -1, hostsAt: map[addressKey]string{}, machines: map[string]Machine{}, pairs: map[string][]Pair{}, most: 10,
		providers: providers(), flavors: map[string]bool{}, balancers: map[string]*balancer{}, lbQuota: -1, memberQuota: -1, floating: map[string]*floatingIP{},
	}
	for _, s := range subnets {
		c.subnets[s.ID] = s
	}
	return c
}

// AddSubnet adds a subnet, or replaces the one of that ID.
func (c *Cloud) AddSubnet(s Subnet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subnets[s.ID] = s
}

// RemoveSubnet removes a subnet that no port needs any more.
func (c *Cloud) RemoveSubnet(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subnets, id)
}

// AddHosts makes only these hosts and those added before usable.
func (c *Cloud) AddHosts(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range names {
		c.hosts[n] = true
	}
}

// AddGroups makes only these security groups and those added before exist.
func (c *Cloud) AddGroups(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.groups[id] = true
	}
}

// AddTrunk makes a trunk with the given parent port, of which no address is known.
func (c *Cloud) AddTrunk(parentPortID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trunks[parentPortID] = map[string]int32{}
}

// SetQuota lets the cloud hold n ports, foreign ones included; negative is no quota.
func (c *Cloud) SetQuota(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quota = n
}

// AddForeignPort makes a port that bears nobody's mark and returns its ID.
func (c *Cloud) AddForeignPort() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &port{Port: sdn.Port{ID: c.nextID()}}
	c.ports[p.ID] = p
	return p.ID
}

// RemovePort removes a port behind the backends' backs.
func (c *Cloud) RemovePort(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id)
}

// SetActive says whether the cloud passes the port's traffic; a new port is not
// active. Nothing happens if there is no such port.
func (c *Cloud) SetActive(id string, active bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.ports[id]; p != nil {
		p.Active = active
	}
}

// Ports counts all ports, foreign ones included.
func (c *Cloud) Ports() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ports)
}

// HasPort reports whether there is a port of that ID, whoever's it is.
func (c *Cloud) HasPort(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ports[id] != nil
}

// Subports returns the VLAN of each subport of a trunk.
func (c *Cloud) Subports(parentPortID string) map[string]int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int32{}
	for id, vlan := range c.trunks[parentPortID] {
		out[id] = vlan
	}
	return out
}

// Calls returns how often a call was made, whatever came of it.
func (c *Cloud) Calls(call string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[call]
}

// do counts a call and runs it between the hooks.
func (c *Cloud) do(ctx context.Context, call string, effect func() error) error {
	c.mu.Lock()
	c.calls[call]++
	n := c.calls[call]
	c.mu.Unlock()
	if c.Before != nil {
		if err := c.Before(ctx, call, n); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	err := c.serves(call)
	if err == nil {
		err = effect()
	}
	c.mu.Unlock()
	if c.After != nil {
		if err := c.After(ctx, call, n); err != nil {
			return err
		}
	}
	return err
}

// Item is a port of the cloud and whose it is.
type Item struct {
	Cluster string // empty: it bears nobody's mark
	Port    sdn.Port
}

// Inventory returns all ports, foreign ones included, in no order.
func (c *Cloud) Inventory() []Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Item
	for _, p := range c.ports {
		all = append(all, Item{Cluster: p.cluster, Port: clone(p.Port)})
	}
	return all
}
