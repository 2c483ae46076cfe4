// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// Rules is Settings with its selectors ready for use. It is not changed once
// made, and safe for concurrent use.
type Rules struct {
	Settings
	nodes     []labels.Selector // of Nodes, in order
	Groups    []groupRule
	overrides []override

	ByNamespace bool // something depends on the labels of namespaces
	ByPod       bool // something depends on the labels of pods
}

type groupRule struct {
	namespace, pod labels.Selector
	ids            []string // sorted, never nil
}

type override struct {
	config.PoolOverride
	node, namespace labels.Selector
}

func newRules(s Settings) *Rules {
	r := &Rules{Settings: s}
	for _, n := range s.Nodes {
		r.nodes = append(r.nodes, selector(n.NodeSelector))
	}
	for _, g := range s.Pods.SecurityGroups {
		rule := groupRule{namespace: selector(g.NamespaceSelector), pod: selector(g.PodSelector), ids: v1.GroupSet(g.SecurityGroupIDs)}
		r.Groups = append(r.Groups, rule)
		r.ByNamespace = r.ByNamespace || g.NamespaceSelector != nil
		r.ByPod = r.ByPod || !rule.pod.Empty()
	}
	for _, o := range s.Pools.Overrides {
		r.overrides = append(r.overrides, override{o, selector(o.NodeSelector), selector(o.NamespaceSelector)})
		r.ByNamespace = r.ByNamespace || o.NamespaceSelector != nil
	}
	return r
}

// selector makes s ready for use. Nil selects all; one that makes no sense,
// which package config lets nobody have, nothing.
func selector(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return sel
}

// PortsOn says how the ports of a node with these labels are plugged.
func (r *Rules) PortsOn(node labels.Set) config.NodePorts {
	for i, sel := range r.nodes {
		if sel.Matches(node) {
			return r.Nodes[i]
		}
	}
	return config.NodePorts{VIFType: r.Pods.VIFType}
}

// PodGroups returns the security groups that the first rule for a pod says;
// false if there is none.
func (r *Rules) PodGroups(namespace, pod labels.Set) ([]string, bool) {
	for _, g := range r.Groups {
		if g.namespace.Matches(namespace) && g.pod.Matches(pod) {
			return g.ids, true
		}
	}
	return nil, false
}

// Apart reports whether the pods of a namespace have pools of their own on a node.
func (r *Rules) Apart(node, namespace labels.Set) bool {
	return slices.ContainsFunc(r.overrides, func(o override) bool {
		return o.NamespaceSelector != nil && o.node.Matches(node) && o.namespace.Matches(namespace)
	})
}

// Key is what the key of a pool takes from the settings.
func (r *Rules) Key(vifType, parent, namespace string) pool.Settings {
	return pool.Settings{
		ProjectID: r.Pods.ProjectID, NetworkID: r.Pods.NetworkID, SubnetIDs: r.Pods.SubnetIDs,
		SecurityGroupIDs: r.Pods.SecurityGroupIDs, VIFType: vifType, ParentPortID: parent, Namespace: namespace,
	}
}

// Levels returns the levels of the pool of a node, or, if own, of a namespace's
// own pool there. Of two overrides one may say a min above the other's max: then
// that counts, as a pool is not to have more than what it may have.
func (r *Rules) Levels(node, namespace labels.Set, own bool) pool.Levels {
	p := r.Pools
	var low, high, batch *int32
	var ttl, cooldown *metav1.Duration
	for _, o := range r.overrides {
		if !o.node.Matches(node) || o.NamespaceSelector != nil && !(own && o.namespace.Matches(namespace)) {
			continue
		}
		first(&low, o.Min)
		first(&high, o.Max)
		first(&batch, o.Batch)
		first(&ttl, o.TTL)
		first(&cooldown, o.Cooldown)
	}
	first(&low, &p.Min)
	first(&high, &p.Max)
	first(&batch, &p.Batch)
	first(&ttl, &p.TTL)
	first(&cooldown, &p.Cooldown)
	if *high > 0 {
		*low = min(*low, *high)
	}
	return pool.Levels{
		Min: int(*low), Max: int(*high), Batch: max(1, int(*batch)), TTL: ttl.Duration, Cooldown: cooldown.Duration,
	}
}

// first sets field to a copy of value unless it is set.
func first[T any](field **T, value *T) {
	if *field == nil && value != nil {
		*field = new(*value)
	}
}
