// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package memory is the seam's reference backend: a cloud in a map, for tests of the code above
// the seam. It is deterministic: identifiers count up, and the lowest free address is taken. The
// contract in sdntest keeps it like the real backend.
package memory

import (
	"context"
	"net/netip"
	"sync"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Names of the calls, for hooks and Calls.
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
	FreeVIP            = "FreeVIP"
	LeftVIPs           = "LeftVIPs"
	MarkLoadBalancer   = "MarkLoadBalancer"
	FailOver           = "FailOver"
	CreateListener     = "CreateListener"
	UpdateListener     = "UpdateListener"
	DeleteListener     = "DeleteListener"
	CreatePool         = "CreatePool"
	DeletePool         = "DeletePool"
	UpdatePool         = "UpdatePool"
	ChangeMembers      = "ChangeMembers"
	CreateFloatingIP   = "CreateFloatingIP"
	ListFloatingIPs    = "ListFloatingIPs"
	Associate          = "Associate"
	Dissociate         = "Dissociate"
	DeleteFloatingIP   = "DeleteFloatingIP"
	DisownFloatingIP   = "DisownFloatingIP"
	GetSubnet          = "Subnet"

	SurveyNetworks  = "SurveyNetworks"
	SurveyBalancing = "SurveyBalancing"

	EnsureSecurityGroup = "EnsureSecurityGroup"
	ListSecurityGroups  = "ListSecurityGroups"
	DeleteSecurityGroup = "DeleteSecurityGroup"

	CreateNetwork         = "CreateNetwork"
	GetNetwork            = "Network"
	GetGivenNetwork       = "GivenNetwork"
	ListNetworks          = "ListNetworks"
	GetSubnetPool         = "SubnetPool"
	NetworkInUse          = "InUse"
	DeleteNetwork         = "DeleteNetwork"
	CreateSubnet          = "CreateSubnet"
	UpdateSubnet          = "UpdateSubnet"
	DeleteSubnet          = "DeleteSubnet"
	AddRouterInterface    = "AddRouterInterface"
	RemoveRouterInterface = "RemoveRouterInterface"
	GetRouterAddresses    = "RouterAddresses"

	CreateRouter = "CreateRouter"
	GetRouter    = "Router"
	ListRouters  = "ListRouters"
	UpdateRouter = "UpdateRouter"
	DeleteRouter = "DeleteRouter"
)

// Reads reports whether a call changes nothing.
func Reads(call string) bool {
	switch call {
	case GetPort, ListPorts, States, Sees, Room, GetDetails, ParentPort, Strays,
		GetFeatures, GetLoadBalancer, ListLoadBalancers, ListFloatingIPs, GetSubnet, ListSecurityGroups,
		SurveyNetworks, SurveyBalancing, GetNetwork, GetGivenNetwork, ListNetworks, NetworkInUse, GetSubnetPool, GetRouterAddresses,
		GetRouter, ListRouters:
		return true
	}
	return false
}

// Subnet is a subnet of the cloud.
type Subnet struct {
	ID        string
	NetworkID string
	Prefix    netip.Prefix
	Gateway   netip.Addr // zero: no gateway
	MTU       int32      // of its network
	Routes    []v1.Route // host routes
	External  bool       // its network provides floating IPs
	Automatic bool       // each port of the network gets an address of this subnet
}

// Hook is called around each call of a backend, without a lock. It may block, as a slow cloud
// does, and may use the Cloud. n counts the calls of that name, from 1. The call returns the
// hook's error, if any, unchanged.
type Hook func(ctx context.Context, call string, n int) error

// Cloud is shared by the backends of several clusters. Its methods are safe for concurrent use.
// The fields are set before the first call.
type Cloud struct {
	// Before is called before a call takes effect. After its error nothing has happened.
	Before Hook
	// After is called after a call, if Before was without an error. Its error is a lost answer.
	After Hook
	// Now is the clock of Created; nil is time.Now.
	Now func() time.Time

	mu       sync.Mutex
	subnets  map[string]Subnet
	groups   map[string]bool
	made     map[string]*group // security groups made by backends
	hosts    map[string]bool
	trunks   map[string]map[string]int32 // parent port → subport → VLAN
	hostsAt  map[addressKey]string       // parent ports of virtual machines, by their address
	machines map[string]Machine          // by port ID
	pairs    map[string][]Pair           // address pairs of the machines' ports
	most     int                         // the most pairs that a port may have; negative: no limit
	ports    map[string]*port
	used     map[addressKey]bool
	left     map[addressKey]bool // addresses in used that refused load balancers left behind
	quota    int                 // of all ports together; negative: no quota
	last     int                 // number of the last identifier
	calls    map[string]int

	networks     map[string]*network
	ownSubnets   map[string]*ownSubnet // those of subnets that a backend made
	routers      map[string]*router
	subnetPools  map[string]SubnetPool
	projects     map[string]bool
	networkQuota int // of all networks in networks; negative: no quota
	subnetQuota  int // of all subnets in ownSubnets; negative: no quota
	routerQuota  int // of all routers; negative: no quota
	noSNAT       bool

	unserved    bool                 // the cloud has no load balancers
	hidden      bool                 // the default provider's name is hidden
	providers   map[string]*Provider // by name; the default provider also by the empty name
	flavors     map[string]bool
	balancers   map[string]*balancer
	lbQuota     int             // of the load balancers of each project; negative: no quota
	memberQuota int             // of all members; negative: no quota
	undeletable map[string]bool // IDs whose deletion ends in ERROR
	lost        map[string]bool // members unknown to the provider, by ID
	floating    map[string]*floatingIP
}

type addressKey struct{ subnet, ip string }

type port struct {
	cluster  string // empty: the port is foreign
	stray    bool   // an earlier Kuryr left the port
	created  time.Time
	revision int
	sdn.Port
}

// New returns a cloud with these subnets and no ports. It accepts any host and any security group
// until the first of the kind is added. It has no quota.
func New(subnets ...Subnet) *Cloud {
	c := &Cloud{
		subnets: map[string]Subnet{}, groups: map[string]bool{}, made: map[string]*group{}, hosts: map[string]bool{},
		trunks: map[string]map[string]int32{}, ports: map[string]*port{}, calls: map[string]int{},
		used: map[addressKey]bool{}, left: map[addressKey]bool{}, quota: -1, hostsAt: map[addressKey]string{}, machines: map[string]Machine{}, pairs: map[string][]Pair{}, most: 10,
		providers: providers(), flavors: map[string]bool{}, balancers: map[string]*balancer{}, lbQuota: -1, memberQuota: -1, floating: map[string]*floatingIP{},
		networks: map[string]*network{}, ownSubnets: map[string]*ownSubnet{}, routers: map[string]*router{}, subnetPools: map[string]SubnetPool{},
		projects: map[string]bool{}, networkQuota: -1, subnetQuota: -1, routerQuota: -1,
	}
	for _, s := range subnets {
		c.subnets[s.ID] = s
	}
	return c
}

// AddSubnet adds a subnet, or replaces the subnet of the same ID.
func (c *Cloud) AddSubnet(s Subnet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subnets[s.ID] = s
}

// RemoveSubnet removes a subnet that no port uses any more, with the interfaces of routers in it.
func (c *Cloud) RemoveSubnet(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropSubnet(id)
}

// AddHosts restricts the usable hosts to these and those added before.
func (c *Cloud) AddHosts(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range names {
		c.hosts[n] = true
	}
}

// AddGroups restricts the existing security groups to these and those added before.
func (c *Cloud) AddGroups(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.groups[id] = true
	}
}

// AddTrunk makes a trunk with the given parent port, whose address is unknown.
func (c *Cloud) AddTrunk(parentPortID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trunks[parentPortID] = map[string]int32{}
}

// SetQuota sets the quota of ports, foreign ones included; negative is no quota.
func (c *Cloud) SetQuota(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quota = n
}

// AddForeignPort makes a port without a mark and returns its ID.
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

// SetActive sets whether the cloud passes the port's traffic. A new port is not active. An
// unknown ID is ignored.
func (c *Cloud) SetActive(id string, active bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.ports[id]; p != nil {
		p.Active = active
		p.revision++
	}
}

// Ports counts all ports, foreign ones included.
func (c *Cloud) Ports() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ports)
}

// HasPort reports whether a port of that ID exists, of any owner.
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

// Calls returns how often a call was made, successful or not.
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
	err := ctx.Err()
	c.mu.Lock()
	if err == nil {
		err = c.serves(call)
	}
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

// Item is a port of the cloud and its cluster.
type Item struct {
	Cluster string // empty: it bears no cluster's mark
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
