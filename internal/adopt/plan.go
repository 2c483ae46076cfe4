// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package adopt takes over the free ports of an earlier Kuryr in the SDN, which kept no objects and
// set no mark. Plan decides about each port, and Adopter executes the decision. It runs before a
// controller leads. It leaves ports with this cluster's mark to the controller.
package adopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Node is a node of the cluster and the key of its pool. A key without subnets is unknown.
type Node struct {
	Name string
	Key  v1.PoolKey
	// MoreSubnetIDs are others that an address may be of: see sdn.PortRequest.
	MoreSubnetIDs map[string][]string
}

// State is all that a plan depends on.
type State struct {
	Strays  []sdn.Port
	Nodes   []Node
	Objects map[string]bool   // KuryrPorts, by name
	Pods    map[string]string // who has an address: the pods that live, by address
	// Elsewhere means that ports on hosts and trunks of no node of this cluster have no owner,
	// either. Another cluster in the project may own them.
	Elsewhere bool
}

// Verb is the action on an unmarked port.
type Verb string

// The verbs, in the order in which a plan has them.
const (
	Take   Verb = "adopt"  // into a pool
	Delete Verb = "delete" // in the SDN
	Leave  Verb = "leave"
)

// Action is the action on one unmarked port, and its reason.
type Action struct {
	Verb Verb
	Port sdn.Port
	Node string     // that the port is on; empty if that is none of the cluster
	Key  v1.PoolKey // of the pool that it gets into, if it is adopted
	Why  string
	more map[string][]string // see Node
}

// Pool is the name of the pool that the port gets into.
func (a *Action) Pool() string { return pool.Name(a.Key) }

// Plan decides about each unmarked port. A port on a node that fits its pool is adopted, bound to
// the host or as a subport of the machine's trunk. A port that is neither bound nor on a trunk fits
// no pool and is deleted; so is a port on a node that fits no pool. A port that a living pod may
// use is kept, and so is a port on a machine that is no node of this cluster. The same state gives
// the same plan, order included.
func Plan(s State) []Action {
	out := make([]Action, len(s.Strays))
	for i, p := range s.Strays {
		out[i] = s.judge(p)
	}
	verbs := []Verb{Take, Delete, Leave}
	slices.SortFunc(out, func(a, b Action) int {
		return cmp.Or(slices.Index(verbs, a.Verb)-slices.Index(verbs, b.Verb), strings.Compare(a.Node, b.Node), strings.Compare(a.Port.ID, b.Port.ID))
	})
	return out
}

func (s *State) judge(p sdn.Port) Action {
	a := Action{Verb: Leave, Port: p}
	if s.Objects[p.ID] {
		a.Why = "it has a KuryrPort"
		return a
	}
	for _, address := range p.VIF.Addresses {
		if pod, ok := s.Pods[address.IP]; ok {
			a.Why = "pod " + pod + " has its address"
			return a
		}
	}
	node, where := s.place(p)
	switch {
	case where == "":
		a.Verb, a.Why = Delete, "neither bound to a host nor on a trunk"
	case node == nil && s.Elsewhere:
		a.Verb, a.Why = Delete, where+" is no node of this cluster"
	case node == nil:
		a.Why = where + " is no node of this cluster; another may own it"
	case len(node.Key.SubnetIDs) == 0:
		a.Node, a.Why = node.Name, "the pool of node "+node.Name+" is unknown"
	default:
		a.Node, a.Key, a.more = node.Name, node.Key, node.MoreSubnetIDs
		a.Verb, a.Why = Take, "free on node "+node.Name
		p.Arrange(node.Key.SubnetIDs, node.MoreSubnetIDs) // the SDN may have given it an address that was not requested
		if fault := misfit(p, node); fault != "" {
			a.Verb, a.Why = Delete, fault
		}
	}
	return a
}

// place returns the node that a port is on, nil if it is none of the cluster,
// and the place in words, empty if it is on nothing.
func (s *State) place(p sdn.Port) (node *Node, where string) {
	on := func(n Node) bool { return n.Name == p.Host }
	switch {
	case p.VIF.ParentPortID != "":
		where = "the trunk of port " + p.VIF.ParentPortID
		on = func(n Node) bool { return n.Key.ParentPortID == p.VIF.ParentPortID }
	case p.Host != "":
		where = "host " + p.Host
	default:
		return nil, ""
	}
	if i := slices.IndexFunc(s.Nodes, on); i >= 0 {
		return &s.Nodes[i], where
	}
	return nil, where
}

// misfit returns why a port does not fit a pool; empty if it fits. Security groups do not matter:
// the controller sets the pool's.
func misfit(p sdn.Port, node *Node) string {
	key := node.Key
	var subnets []string
	for _, a := range p.VIF.Addresses {
		id := a.SubnetID
		for first, more := range node.MoreSubnetIDs {
			if slices.Contains(more, id) {
				id = first
			}
		}
		subnets = append(subnets, id)
	}
	wanted := slices.Sorted(slices.Values(key.SubnetIDs))
	slices.Sort(subnets)
	plugged := key.VIFType
	if plugged == "" || key.ParentPortID == "" {
		plugged = p.VIF.Type // whatever the SDN says of it
	}
	switch {
	case key.ProjectID != "" && p.ProjectID != key.ProjectID:
		return fmt.Sprintf("of project %s, the pool of project %s", p.ProjectID, key.ProjectID)
	case key.NetworkID != "" && p.NetworkID != key.NetworkID:
		return fmt.Sprintf("of network %s, the pool of network %s", p.NetworkID, key.NetworkID)
	case !slices.Equal(subnets, wanted):
		return fmt.Sprintf("of subnets %s, the pool of subnets %s", or(strings.Join(subnets, ", "), "none"), strings.Join(wanted, ", "))
	case p.VIF.ParentPortID != key.ParentPortID || p.VIF.Type != plugged:
		return fmt.Sprintf("plugged as %s, the pool as %s", or(p.VIF.Type, "unbound"), or(key.VIFType, "bare metal"))
	}
	return ""
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
