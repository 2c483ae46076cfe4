// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package sites applies the settings to a node. By the labels of the node, the labels of a pod's
// namespace, and the namespace's network it determines which pool the pod's port comes from. It
// reports why pods wait for a network. It also finds the parent port of a node that is a virtual
// machine.
package sites

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Sites determines which pool a pod's port comes from. It reads caches only. Its methods are safe
// for concurrent use.
type Sites struct {
	Options
	ParentPorts *ParentPorts
	Waiting     *Waiting
}

// Options is what Sites needs. All but Hosts have to be given.
type Options struct {
	Shards   kube.Shards
	Client   client.Reader
	Hosts    sdn.Hosts // nil: no node can be a virtual machine
	Settings *settings.Live
	Networks networks
	Backoff  outcome.Backoff
	Events   events.EventRecorder
	Pools    poolPlanner
	Gauge    prometheus.Gauge // gets the pods that wait and that no pool counts
}

// poolPlanner plans pools.
type poolPlanner interface {
	// RequeueNode plans the pools of a node: its parent port was found.
	RequeueNode(ctx context.Context, node string)
	// RequeueNamespace plans the pools of a namespace: its network has changed. Without a name it plans
	// those of all.
	RequeueNamespace(ctx context.Context, namespace string) error
}

// New returns Sites. The caller must add its ParentPorts and its Waiting to a manager with Setup.
func New(o Options) *Sites {
	s := &Sites{Options: o}
	s.ParentPorts = &ParentPorts{Options: o, sites: s, notices: &notices{gauge: o.Gauge, waiting: map[string]*notice{}}}
	s.ParentPorts.searches.KeepError = s.ParentPorts.pause
	s.ParentPorts.checks.KeepError = func(error, int) time.Duration { return o.Backoff.Rejected }
	s.Waiting = &Waiting{Options: o, sites: s, notices: &notices{gauge: o.Gauge, waiting: map[string]*notice{}}}
	// What is gained is dropped, too: an event may have left something of a node while it was being lost.
	o.Shards.Follow(func(_ context.Context, keys kube.Keys, _ bool) { s.lost(keys) }, s.lost)
	return s
}

// lost forgets lost nodes, and counts the pods that wait for a network without those there.
func (s *Sites) lost(keys kube.Keys) {
	s.ParentPorts.forget(func(node string) bool { return keys(kube.OnNode(node)) })
	s.Waiting.recount()
}

// Site is one node under the current settings. It exists for one event or plan, and is not safe for
// concurrent use.
type Site struct {
	client        client.Reader
	networks      networks
	Rules         *settings.Rules
	Name          string
	Node          *corev1.Node // nil: no node has that name
	Ports         config.NodePorts
	Parent        string // parent port of a node that is a virtual machine, else empty
	ParentUnknown bool   // the node is a virtual machine, and Parent is not known yet
	namespaces    map[string]namespace
}

// namespace is a namespace as the cache shows it. Without own and wait its pods are in the common
// network.
type namespace struct {
	labels labels.Set
	known  bool  // false: it is not in the cache
	own    *own  // its network
	wait   *wait // why its network gives no ports now
}

// On returns the site of a node.
func (s *Sites) On(ctx context.Context, name string) (*Site, error) {
	out := &Site{client: s.Client, networks: s.Networks, Rules: s.Settings.Rules(), Name: name, namespaces: map[string]namespace{}}
	var node corev1.Node
	err := s.Client.Get(ctx, client.ObjectKey{Name: name}, &node, kube.ReadOnly)
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	out.Node = &node
	out.Ports = out.Rules.PortsOn(node.Labels)
	if config.Nested(out.Ports.VIFType) {
		id, known, err := s.ParentPorts.portOf(ctx, &node, out.Ports.VIFType)
		if err != nil {
			return nil, err
		}
		out.Parent, out.ParentUnknown = id, !known
	}
	return out, nil
}

// namespace returns a namespace of the cache. It may be new, and not in the cache yet.
func (s *Site) namespace(ctx context.Context, name string) (namespace, error) {
	if ns, ok := s.namespaces[name]; ok {
		return ns, nil
	}
	object := kube.NamespaceMeta()
	err := s.client.Get(ctx, client.ObjectKey{Name: name}, object, kube.ReadOnly)
	if client.IgnoreNotFound(err) != nil {
		return namespace{}, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	ns := namespace{labels: object.Labels, known: err == nil}
	if ns.known {
		if ns.own, ns.wait, err = s.place(ctx, object); err != nil {
			return namespace{}, err
		}
	}
	s.namespaces[name] = ns
	return ns, nil
}

// Own returns the namespace in the key of the pool for a namespace's pods. It returns an empty
// string if the namespace has no pool of its own. It returns false while that is unknown, and while
// the namespace's network gives no ports.
func (s *Site) Own(ctx context.Context, name string) (string, bool, error) {
	if s.Node == nil {
		return "", false, nil
	}
	ns, err := s.namespace(ctx, name)
	if err != nil || !ns.known || ns.wait != nil {
		return "", false, err
	}
	if ns.own != nil || s.Rules.ByNamespace && s.Rules.Apart(s.Node.Labels, ns.labels) {
		return name, true, nil
	}
	return "", true, nil
}

// Waits reports whether the pods of a namespace wait for its network. Own must have been called for
// it.
func (s *Site) Waits(name string) bool { return s.namespaces[name].wait != nil }

// Stays reports whether it is not decided whether a pool's namespace still uses the pool: the
// namespace's network is being made or repaired, or is not read yet. Own must have been called for
// the namespace.
func (s *Site) Stays(key *v1.PoolKey) bool {
	w := s.namespaces[key.Namespace].wait
	return w != nil && w.passing && (w.network == "" || w.network == key.NetworkID)
}

// Network returns the KuryrNetwork of a namespace for which Own was called, shared with the cache;
// nil if its pods are in the common network, or wait.
func (s *Site) Network(name string) *v1.KuryrNetwork {
	if own := s.namespaces[name].own; own != nil {
		return own.object
	}
	return nil
}

// Key returns the key of the node's pool, or of a namespace's own pool there. Own must have been
// called for that namespace. Key returns false while the key is unknown.
func (s *Site) Key(own string) (v1.PoolKey, bool) {
	ns := s.namespaces[own]
	if s.Node == nil || s.ParentUnknown || ns.wait != nil {
		return v1.PoolKey{}, false
	}
	key := s.Rules.Key(s.Ports, s.Parent, own)
	if ns.own != nil {
		ns.own.apply(&key, len(s.Ports.SubnetIDs) > 0)
	}
	return pool.KeyOn(s.Name, key), true
}

// Pool returns the pool for a namespace's pods. It returns false while that is unknown.
func (s *Site) Pool(ctx context.Context, name string) (pool.Ref, bool, error) {
	own, ok, err := s.Own(ctx, name)
	if err != nil || !ok {
		return pool.Ref{}, false, err
	}
	key, ok := s.Key(own)
	if !ok {
		return pool.Ref{}, false, nil
	}
	return pool.Ref{Pool: pool.Name(key), Node: s.Name}, true, nil
}

// Levels returns the levels of the pool with this key.
func (s *Site) Levels(ctx context.Context, key v1.PoolKey) (pool.Levels, error) {
	var ns namespace
	if key.Namespace != "" && s.Rules.ByNamespace {
		var err error
		if ns, err = s.namespace(ctx, key.Namespace); err != nil {
			return pool.Levels{}, err
		}
	}
	return s.Rules.Levels(s.Node.Labels, ns.labels, s.sharing(key.Namespace)), nil
}

// sharing returns which pods share a pool: the levels of the settings depend on that.
func (s *Site) sharing(own string) settings.Sharing {
	ns := s.namespaces[own]
	switch {
	case own == "":
		return settings.OfAll
	case ns.own != nil || ns.wait != nil:
		return settings.OfNetwork
	}
	return settings.OfNamespace
}

// Groups returns the security groups that a pod gets on a port of a pool whose groups are pools.
// nil stands for the pool's groups. It returns false while that is unknown.
func (s *Site) Groups(ctx context.Context, pod *corev1.Pod, pools []string) ([]string, bool, error) {
	if len(s.Rules.Groups) == 0 {
		return nil, true, nil
	}
	ns, err := s.namespace(ctx, pod.Namespace)
	if err != nil || !ns.known || ns.wait != nil {
		return nil, false, err
	}
	project := s.Rules.Pods.ProjectID
	if ns.own != nil {
		project = ns.own.object.Spec.ProjectID
	}
	ids, ruled := s.Rules.PodGroups(project, ns.labels, pod.Labels)
	if !ruled || slices.Equal(ids, v1.GroupSet(pools)) {
		return nil, true, nil
	}
	return ids, true, nil
}

// Refused returns the youngest pods, which get no port because the node's kubelet cannot run them.
// Pods reach a node without the scheduler, by spec.nodeName. A kubelet refuses pods beyond its
// number, but not while it is down. Each port counts against the quota and the subnet of all nodes.
// A pod that has a port keeps it.
func (s *Site) Refused(pods []corev1.Pod, hasPort func(*corev1.Pod) bool) map[types.UID]bool {
	if s.Node == nil {
		return nil
	}
	room, _ := kube.NodeTakes(s.Node)
	var waiting []*corev1.Pod
	for i := range pods {
		switch pod := &pods[i]; {
		case pool.Finished(pod):
		case pod.Spec.HostNetwork, hasPort(pod):
			room--
		case pool.Wants(pod):
			waiting = append(waiting, pod)
		}
	}
	if len(waiting) <= room {
		return nil
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID)))
	})
	out := map[types.UID]bool{}
	for _, pod := range waiting[max(0, room):] {
		out[pod.UID] = true
	}
	return out
}

// Warm reports whether the node's pool, or a namespace's own pool there, is filled before its first
// pod.
func (s *Site) Warm(own string) bool {
	return own == "" && s.Rules.Pools.WarmUp && s.Node != nil && kube.NodeJoined(s.Node)
}
