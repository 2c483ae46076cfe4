// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Services combines the roles that Services of Kubernetes need.
type Services interface {
	sdn.LoadBalancers
	sdn.FloatingIPs
	sdn.Subnets
	sdn.SecurityGroups
	sdn.Ports
	sdn.Survey
}

// ServiceTarget is a backend under test in these roles, with the prepared resources.
type ServiceTarget struct {
	Backend Services
	Other   Services // of another cluster on the same cloud
	Fresh   func(t *testing.T) Services
	Cloud   ServiceCloud

	ProjectID string
	Second    string // another project that the credential can use; empty: none
	Provider  string // of the load balancers
	// Subnet holds the VIPs. A router connects Subnet and Far to the external network.
	Subnet, Far, Six Subnet
	NetworkID        string // the network of these subnets; Six is an IPv6 subnet
	ExternalNetwork  string // has floating IPs, from External
	External         Subnet
	// NoHeartbeats is a cloud whose amphorae report nothing. Kuryr then does not learn which
	// members a person has disabled: with several pools it reads that from operating statuses.
	NoHeartbeats bool
	// Missing is a provider that the cloud lacks.
	Missing string
	// Without returns a backend of a cloud without load balancers. It is nil if the test has
	// none.
	Without func(t *testing.T) Services
}

// ServiceCloud lets a test act behind the backend's back. Everything that it makes is removed at
// the end of the test. ok reports whether the cloud supports the action.
type ServiceCloud interface {
	// MakeForeignLoadBalancer makes a load balancer without a mark.
	MakeForeignLoadBalancer(t *testing.T, vip v1.VIPAddress) (id string)
	HasLoadBalancer(t *testing.T, id string) bool
	// LimitLoadBalancers leaves room for n more load balancers until the end of the test.
	LimitLoadBalancers(t *testing.T, n int) (ok bool)
	// Slow makes each change keep its load balancer busy until the end of the test. A change
	// takes some calls and some tenths of a second; the first change that adds members takes some
	// seconds.
	Slow(t *testing.T) (ok bool)
	// Break puts a load balancer in ERROR.
	Break(t *testing.T, id string) (ok bool)
	// Disable disables a load balancer, its listeners, its pools and their members except the
	// first, as a person may. The first member gets weight 0.
	Disable(t *testing.T, id string) (ok bool)
	// LoseTags replaces the tags of a load balancer by others, as a person's script may.
	LoseTags(t *testing.T, id string) (ok bool)
	// LoseAnswer loses the answer to the next creation of a load balancer, floating IP or
	// security group.
	LoseAnswer(t *testing.T) (ok bool)
	// MakeForeignFloatingIP makes a floating IP without a mark and without a port.
	MakeForeignFloatingIP(t *testing.T) (id string)
	HasFloatingIP(t *testing.T, id string) bool
	// LetIn returns the rules of a security group in canonical form. It returns nil and fails the
	// test if the group has other rules, such as rules for outgoing traffic.
	LetIn(t *testing.T, groupID string) []sdn.Rule
}

// RunServices checks a backend against the contract of its roles for Services. It does so as Run
// does for the other roles.
func RunServices(t *testing.T, newTarget func(t *testing.T) ServiceTarget) {
	cases := []struct {
		name string
		run  func(*testing.T, services)
	}{
		{"features", featuresAreTold},
		{"a load balancer is complete", balancerIsComplete},
		{"an IPv6 load balancer", balancerOfIPv6},
		{"owner and cluster of a load balancer", balancerOwnerIsKnown},
		{"the answer is lost", balancerAnswerIsLost},
		{"the tags are lost", balancerTagsAreLost},
		{"a VIP that is taken", vipIsTaken},
		{"a VIP that nothing has, or a load balancer, is freed", vipIsFreed},
		{"what a load balancer cannot be", balancerRefused},
		{"what the provider does not support", unsupportedIsSaid},
		{"listeners come and go", listenersComeAndGo},
		{"listeners of one port", listenersOfOnePort},
		{"a listener is updated", listenerIsUpdated},
		{"a pool comes later", poolComesLater},
		{"affinity is updated", affinityIsUpdated},
		{"an algorithm is updated", algorithmIsUpdated},
		{"a health monitor", monitorIsUpdated},
		{"members come and go", membersComeAndGo},
		{"many members", manyMembers},
		{"members of another subnet", farMembers},
		{"changes at once", changesAtOnce},
		{"delete a load balancer twice", balancerDeletedTwice},
		{"what is not there", balancingOfMissing},
		{"a foreign load balancer is out of reach", foreignBalancer},
		{"another cluster's load balancer is out of reach", otherClustersBalancer},
		{"a quota of load balancers", balancerQuota},
		{"in another project", inAnotherProject},
		{"a quota of one project", quotaOfOneProject},
		{"busy is pending, for that one only", busyIsPending},
		{"in ERROR", inError},
		{"what a person has switched off", disabledIsRead},
		{"a floating IP's life", floatingIPLife},
		{"a floating IP of a given address", floatingIPByAddress},
		{"a floating IP is freed with its load balancer", floatingIPIsFreed},
		{"a floating IP is taken from its port only", floatingIPIsTakenBack},
		{"foreign floating IPs", foreignFloatingIPs},
		{"floating IP is disowned", floatingIPIsDisowned},
		{"the answer about a floating IP is lost", floatingIPAnswerIsLost},
		{"subnets", subnetsAreTold},
		{"a security group holds its rules", groupHoldsItsRules},
		{"security groups of others", groupOfOthers},
		{"a security group in use", groupInUse},
		{"the answer about a security group is lost", groupAnswerIsLost},
		{"a cloud without load balancers", noLoadBalancers},
		{"a survey of networks is complete", surveyIsComplete},
		{"a survey of load balancing", surveyOfBalancing},
		{"cancelled calls for Services", servicesCancelled},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			target := newTarget(t)
			owner := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "t-" + strings.ToLower(unique())}
			f := services{ServiceTarget: target, t: t, owner: owner, made: new([]string)}
			features, err := target.Backend.Features(f.ctx(), target.Provider)
			if err != nil {
				t.Fatalf("Features(%q): %v", target.Provider, err)
			}
			f.features = features
			if features.Unsure {
				f.features = f.firstOfAll()
			}
			c.run(t, f)
		})
	}
}

// services is a target, the owner of one case, and steps that several cases use.
type services struct {
	ServiceTarget
	t        *testing.T
	owner    sdn.Owner
	features sdn.Features
	made     *[]string // IDs of the load balancers of the case
}

func (f services) ctx() context.Context {
	ctx, cancel := context.WithTimeout(f.t.Context(), callTimeout)
	f.t.Cleanup(cancel)
	return ctx
}

var lastVIP atomic.Int32

// vip returns an address that no other case uses.
func (f services) vip() v1.VIPAddress {
	a := f.Subnet.Prefix.Masked().Addr()
	for range 100 + lastVIP.Add(1)%140 {
		a = a.Next()
	}
	return v1.VIPAddress{IP: a.String(), SubnetID: f.Subnet.ID}
}

// inside returns the nth address of a subnet, for members.
func inside(p netip.Prefix, n int) string {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a.String()
}

// wanted returns a load balancer with these listeners.
func (f services) wanted(listeners ...sdn.Listener) sdn.LoadBalancer {
	return sdn.LoadBalancer{
		Name: "default/" + f.owner.Name, ProjectID: f.ProjectID, Provider: f.Provider, VIP: f.vip(), Listeners: listeners,
	}
}

// listener returns a listener with a pool of n members.
func (f services) listener(protocol string, port int32, n int) sdn.Listener {
	name := fmt.Sprintf("default/%s:%s:%d", f.owner.Name, protocol, port)
	l := sdn.Listener{Name: name, Protocol: protocol, Port: port, Pool: &sdn.Pool{Name: name, Protocol: protocol, Algorithm: f.features.Algorithm}}
	for i := range n {
		l.Pool.Members = append(l.Pool.Members, f.member(i))
	}
	return l
}

// member returns the nth member in the subnet of the VIPs.
func (f services) member(n int) sdn.Member {
	return sdn.Member{Name: "default/pod", IP: inside(f.Subnet.Prefix, 10+n), Port: 8080, SubnetID: f.Subnet.ID}
}

func (f services) tryBalancer(lb sdn.LoadBalancer) (sdn.LoadBalancer, error) {
	f.t.Helper()
	made, err := f.Backend.CreateLoadBalancer(f.ctx(), f.owner, lb)
	if made.ID != "" {
		f.balancerGoes(f.Backend, made.ID)
	}
	return made, err
}

// balancerGoes deletes a load balancer at the end of the test.
func (f services) balancerGoes(b Services, id string) {
	*f.made = append(*f.made, id)
	f.t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), callTimeout)
		defer cancel()
		if err := f.settled(func() error { return b.DeleteLoadBalancer(ctx, id) }); err != nil {
			f.t.Errorf("DeleteLoadBalancer(%s) after the test: %v", id, err)
		}
	})
}

// balancer makes a load balancer with everything below it, in the steps that the provider needs.
// It waits until the load balancer is ACTIVE.
func (f services) balancer(lb sdn.LoadBalancer) sdn.LoadBalancer {
	f.t.Helper()
	made, err := f.tryBalancer(lb)
	if err != nil {
		f.t.Fatalf("CreateLoadBalancer(%+v): %v", lb, err)
	}
	f.active(made.ID)
	if len(made.Listeners) < len(lb.Listeners) {
		for _, l := range lb.Listeners {
			f.addListener(made.ID, l)
		}
	}
	return f.active(made.ID)
}

// addListener makes a listener with its pool, and continues where a call stopped early.
func (f services) addListener(id string, l sdn.Listener) {
	f.t.Helper()
	var made sdn.Listener
	f.must("CreateListener", func() (err error) {
		made, err = f.Backend.CreateListener(f.ctx(), id, l)
		if made.ID != "" && errors.As(err, new(*sdn.PendingError)) {
			return nil
		}
		return err
	})
	if l.Pool == nil {
		return
	}
	if made.Pool == nil {
		f.addPool(id, made.ID, *l.Pool)
		return
	}
	f.fillPool(id, made.Pool.ID, *l.Pool)
}

func (f services) addPool(loadBalancerID, listenerID string, p sdn.Pool) {
	f.t.Helper()
	var made sdn.Pool
	f.must("CreatePool", func() (err error) {
		made, err = f.Backend.CreatePool(f.ctx(), loadBalancerID, listenerID, p)
		if made.ID != "" && errors.As(err, new(*sdn.PendingError)) {
			return nil
		}
		return err
	})
	f.fillPool(loadBalancerID, made.ID, p)
}

func (f services) fillPool(loadBalancerID, id string, p sdn.Pool) {
	f.t.Helper()
	f.must("ChangeMembers", func() error { return f.Backend.ChangeMembers(f.ctx(), loadBalancerID, id, p.Members, nil) })
	f.must("UpdatePool", func() error { return f.Backend.UpdatePool(f.ctx(), loadBalancerID, id, p) })
}

// listed returns by ID the load balancers that b lists. It fails if one is listed twice.
func (f services) listed(b Services) map[string]sdn.LoadBalancerSummary {
	f.t.Helper()
	all, err := b.ListLoadBalancers(f.ctx())
	if err != nil {
		f.t.Fatalf("ListLoadBalancers: %v", err)
	}
	out := map[string]sdn.LoadBalancerSummary{}
	for _, lb := range all {
		if _, twice := out[lb.ID]; twice {
			f.t.Errorf("ListLoadBalancers shows %s twice", lb.ID)
		}
		out[lb.ID] = lb
	}
	return out
}

// mine returns the IDs of the listed load balancers of this case's owner.
func (f services) mine() (ids []string) {
	f.t.Helper()
	for id, lb := range f.listed(f.Backend) {
		if lb.Owner == f.owner {
			ids = append(ids, id)
		}
	}
	return ids
}
