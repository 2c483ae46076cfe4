// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Step is one request to the cloud: one of the types below, or one about a floating IP. A busy
// load balancer may refuse a step, which comes again in a later plan.
type Step interface {
	// String describes the step, for logs and people.
	String() string
}

// CreateLoadBalancer creates a load balancer with all that is below it.
type CreateLoadBalancer struct{ LoadBalancer sdn.LoadBalancer }

// DeleteLoadBalancer deletes a load balancer with all that is below it.
type DeleteLoadBalancer struct {
	ID, Because string
	// Instead is the address at which another one is to be created; empty: none is.
	Instead string
}

// MarkLoadBalancer writes the owner's mark onto a load balancer again.
type MarkLoadBalancer struct{ ID string }

// FailOver has the provider mend a load balancer.
type FailOver struct{ ID string }

// Below is the load balancer below which a step changes something.
type Below struct {
	LoadBalancerID string
	// Narrows says that until then clients outside the source ranges may come in.
	Narrows bool
}

// CreateListener creates a listener with its pool and members.
type CreateListener struct {
	Below
	Listener sdn.Listener
}

// UpdateListener changes a listener, but not its pool.
type UpdateListener struct {
	Below
	ID       string
	Listener sdn.Listener
	// Ranges says that the source ranges change: until then the listener may admit other
	// clients, or keep clients out.
	Ranges bool
}

// DeleteListener deletes a listener with its pool: two requests, the pool first.
type DeleteListener struct {
	Below
	ID, Because string
}

// CreatePool creates the pool of a listener that has lost its own.
type CreatePool struct {
	Below
	ListenerID string
	Pool       sdn.Pool
}

// UpdatePool changes a pool, but not its members.
type UpdatePool struct {
	Below
	ID   string
	Pool sdn.Pool
	// Before a step that takes its affinity away in the provider: it then shows none, and gets it again.
	Before bool
}

// DeletePool deletes the pool of a listener, which gets another one.
type DeletePool struct {
	Below
	ID, Because string
}

// RenewMembers sends members of a pool to the provider again, which may not know them.
type RenewMembers struct {
	Below
	PoolID, Pool string
	Members      []sdn.Member
}

// ChangeMembers adds, then removes members of a pool.
type ChangeMembers struct {
	Below
	PoolID, Pool string
	Add, Remove  []sdn.Member
	has          int // how many members the pool has
}

// Target returns the ID of the load balancer that a step changes. It is empty if the step
// creates the load balancer, and if the step is about a floating IP.
func Target(step Step) string {
	if s, has := step.(interface{ target() string }); has {
		return s.target()
	}
	return ""
}

func (s Below) target() string              { return s.LoadBalancerID }
func (s Below) narrows() bool               { return s.Narrows }
func (s DeleteLoadBalancer) target() string { return s.ID }
func (s MarkLoadBalancer) target() string   { return s.ID }
func (s FailOver) target() string           { return s.ID }

// Urgent reports whether a step keeps clients out that the Service no longer admits, or follows
// its endpoints. Such a step does not wait because other steps fail.
func Urgent(step Step) bool {
	switch step.(type) {
	case DeleteListener, ChangeMembers:
		return true
	}
	return Narrows(step)
}

// Narrows reports whether clients outside the source ranges may come in until a step is carried
// out.
func Narrows(step Step) bool {
	s, may := step.(interface{ narrows() bool })
	return may && s.narrows()
}

// Kind groups steps: if the cloud does not do one step of a kind, it most likely does none.
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
	return fmt.Sprintf("create load balancer %s at %s", s.LoadBalancer.Name, cmp.Or(s.LoadBalancer.VIP.IP, "any address"))
}

func (s DeleteLoadBalancer) String() string {
	return fmt.Sprintf("delete load balancer %s (%s)", s.ID, s.Because)
}

func (s MarkLoadBalancer) String() string { return "mark load balancer " + s.ID }

func (s FailOver) String() string { return "fail over load balancer " + s.ID }

func (s CreateListener) String() string { return "create listener " + s.Listener.Name }

func (s UpdateListener) String() string {
	return fmt.Sprintf("update listener %s %s", s.ID, s.Listener.Name)
}

func (s DeleteListener) String() string {
	return fmt.Sprintf("delete listener %s (%s)", s.ID, s.Because)
}

func (s CreatePool) String() string { return "create pool " + s.Pool.Name }

func (s DeletePool) String() string { return fmt.Sprintf("delete pool %s (%s)", s.ID, s.Because) }

func (s RenewMembers) String() string {
	return fmt.Sprintf("send %d members of pool %s %s to the provider again", len(s.Members), s.PoolID, s.Pool)
}

func (s UpdatePool) String() string { return fmt.Sprintf("update pool %s %s", s.ID, s.Pool.Name) }

func (s ChangeMembers) String() string {
	return fmt.Sprintf("change members of pool %s %s: add %d, remove %d", s.PoolID, s.Pool, len(s.Add), len(s.Remove))
}
