// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// sites says which pool a pod's port comes from, by the labels of its node and
// namespace and by what the node is. It reads caches only.
type sites struct {
	client   client.Reader
	settings *settings.Live
	parents  *parents

	names sync.Map // namespace, by the pool.Ref of a pool of its own that may have no object yet
}

// name notes which namespace's own a pool is: its name is a hash, and to find out would be
// to make that of every namespace.
func (s *sites) name(req pool.Ref, namespace string) { s.names.Store(req, namespace) }

// unname forgets that.
func (s *sites) unname(req pool.Ref) { s.names.Delete(req) }

// named returns the namespace whose own a pool is, if that was noted.
func (s *sites) named(req pool.Ref) (string, bool) {
	namespace, ok := s.names.Load(req)
	if !ok {
		return "", false
	}
	return namespace.(string), true
}

// site is one node with what the settings of the moment say of it. It is made
// for one event or plan, and not safe for concurrent use.
type site struct {
	client     client.Reader
	rules      *settings.Rules
	name       string
	node       *corev1.Node // nil: there is none of that name
	ports      config.NodePorts
	parent     string // port of the virtual machine that the node is
	blind      bool   // the node is one, and its port is not known
	namespaces map[string]namespace
}

// namespace is what is known of one.
type namespace struct {
	labels labels.Set
	known  bool // false: it is not in the cache
}

// on returns the site of a node.
func (s *sites) on(ctx context.Context, name string) (*site, error) {
	out := &site{client: s.client, rules: s.settings.Rules(), name: name, namespaces: map[string]namespace{}}
	var node corev1.Node
	err := s.client.Get(ctx, client.ObjectKey{Name: name}, &node, kube.ReadOnly)
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	out.node = &node
	out.ports = out.rules.PortsOn(node.Labels)
	if config.Nested(out.ports.VIFType) {
		id, known, err := s.parents.of(ctx, &node, out.ports.VIFType)
		if err != nil {
			return nil, err
		}
		out.parent, out.blind = id, !known
	}
	return out, nil
}

// labelsOf returns the labels of a namespace, if anything depends on them. It
// is false for a namespace that the cache does not show: it may be a new one.
func (s *site) labelsOf(ctx context.Context, name string) (labels.Set, bool, error) {
	if !s.rules.ByNamespace {
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

// own returns the namespace in the key of the pool that a namespace's pods have
// their ports of: itself or none. It is false while that cannot be told.
func (s *site) own(ctx context.Context, name string) (string, bool, error) {
	set, known, err := s.labelsOf(ctx, name)
	if err != nil || !known || s.node == nil {
		return "", false, err
	}
	if s.rules.ByNamespace && s.rules.Apart(s.node.Labels, set) {
		return name, true, nil
	}
	return "", true, nil
}

// key is the key of the pool of the node, or of a namespace's own there. It is
// false while that cannot be told.
func (s *site) key(own string) (v1.PoolKey, bool) {
	if s.node == nil || s.blind {
		return v1.PoolKey{}, false
	}
	return pool.KeyOn(s.name, s.rules.Key(s.ports.VIFType, s.parent, own)), true
}

// request is the pool that a namespace's pods have their ports of.
func (s *site) request(ctx context.Context, name string) (pool.Ref, bool, error) {
	own, ok, err := s.own(ctx, name)
	if err != nil || !ok {
		return pool.Ref{}, false, err
	}
	key, ok := s.key(own)
	if !ok {
		return pool.Ref{}, false, nil
	}
	return pool.Ref{Pool: pool.Name(key), Node: s.name}, true, nil
}

// levels are those of the pool of this key.
func (s *site) levels(ctx context.Context, key v1.PoolKey) (pool.Levels, error) {
	var set labels.Set
	if key.Namespace != "" {
		var err error
		if set, _, err = s.labelsOf(ctx, key.Namespace); err != nil {
			return pool.Levels{}, err
		}
	}
	return s.rules.Levels(s.node.Labels, set, key.Namespace != ""), nil
}

// groups returns the security groups that pod is to have on a port of a pool
// whose own are these; nil if just these. It is false while that cannot be told.
func (s *site) groups(ctx context.Context, pod *corev1.Pod, pools []string) ([]string, bool, error) {
	if len(s.rules.Groups) == 0 {
		return nil, true, nil
	}
	set, known, err := s.labelsOf(ctx, pod.Namespace)
	if err != nil || !known {
		return nil, false, err
	}
	ids, ruled := s.rules.PodGroups(set, pod.Labels)
	if !ruled || slices.Equal(ids, v1.GroupSet(pools)) {
		return nil, true, nil
	}
	return ids, true, nil
}

// refused returns the pods that want a port and get none: those beyond what the node's
// kubelet runs, the youngest ones first. Pods reach a node without the scheduler, by
// spec.nodeName, and kubelet refuses what is too much; but not one that is away, and each
// port takes of the quota and the subnet of all. Who has a port keeps it.
func (s *site) refused(pods []corev1.Pod, hasPort func(*corev1.Pod) bool) map[types.UID]bool {
	if s.node == nil {
		return nil
	}
	room, _ := kube.NodeTakes(s.node)
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

// warm reports whether the pool is to be filled before it has a pod.
func (s *site) warm(own string) bool {
	if s.node == nil || !kube.NodeJoined(s.node) {
		return false
	}
	if own != "" {
		return s.rules.Pools.WarmUp.Namespaces
	}
	return s.rules.Pools.WarmUp.Nodes
}

// forever is longer than any port lives.
const forever = 10 * 365 * 24 * time.Hour

// readPool finds what the pool is for. If the settings no longer lead to it, it
// keeps nothing and gets nothing new: it ends with its last port.
func (r *Reconciler) readPool(ctx context.Context, v *view, pods []corev1.Pod) error {
	var object v1.KuryrPortPool
	err := r.client.Get(ctx, client.ObjectKey{Name: v.req.Pool}, &object)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading KuryrPortPool %s: %w", v.req.Pool, err)
	}
	v.state.Levels = pool.Levels{Batch: 1}
	if err == nil {
		v.object = &object
		v.key = &object.Spec.Key
		v.unsure = v.site.blind
	}
	key, err := r.find(ctx, v, pods)
	if err != nil {
		return err
	}
	if key != nil {
		v.key, v.current = key, true
	}
	if !v.current && !v.unsure {
		return nil
	}
	if v.levels, err = v.site.levels(ctx, *v.key); err != nil {
		return err
	}
	v.state.Levels = v.levels
	if v.unsure { // nothing is made, and nothing that is there goes
		v.state.Levels = pool.Levels{Batch: 1, TTL: forever, Cooldown: v.levels.Cooldown}
	}
	if v.unsure || v.object == nil && !v.site.warm(v.key.Namespace) {
		v.state.Levels.Min = 0 // until the first pod comes, see report
	}
	return nil
}

// find returns the key of this name that the settings make, nil if they make
// none. That of an object says which it can be; else it is that of the node, or
// of one of the namespaces that may have a pool there.
func (r *Reconciler) find(ctx context.Context, v *view, pods []corev1.Pod) (*v1.PoolKey, error) {
	try := func(own string) *v1.PoolKey {
		if key, ok := v.site.key(own); ok && pool.Name(key) == v.req.Pool {
			return &key
		}
		return nil
	}
	if v.object == nil || v.key.Namespace == "" {
		if key := try(""); key != nil || v.object != nil {
			return key, nil
		}
	}
	names, err := r.candidates(ctx, v, pods)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		own, ok, err := v.site.own(ctx, name)
		if err != nil {
			return nil, err
		}
		if ok && own != "" {
			if key := try(own); key != nil {
				return key, nil
			}
		}
	}
	return nil, nil
}

// candidates returns the namespaces whose own pool this may be.
func (r *Reconciler) candidates(ctx context.Context, v *view, pods []corev1.Pod) ([]string, error) {
	switch {
	case !v.site.rules.ByNamespace:
		return nil, nil
	case v.object != nil:
		return []string{v.key.Namespace}, nil
	}
	if name, ok := r.sites.named(v.req); ok {
		return []string{name}, nil
	}
	switch {
	case v.site.rules.Pools.WarmUp.Namespaces:
		return r.namespaces(ctx)
	}
	var names []string
	for i := range pods {
		if !slices.Contains(names, pods[i].Namespace) {
			names = append(names, pods[i].Namespace)
		}
	}
	return names, nil
}

// namespaces returns the names of all.
func (r *Reconciler) namespaces(ctx context.Context) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.client.List(ctx, list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names, nil
}
