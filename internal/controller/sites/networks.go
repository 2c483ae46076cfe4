// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// networks are the KuryrNetworks of namespaces: kube.Networks.
type networks interface {
	Of(ctx context.Context, namespace string) (network *v1.KuryrNetwork, known bool, err error)
	WithSubnet(ctx context.Context, id string) (*v1.KuryrNetwork, error)
	Lacking() bool
	IsVerified(network *v1.KuryrNetwork) bool
}

// own is the network of a namespace, as far as the keys of its pools depend on it.
type own struct {
	object  *v1.KuryrNetwork // shared with the cache
	subnets []string
	groups  []string
}

// apply sets the parts of a key that come from the network. Where the nodes have subnets of their
// own, these are the common network.
func (o *own) apply(key *pool.Settings, byNode bool) {
	key.ProjectID, key.SecurityGroupIDs = o.object.Spec.ProjectID, o.groups
	if o.object.Spec.Mode != v1.NetworkShared || !byNode {
		key.NetworkID, key.SubnetIDs = o.object.Status.NetworkID, o.subnets
	}
}

// wait says why the pods of a namespace get no ports now.
type wait struct {
	reason, text string
	said         *metav1.Condition // of the KuryrNetwork, which explains text; nil: nothing does
	// passing reports that the namespace's pools stay meanwhile: the network exists, or that is not
	// known.
	passing bool
	network string // the network if there is one
}

// unserved is the wait before KuryrNetworks are read, for a moment after each start. A namespace that
// is to be in the common network may still have one, of a tenant. The wait lasts if the API server
// lacks the kind, for namespaces that are to have a network of their own.
var unserved = &wait{
	reason: v1.ReasonNotPlanned, passing: true,
	text: "The namespace has a network or a project of its own, or may still have one, and Kuryr does not read KuryrNetworks yet. " +
		"If this lasts, apply the CustomResourceDefinitions and the ClusterRole kuryr-controller of this version",
}

// unsure is the wait until a status is compared with the cloud that somebody else has written. Ports
// would be made in any network that it names.
var unsure = &wait{
	reason: v1.ReasonPending, passing: true,
	text: "Somebody has changed the status of the namespace's KuryrNetwork. Kuryr compares it with the cloud",
}

// place determines the network of a namespace. Both results are nil for a namespace in the common
// network.
func (s *Site) place(ctx context.Context, ns *metav1.PartialObjectMetadata) (*own, *wait, error) {
	choice := s.Rules.Network(ns)
	if choice.Blocked {
		return nil, &wait{reason: v1.ReasonNotAllowed, text: network.Explain(choice.Faults)}, nil
	}
	n, known, err := s.networks.Of(ctx, ns.Name)
	switch {
	case err != nil:
		return nil, nil, err
	case !known && !(choice.Common && s.networks.Lacking()):
		return nil, unserved, nil
	case choice.Common && !s.remains(n, ns):
		return nil, nil, nil
	case n != nil && kube.Serving(n) && !s.networks.IsVerified(n): // in deletion no port is made there, and nobody compares the status
		return nil, unsure, nil
	}
	if w := waits(n, ns); w != nil {
		return nil, w, nil
	}
	o, w := networkOf(n, s.Rules, &choice)
	return o, w, nil
}

// remains reports whether the KuryrNetwork of a namespace that is to be in the common network still
// gives its pods their ports: it is of another project. A tenant's pods keep together that way when
// the namespace loses its annotation or label. The planner deletes the KuryrNetwork once no pod has
// a port there.
func (s *Site) remains(n *v1.KuryrNetwork, ns *metav1.PartialObjectMetadata) bool {
	return n != nil && kube.Serving(n) && n.Spec.NamespaceUID == string(ns.UID) && n.Spec.ProjectID != s.Rules.Pods.ProjectID
}

// waits returns why a namespace's KuryrNetwork gives its pods no ports now; nil if it does.
func waits(n *v1.KuryrNetwork, ns *metav1.PartialObjectMetadata) *wait {
	switch {
	case n == nil:
		return &wait{reason: v1.ReasonNotPlanned, text: "The namespace has no KuryrNetwork yet"}
	case n.Spec.NamespaceUID != string(ns.UID):
		return &wait{reason: v1.ReasonDeleting, text: "The KuryrNetwork is that of an earlier namespace of this name. It is being deleted"}
	}
	ready := meta.FindStatusCondition(n.Status.Conditions, v1.ConditionReady)
	planned := meta.FindStatusCondition(n.Status.Conditions, v1.ConditionPlanned)
	id := n.Status.NetworkID
	if n.Spec.Mode == v1.NetworkShared {
		id = "" // on nodes with subnets of their own it is another one
	}
	switch {
	case !kube.Serving(n):
		return &wait{reason: v1.ReasonDeleting, text: "The KuryrNetwork of the namespace is being deleted", said: ready}
	case ready == nil && planned != nil && planned.Status == metav1.ConditionFalse:
		return &wait{reason: planned.Reason, passing: true, network: id, text: "The network of the namespace cannot be planned", said: planned}
	case ready == nil:
		return &wait{reason: v1.ReasonPending, passing: true, network: id, text: "Kuryr has not made the network of the namespace yet"}
	case ready.Status != metav1.ConditionTrue:
		return &wait{reason: ready.Reason, passing: true, network: id, text: "The network of the namespace is not ready", said: ready}
	}
	return nil
}

// networkOf returns the network of a ready KuryrNetwork. Its project and its subnets count, and not
// those of the choice: a changed choice has to wait until no pod has a port there.
func networkOf(n *v1.KuryrNetwork, rules *settings.Rules, c *network.Choice) (*own, *wait) {
	o := &own{object: n, groups: c.SecurityGroupIDs, subnets: n.Spec.SubnetIDs}
	if n.Spec.ProjectID != c.ProjectID {
		o.groups = rules.GroupsIn(n.Spec.ProjectID)
	}
	if len(o.subnets) == 0 {
		o.subnets, _ = families(n)
	}
	if n.Status.NetworkID == "" || len(o.subnets) == 0 {
		return nil, &wait{
			reason: v1.ReasonPending, passing: true, network: n.Status.NetworkID,
			text: "The status of the namespace's KuryrNetwork names no network or no subnets. Kuryr finds them in the cloud",
		}
	}
	return o, nil
}

// families returns the first subnet of each IP family of a network that Kuryr makes, and by these
// the others of the family, which have addresses when the first is full. A further subnet counts
// once it can be reached.
func families(n *v1.KuryrNetwork) (firsts []string, more map[string][]string) {
	by := map[int32]string{}
	for _, s := range n.Status.Subnets {
		first, is := by[s.IPVersion]
		switch {
		case !is:
			by[s.IPVersion] = s.ID
			firsts = append(firsts, s.ID)
		case s.Routed || !network.Routed(&n.Spec):
			if more == nil {
				more = map[string][]string{}
			}
			more[first] = append(more[first], s.ID)
		}
	}
	return firsts, more
}

// Subnets knows which further subnets the address of a port may be of. It reads caches only, and is
// safe for concurrent use.
type Subnets struct {
	Settings *settings.Live
	Networks networks
}

// More returns, by those of the given subnets that have such, the others of their lists: the
// address is of the first that has one left.
func (s Subnets) More(ctx context.Context, ids []string) (map[string][]string, error) {
	rules := s.Settings.Rules()
	out := map[string][]string{}
	for _, id := range ids {
		if more, ok := rules.Pods.MoreSubnetIDs[id]; ok {
			out[id] = more
			continue
		}
		if slices.Contains(rules.Pods.SubnetIDs, id) {
			continue
		}
		n, err := s.Networks.WithSubnet(ctx, id)
		if err != nil {
			return nil, err
		}
		if n == nil || len(n.Spec.SubnetIDs) > 0 || !s.Networks.IsVerified(n) {
			continue
		}
		if _, more := families(n); len(more[id]) > 0 {
			out[id] = more[id]
		}
	}
	return out, nil
}
