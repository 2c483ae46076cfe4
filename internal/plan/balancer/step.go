// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Step is one request to the cloud: one of the types below, or one about a floating
// IP. A step may be refused
// as the load balancer is busy, and comes again in a later plan.
type Step interface {
	// String says what the step does, for logs and people.
	String() string
}

// CreateLoadBalancer makes a load balancer with all that is below it.
type CreateLoadBalancer struct{ LoadBalancer sdn.LoadBalancer }

// DeleteLoadBalancer removes one with all that is below it.
type DeleteLoadBalancer struct {
	ID, Because string
	// Instead is the address at which another is to be made; empty: at none.
	Instead string
}

// MarkLoadBalancer writes down again whose one is.
type MarkLoadBalancer struct{ ID string }

// FailOver has the provider mend one.
type FailOver struct{ ID string }

// CreateListener makes a listener with its pool and members.
type CreateListener struct {
	LoadBalancerID string
	Listener       sdn.Listener
}

// UpdateListener changes a listener, but for its pool.
type UpdateListener struct {
	LoadBalancerID, ID string
	Listener           sdn.Listener
	// Ranges says that its source ranges change: until then others may come in, or
	// stay out.
	Ranges bool
	// Narrows says that until then others may come in.
	Narrows bool
}

// DeleteListener removes a listener with its pool.
type DeleteListener struct {
	LoadBalancerID, ID, Because string
	// Narrows says that until then others may come in than are to.
	Narrows bool
}

// CreatePool makes the pool of a listener that has lost its own.
type CreatePool struct {
	LoadBalancerID, ListenerID string
	Pool                       sdn.Pool
}

// UpdatePool changes a pool, but for its members.
type UpdatePool struct {
	LoadBalancerID, ID string
	Pool               sdn.Pool
}

// ChangeMembers adds, then removes members of a pool.
type ChangeMembers struct {
	LoadBalancerID, PoolID, Pool string
	Add, Remove                  []sdn.Member
}

// Target returns the ID of the load balancer that a step is about; empty if that is
// to be made, and if the step is about a floating IP.
func Target(step Step) string {
	switch s := step.(type) {
	case DeleteLoadBalancer:
		return s.ID
	case MarkLoadBalancer:
		return s.ID
	case FailOver:
		return s.ID
	case CreateListener:
		return s.LoadBalancerID
	case UpdateListener:
		return s.LoadBalancerID
	case DeleteListener:
		return s.LoadBalancerID
	case CreatePool:
		return s.LoadBalancerID
	case UpdatePool:
		return s.LoadBalancerID
	case ChangeMembers:
		return s.LoadBalancerID
	}
	return ""
}

// Urgent reports whether a step takes away what a Service does not admit any more, or
// follows its endpoints: that does not wait for what else fails.
func Urgent(step Step) bool {
	switch s := step.(type) {
	case DeleteListener, ChangeMembers:
		return true
	case UpdateListener:
		return s.Narrows
	}
	return false
}

// Narrows reports whether others may come in than are to until a step is carried out.
func Narrows(step Step) bool {
	switch s := step.(type) {
	case DeleteListener:
		return s.Narrows
	case UpdateListener:
		return s.Narrows
	}
	return false
}

// Kind says what a step is one of: what the cloud does not do for one of them it most
// likely does for none.
func Kind(step Step) string {
	kind := fmt.Sprintf("%T %s", step, Target(step))
	if Narrows(step) {
		kind += " narrows"
	}
	if c, is := step.(ChangeMembers); is && len(c.Add) > len(c.Remove) {
		kind += " adds"
	}
	return kind
}

func (s CreateLoadBalancer) String() string {
	return fmt.Sprintf("create load balancer %s at %s", s.LoadBalancer.Name, s.LoadBalancer.VIP.IP)
}

func (s DeleteLoadBalancer) String() string {
	return fmt.Sprintf("delete load balancer %s: %s", s.ID, s.Because)
}

func (s MarkLoadBalancer) String() string { return "mark load balancer " + s.ID }

func (s FailOver) String() string { return "fail over load balancer " + s.ID }

func (s CreateListener) String() string { return "create listener " + s.Listener.Name }

func (s UpdateListener) String() string {
	return fmt.Sprintf("update listener %s %s", s.ID, s.Listener.Name)
}

func (s DeleteListener) String() string {
	return fmt.Sprintf("delete listener %s: %s", s.ID, s.Because)
}

func (s CreatePool) String() string { return "create pool " + s.Pool.Name }

func (s UpdatePool) String() string { return fmt.Sprintf("update pool %s %s", s.ID, s.Pool.Name) }

func (s ChangeMembers) String() string {
	return fmt.Sprintf("change members of pool %s %s: %d more, %d less", s.PoolID, s.Pool, len(s.Add), len(s.Remove))
}
