// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package sites says of a node what the settings make of it: which pool a pod's port comes
// from there, by the labels of its node and namespace, and what the node is. Of a node that
// is a virtual machine it finds the port.
package sites

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// Sites says which pool a pod's port comes from, by the labels of its node and
// namespace and by what the node is. It reads caches only. Its methods are safe for
// concurrent use.
type Sites struct {
	client   client.Reader
	settings *settings.Live
	Parents  *Parents

	names sync.Map // namespace, by the pool.Ref of a pool of its own that may have no object yet
}

// Note notes which namespace's own a pool is: its name is a hash, and to find out would be
// to make that of every namespace.
func (s *Sites) Note(req pool.Ref, namespace string) { s.names.Store(req, namespace) }

// Forget forgets that.
func (s *Sites) Forget(req pool.Ref) { s.names.Delete(req) }

// Noted returns the namespace whose own a pool is, if that was noted.
func (s *Sites) Noted(req pool.Ref) (string, bool) {
	namespace, ok := s.names.Load(req)
	if !ok {
		return "", false
	}
	return namespace.(string), true
}

// Site is one node with what the settings of the moment say of it. It is made
// for one event or plan, and not safe for concurrent use.
type Site struct {
	client     client.Reader
	Rules      *settings.Rules
	Name       string
	Node       *corev1.Node // nil: there is none of that name
	Ports      config.NodePorts
	Parent     string // port of the virtual machine that the node is
	Blind      bool   // the node is one, and its port is not known
	namespaces map[string]namespace
}

// namespace is what is known of one.
type namespace struct {
	labels labels.Set
	known  bool // false: it is not in the cache
}

// On returns the site of a node.
func (s *Sites) On(ctx context.Context, name string) (*Site, error) {
	out := &Site{client: s.client, Rules: s.settings.Rules(), Name: name, namespaces: map[string]namespace{}}
	var node corev1.Node
	err := s.client.Get(ctx, client.ObjectKey{Name: name}, &node, kube.ReadOnly)
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	out.Node = &node
	out.Ports = out.Rules.PortsOn(node.Labels)
	if config.Nested(out.Ports.VIFType) {
		id, known, err := s.Parents.of(ctx, &node, out.Ports.VIFType)
		if err != nil {
			return nil, err
		}
		out.Parent, out.Blind = id, !known
	}
	return out, nil
}

// labelsOf returns the labels of a namespace, if anything depends on them. It
// is false for a namespace that the cache does not show: it may be a new one.
func (s *Site) labelsOf(ctx context.Context, name string) (labels.Set, bool, error) {
	if !s.Rules.ByNamespace {
		return nil, true, nil
	}
	if ns, ok := s.namespaces[name]; ok {
		return ns.labels, ns.known, nil
	}
	object := kube.NamespaceMeta()
	err := s.client.Get(ctx, client.ObjectKey{Name: name}, object, kube.ReadOnly)
	if client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	ns := namespace{labels: object.Labels, known: err == nil}
	s.namespaces[name] = ns
	return ns.labels, ns.known, nil
}

// Own returns the namespace in the key of the pool that a namespace's pods have
// their ports of: itself or none. It is false while that cannot be told.
func (s *Site) Own(ctx context.Context, name string) (string, bool, error) {
	set, known, err := s.labelsOf(ctx, name)
	if err != nil || !known || s.Node == nil {
		return "", false, err
	}
	if s.Rules.ByNamespace && s.Rules.Apart(s.Node.Labels, set) {
		return name, true, nil
	}
	return "", true, nil
}

// Key is the key of the pool of the node, or of a namespace's own there. It is
// false while that cannot be told.
func (s *Site) Key(own string) (v1.PoolKey, bool) {
	if s.Node == nil || s.Blind {
		return v1.PoolKey{}, false
	}
	return pool.KeyOn(s.Name, s.Rules.Key(s.Ports.VIFType, s.Parent, own)), true
}

// Request is the pool that a namespace's pods have their ports of.
func (s *Site) Request(ctx context.Context, name string) (pool.Ref, bool, error) {
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

// Levels are those of the pool of this key.
func (s *Site) Levels(ctx context.Context, key v1.PoolKey) (pool.Levels, error) {
	var set labels.Set
	if key.Namespace != "" {
		var err error
		if set, _, err = s.labelsOf(ctx, key.Namespace); err != nil {
			return pool.Levels{}, err
		}
	}
	return s.Rules.Levels(s.Node.Labels, set, key.Namespace != ""), nil
}

// Groups returns the security groups that pod is to have on a port of a pool
// whose own are these; nil if just these. It is false while that cannot be told.
func (s *Site) Groups(ctx context.Context, pod *corev1.Pod, pools []string) ([]string, bool, error) {
	if len(s.Rules.Groups) == 0 {
		return nil, true, nil
	}
	set, known, err := s.labelsOf(ctx, pod.Namespace)
	if err != nil || !known {
		return nil, false, err
	}
	ids, ruled := s.Rules.PodGroups(set, pod.Labels)
	if !ruled || slices.Equal(ids, v1.GroupSet(pools)) {
		return nil, true, nil
	}
	return ids, true, nil
}

// Refused returns the pods that want a port and get none: those beyond what the node's
// kubelet runs, the youngest ones first. Pods reach a node without the scheduler, by
// spec.nodeName, and kubelet refuses what is too much; but not one that is away, and each
// port takes of the quota and the subnet of all. Who has a port keeps it.
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

// Warm reports whether the pool is to be filled before it has a pod.
func (s *Site) Warm(own string) bool {
	if s.Node == nil || !kube.NodeJoined(s.Node) {
		return false
	}
	if own != "" {
		return s.Rules.Pools.WarmUp.Namespaces
	}
	return s.Rules.Pools.WarmUp.Nodes
}
