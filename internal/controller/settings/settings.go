// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package settings is the part of the configuration that the reconcilers follow while
// they run, and the rules that follow from it: which pool a pod of a node and a
// namespace has its ports from, with which security groups and levels.
package settings

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// Settings is the part of the configuration that the reconcilers follow while
// they run.
type Settings struct {
	Pods     config.Pods
	Nodes    []config.NodePorts
	Pools    config.Pools
	Services config.Services
	Orphans  config.Orphans
	// RequestsPerSecond is how many the cloud may be sent at most; 0: any number.
	RequestsPerSecond float64
}

// SettingsOf picks Settings from a whole configuration.
func SettingsOf(c *config.Config) Settings {
	return Settings{
		Pods: c.Pods, Nodes: c.Nodes, Pools: c.Pools, Services: c.Services, Orphans: c.Orphans, RequestsPerSecond: c.Neutron.RequestsPerSec,
	}
}

// Live is settings that may change at any time. Its methods are safe for
// concurrent use. A follower is never removed.
type Live struct {
	value   atomic.Pointer[Rules]
	Serving chan struct{} // closed when Services are first to have load balancers
	once    sync.Once

	mu        sync.Mutex
	followers []chan struct{}
}

// NewLive returns live settings that begin as s.
func NewLive(s Settings) *Live {
	l := &Live{Serving: make(chan struct{})}
	configurationValid.Set(1)
	l.store(s)
	return l
}

func (l *Live) store(s Settings) {
	l.value.Store(newRules(s))
	if ServesServices(&s.Services) {
		l.once.Do(func() { close(l.Serving) })
	}
}

// Load returns the settings of the moment. They are not to be changed.
func (l *Live) Load() *Settings { return &l.value.Load().Settings }

// Rules is Load with the selectors ready for use.
func (l *Live) Rules() *Rules { return l.value.Load() }

// Follow returns a channel that is sent to after each change of the settings from now on.
// Changes that nobody has received yet are one.
func (l *Live) Follow() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan struct{}, 1)
	l.followers = append(l.followers, c)
	return c
}

// Set makes s the settings. All who follow plan anew with it, at once and without regard
// to failures of the past.
func (l *Live) Set(s Settings) {
	l.store(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.followers {
		select {
		case c <- struct{}{}:
		default: // a change is being waited for already
		}
	}
}

// Refuse says in the metrics that there are newer settings that cannot be
// used, until the next Accept.
func (l *Live) Refuse() { configurationValid.Set(0) }

// Accept says in the metrics that the settings in use are what is configured, by the
// file with that config.Hash.
func (l *Live) Accept(hash string) {
	configurationInfo.Reset()
	configurationInfo.WithLabelValues(hash).Set(1)
	configurationValid.Set(1)
}

// ServesServices reports whether Services get load balancers at all.
func ServesServices(c *config.Services) bool { return len(c.SubnetIDs) > 0 }

var (
	configurationValid = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kuryr_configuration_valid",
		Help: "1 if the configuration file is the one in use, 0 if it has faults and an older one is kept.",
	})
	configurationInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kuryr_configuration_info",
		Help: "1, with the SHA-256 of the configuration file that is in use.",
	}, []string{"hash"})
)

func init() { metrics.Registry.MustRegister(configurationValid, configurationInfo) }

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

// CheckInterval is how long it is between two looks at each load balancer, given what
// the configuration says.
func CheckInterval(d time.Duration) time.Duration {
	if d <= 0 {
		return 10 * time.Minute
	}
	return d
}
