// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package settings has the part of the configuration that the reconcilers follow while they run,
// and the rules that result from it. The rules say which network the pods of a namespace are in, and
// which pool a pod's port comes from, given the node and the namespace. They also say which security
// groups the port has, and which levels the pool has.
package settings

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// Settings is the configuration in use. The reconcilers follow all of it that is not read at start
// only.
type Settings = config.Config

// Live is settings that may change at any time. Its methods are safe for concurrent use. A follower
// is never removed.
type Live struct {
	value   atomic.Pointer[Rules]
	Serving chan struct{} // closed when Services are to have load balancers for the first time
	once    sync.Once
	// Networking is closed when some namespace may have a network of its own for the first time.
	Networking     chan struct{}
	onceNetworking sync.Once

	mu        sync.Mutex
	followers []chan struct{}
}

// NewLive returns live settings with the initial value s.
func NewLive(s Settings) *Live {
	l := &Live{Serving: make(chan struct{}), Networking: make(chan struct{})}
	configurationValid.Set(1)
	l.store(s)
	return l
}

func (l *Live) store(s Settings) {
	rules := NewRules(s)
	l.value.Store(rules)
	if rules.NetworksByNamespace {
		l.onceNetworking.Do(func() { close(l.Networking) })
	}
	if ServesServices(&s.Services) {
		l.once.Do(func() { close(l.Serving) })
	}
}

// Load returns the current settings. The caller must not change them.
func (l *Live) Load() *Settings { return &l.value.Load().Settings }

// Rules returns the current settings with compiled selectors.
func (l *Live) Rules() *Rules { return l.value.Load() }

// Follow returns a function that calls changed after each change of the settings from now on. The
// function runs until its context ends or changed fails. Changes in quick succession, or before the
// function runs, cause one call.
func (l *Live) Follow(changed func(context.Context) error) func(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan struct{}, 1)
	l.followers = append(l.followers, c)
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-c:
			}
			if err := changed(ctx); err != nil {
				return err
			}
		}
	}
}

// Set replaces the settings by s. All followers then plan again at once, regardless of earlier
// failures.
func (l *Live) Set(s Settings) {
	l.store(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.followers {
		select {
		case c <- struct{}{}:
		default: // a change is already pending
		}
	}
}

// Refuse sets the metric that says that newer settings cannot be used. Accept resets it.
func (l *Live) Refuse() { configurationValid.Set(0) }

// Accept sets the metrics that say that the configured settings are in use. hash is the config.Hash
// of the file.
func (l *Live) Accept(hash string) {
	configurationInfo.Reset()
	configurationInfo.WithLabelValues(hash).Set(1)
	configurationValid.Set(1)
}

// ServesServices reports whether Services get load balancers.
func ServesServices(c *config.Services) bool { return len(c.SubnetIDs) > 0 }

var (
	configurationValid = kube.Gauge("kuryr_configuration_valid", "1 if the configuration file is the one in use, 0 if it has faults and an older one is kept.")
	configurationInfo  = kube.GaugeOf("hash", "kuryr_configuration_info", "1, with the SHA-256 of the configuration file that is in use.")
)

// Rules is Settings with compiled selectors. It never changes, and is safe for concurrent use.
type Rules struct {
	Settings
	nodes     []labels.Selector // of Nodes, in the same order
	Groups    []groupRule
	overrides []override

	networks networkRules

	ByNamespace bool // some rule depends on the labels of namespaces
	ByPod       bool // some rule depends on the labels of pods
	// RoutersByNamespace reports that Kuryr may have to make routers.
	RoutersByNamespace bool
	// NetworksByNamespace reports that some namespace may have a network or a project of its own.
	NetworksByNamespace bool
}

type groupRule struct {
	namespace, pod labels.Selector
	ids            []string // sorted, never nil
}

type override struct {
	config.PoolOverride
	node, namespace labels.Selector
}

// NewRules compiles the selectors of settings.
func NewRules(s Settings) *Rules {
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
	r.compileNetworks()
	return r
}

// selector compiles s. A nil selector selects everything. An invalid selector selects nothing;
// package config rejects those.
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

// PortsOn returns how the ports of a node with these labels are plugged.
func (r *Rules) PortsOn(node labels.Set) config.NodePorts {
	for i, sel := range r.nodes {
		if sel.Matches(node) {
			return r.Nodes[i]
		}
	}
	return config.NodePorts{VIFType: r.Pods.VIFType}
}

// PodGroups returns the security groups of the first rule that matches a pod in a project. It returns
// false if no rule matches. A rule that selects no namespaces is for the common project: the author of
// a pod in another project writes its labels, and must not choose among the common project's groups.
func (r *Rules) PodGroups(projectID string, namespace, pod labels.Set) ([]string, bool) {
	for _, g := range r.Groups {
		if projectID != r.Pods.ProjectID && g.namespace.Empty() {
			continue
		}
		if g.namespace.Matches(namespace) && g.pod.Matches(pod) {
			return g.ids, true
		}
	}
	return nil, false
}

// Apart reports whether the pods of a namespace have a pool of their own on a node.
func (r *Rules) Apart(node, namespace labels.Set) bool {
	return slices.ContainsFunc(r.overrides, func(o override) bool {
		return o.NamespaceSelector != nil && o.node.Matches(node) && o.namespace.Matches(namespace)
	})
}

// Key returns the part of a pool's key that comes from the settings, on a node with these ports.
func (r *Rules) Key(ports config.NodePorts, parent, namespace string) pool.Settings {
	s := pool.Settings{
		ProjectID: r.Pods.ProjectID, SubnetIDs: r.Pods.SubnetIDs,
		SecurityGroupIDs: r.Pods.SecurityGroupIDs, VIFType: ports.VIFType, ParentPortID: parent, Namespace: namespace,
	}
	if len(ports.SubnetIDs) > 0 {
		s.SubnetIDs = ports.SubnetIDs
	}
	return s
}

// Sharing says which pods a pool's ports are for.
type Sharing int

const (
	// OfAll is the pool of a node, for the pods of all namespaces without a pool of their own.
	OfAll Sharing = iota
	// OfNamespace is a namespace's own pool in the common network.
	OfNamespace
	// OfNetwork is a pool of a namespace with a KuryrNetwork.
	OfNetwork
)

// Levels returns the levels of a node's pool or of a namespace's own pool there. One override may
// set a min above the max of another. Then the max counts: a pool must not have more ports than its
// max.
func (r *Rules) Levels(node, namespace labels.Set, of Sharing) pool.Levels {
	p := r.Pools
	l := pool.Levels{Min: int(p.Min), Max: int(p.Max), Batch: int(p.Batch), TTL: p.TTL.Duration, Cooldown: p.Cooldown.Duration}
	if of == OfNetwork {
		l.Min = int(r.Networks.MinFree)
	}
	for _, o := range slices.Backward(r.overrides) { // of each level the first that says it counts
		if !o.node.Matches(node) || o.NamespaceSelector != nil && (of == OfAll || !o.namespace.Matches(namespace)) {
			continue
		}
		l.Min, l.Max, l.Batch = said(o.Min, l.Min), said(o.Max, l.Max), said(o.Batch, l.Batch)
		if o.TTL != nil {
			l.TTL = o.TTL.Duration
		}
		if o.Cooldown != nil {
			l.Cooldown = o.Cooldown.Duration
		}
	}
	if l.Max > 0 {
		l.Min = min(l.Min, l.Max)
	}
	l.Batch = max(1, l.Batch)
	return l
}

// said returns a level of an override, or the other one if the override says none.
func said(level *int32, otherwise int) int {
	if level == nil {
		return otherwise
	}
	return int(*level)
}

// CheckInterval returns the time between two checks of a load balancer, given the configured value.
func CheckInterval(d time.Duration) time.Duration {
	if d <= 0 {
		return 10 * time.Minute
	}
	return d
}
