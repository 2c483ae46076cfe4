// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"slices"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Levels says how many free ports a pool keeps and for how long.
type Levels struct {
	Min      int           // free ports to keep at least
	Max      int           // free ports to keep at most; 0: no limit
	Fill     int           // keep so many, up to Max, until there are so many at once; 0: no demand
	Batch    int           // ports to ask for in one request at most; 1 at least
	TTL      time.Duration // a free port above Min is deleted when unused for so long, or a fifth longer
	Cooldown time.Duration // a port given back rests so long before the next pod
}

// State is all that a plan depends on, but for the time.
type State struct {
	Levels   Levels
	NodeGone bool // the pool's node is no longer in the cluster

	Pods       []Pod        // that want a port of this pool and have none of another
	Ports      []Port       // that exist as objects
	Unrecorded []Unrecorded // ports of the SDN without an object
	Elsewhere  []Port       // of the node's other pools, bound to pods that have a port of this pool

	InFlight  int             // ports of requests that the SDN has not answered
	Restoring map[string]bool // ports being looked up, by ID
	Hold      time.Time       // ask the SDN for nothing before

	// Scarce means that pods wait for room that the pool's ports would take. The plan then does not
	// request what Min lacks.
	Scarce bool
}

// Pod is a pod that wants a port.
type Pod struct {
	Ref     v1.PodReference
	Created time.Time
	// Restore is the ID of the pod's former port whose object is gone. It is empty if there is
	// none, or if the SDN does not have it.
	Restore string
	// Groups are the security groups that the pod is to have, sorted; nil are
	// the pool's own.
	Groups []string
}

// Port is a port of the pool.
type Port struct {
	Name      string
	Pod       v1.Claim  // that it is bound to; empty: free
	Live      bool      // that pod exists and has not finished
	Attached  bool      // plugged on the node, as far as its daemon has said
	Ready     bool      // the SDN has it as its object wants it
	Failed    bool      // the SDN refuses to put it in order, or has lost it, or makes others by now
	Lost      bool      // the SDN has it no more
	Misplaced bool      // it hangs on another machine than its node is by now
	Deleting  bool      // on its way out
	Stuck     bool      // the SDN has failed to put it in order, and is asked again
	Drifted   bool      // the object's security groups are not the ones to be: its living pod's, or the pool's
	Since     time.Time // while free: when it was made or given back
	Rested    bool      // while free: it never had a pod, and needs no cooldown
	Groups    []string  // while free: the security groups that it has, sorted; nil are the pool's own
}

// useless reports whether no pod can ever use the port. That is never so for a plugged port:
// nothing else can be plugged in its place.
func (p *Port) useless() bool { return p.Lost && !p.Attached }

// Unrecorded is a port that the SDN made or found and that has no object yet. Any pod may
// get it at once, unless it was looked up for a pod: its address has not been a pod's
// within Cooldown, and its security groups are the pool's.
type Unrecorded struct {
	ID  string
	For v1.Claim // the pod that it was looked up for; empty: any pod
}

// Actions is what to do, each list in the order to do it in.
type Actions struct {
	Bind    []Binding // give a free port to a pod
	Adopt   []Binding // make the object of an unrecorded port, bound if Pod is set
	Restore []Lookup  // look up a port that a pod had
	Recycle []string  // take a port from its pod, write the groups of a free port, and keep it; or let it rest again
	Repair  []string  // write the security groups that are to be
	Delete  []string  // delete the object, and with it the port
	Discard []string  // delete an unrecorded port that no pod needs
	Want    Demand    // ports to ask for
	Wake    time.Time // plan again then at the latest; zero: at the next change
	Levels  Count

	Filled bool // Levels.Fill has been reached and is to be forgotten
	Kept   int  // free ports that stay, or come back
}

// Demand is the number of ports to request; the caller chooses the number of requests. It replaces
// the demand of an earlier plan: ports that were requested since are in flight, and the others are
// part of it.
type Demand struct {
	Waiting int // for pods that nothing is under way for
	Spare   int // that Min lacks
}

// Binding is a port and the pod that gets it.
type Binding struct {
	Port string
	Pod  *v1.PodReference
	// Groups are the wanted security groups of the pod; nil are the pool's. They are written into
	// an existing object with other groups. A new object gets the groups that its port has, and has
	// drifted if these differ.
	Groups []string
}

// Lookup is a port to look up for a pod.
type Lookup struct {
	Port string
	Pod  v1.Claim
}

// Count sums up the state that was planned with, before the plan's actions.
type Count struct {
	Available int // free, fit for a pod
	Bound     int // of a living pod
	Recycling int // neither: given back, resting, failed, on the way out
	Waiting   int // pods without a port
}

// Writes reports whether carrying a out changes any object.
func (a *Actions) Writes() bool {
	return len(a.Bind)+len(a.Adopt)+len(a.Recycle)+len(a.Repair)+len(a.Delete) > 0
}

// byAge orders pods so that who waits longest comes first.
func byAge(a, b Pod) int {
	if c := a.Created.Compare(b.Created); c != 0 { // mostly, and the others cost more
		return c
	}
	return cmp.Or(cmp.Compare(a.Ref.Namespace, b.Ref.Namespace), cmp.Compare(a.Ref.Name, b.Ref.Name), a.Ref.Claim().Compare(b.Ref.Claim()))
}

// longestFree orders ports so that who has been free longest comes first: its
// old address has had the most time to be forgotten.
func longestFree(a, b Port) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) }

// sorted returns a sorted copy.
func sorted[T any](in []T, order func(a, b T) int) []T {
	out := slices.Clone(in) // of one allocation: SortedFunc has many
	slices.SortFunc(out, order)
	return out
}
