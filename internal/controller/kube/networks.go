// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Networks are the KuryrNetworks of namespaces, for those that only read them. An API server may
// lack the kind, or the controller the permission: a read of the cache would wait for it forever.
// So none is read before Serve. Its methods are safe for concurrent use.
type Networks struct {
	client  client.Reader
	served  atomic.Bool
	lacking atomic.Bool
	guarded atomic.Bool
	vouched sync.Map // *vouched by UID

	mu        sync.Mutex
	followers []func(namespace string)
}

// NewNetworks returns Networks that are read from the cache of mgr.
func NewNetworks(mgr ctrl.Manager) *Networks { return &Networks{client: mgr.GetClient()} }

// networkSubnet is the index of KuryrNetworks by the subnets that their status names.
const networkSubnet = "status.subnets[].id"

// Follow has moved called with a namespace after each event of its KuryrNetwork from now on. Serve
// calls it with an empty string: what was not known of any namespace is known then. moved must not
// wait for anything, and is never removed.
func (n *Networks) Follow(moved func(namespace string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.followers = append(n.followers, moved)
}

// SetUnavailable notes that there are no KuryrNetworks to read: the API server lacks the kind or the permission,
// or none is left and the configuration wants none. It may be called again, and Serve may follow.
func (n *Networks) SetUnavailable() {
	if !n.lacking.Swap(true) {
		n.tell("")
	}
}

// Lacking reports whether there are no KuryrNetworks to read. Without it a namespace may have one that
// is not read yet.
func (n *Networks) Lacking() bool { return n.lacking.Load() && !n.served.Load() }

// vouched are the parts of a status that name resources, as the cloud was last seen to have them, and
// before that: the cache shows a write later.
type vouched struct{ now, before v1.KuryrNetworkStatus }

// RequireVerification has IsVerified compare statuses from now on: an applier vouches for them.
func (n *Networks) RequireVerification() { n.guarded.Store(true) }

// MarkVerified notes a status that was compared with the cloud. The applier calls it before it writes the
// status, and for the KuryrNetwork of another process's namespace after it was compared here. Conditions do
// not count.
func (n *Networks) MarkVerified(network *v1.KuryrNetwork, status *v1.KuryrNetworkStatus) {
	now := resourcesOf(status)
	last, _ := n.vouched.Load(network.UID)
	if last == nil {
		last = &vouched{now: resourcesOf(&network.Status), before: resourcesOf(&network.Status)}
	}
	before := last.(*vouched).now
	if equality.Semantic.DeepEqual(now, before) {
		before = last.(*vouched).before
	}
	n.vouched.Store(network.UID, &vouched{now: now, before: before})
	if !last.(*vouched).has(network) {
		n.tell(network.Namespace) // no port was made by this status so far, and perhaps no event follows
	}
}

// ForgetVerified forgets all statuses that were compared. That which is read first afterwards counts.
func (n *Networks) ForgetVerified() { n.vouched.Clear() }

// IsVerified reports whether the resources that the status of a KuryrNetwork names are those that the
// cloud was seen to have. People can edit and restore a status. That which a process reads first
// counts: a restart asks the cloud nothing.
func (n *Networks) IsVerified(network *v1.KuryrNetwork) bool {
	if !n.guarded.Load() {
		return true
	}
	last, _ := n.vouched.LoadOrStore(network.UID, &vouched{now: resourcesOf(&network.Status), before: resourcesOf(&network.Status)})
	return last.(*vouched).has(network)
}

func (v *vouched) has(network *v1.KuryrNetwork) bool {
	is := resourcesOf(&network.Status)
	return equality.Semantic.DeepEqual(is, v.now) || equality.Semantic.DeepEqual(is, v.before)
}

func resourcesOf(status *v1.KuryrNetworkStatus) v1.KuryrNetworkStatus {
	s := *status
	s.Conditions = nil
	return s
}

// Serve begins to read KuryrNetworks. The cache of mgr must have them. It is called once.
func (n *Networks) Serve(ctx context.Context, mgr ctrl.Manager) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &v1.KuryrNetwork{})
	if err != nil {
		return fmt.Errorf("watching KuryrNetworks: %w", err)
	}
	err = AddIndex(ctx, mgr, &v1.KuryrNetwork{}, networkSubnet, func(o client.Object) (ids []string) {
		for _, s := range o.(*v1.KuryrNetwork).Status.Subnets {
			ids = append(ids, s.ID)
		}
		return ids
	})
	if err != nil {
		return err
	}
	n.served.Store(true)
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: n.moved, UpdateFunc: func(_, o any) { n.moved(o) }, DeleteFunc: n.gone,
	})
	if err != nil {
		return fmt.Errorf("watching KuryrNetworks: %w", err)
	}
	n.tell("")
	return nil
}

// Serving reports whether a KuryrNetwork may give pods ports: it is not in deletion, or the applier
// has found since that pods still have ports in its network, and keeps it ready for another reason.
// New pods would otherwise wait for as long as those live.
func Serving(network *v1.KuryrNetwork) bool {
	ready := meta.FindStatusCondition(network.Status.Conditions, v1.ConditionReady)
	return network.DeletionTimestamp.IsZero() || ready != nil && ready.Status == metav1.ConditionTrue && ready.Reason != v1.ReasonReady
}

func (n *Networks) moved(o any) {
	if network, is := o.(*v1.KuryrNetwork); is {
		n.tell(network.Namespace)
	}
}

func (n *Networks) gone(o any) {
	if last, is := o.(toolscache.DeletedFinalStateUnknown); is {
		o = last.Obj
	}
	if network, is := o.(*v1.KuryrNetwork); is {
		n.vouched.Delete(network.UID)
		n.tell(network.Namespace)
	}
}

func (n *Networks) tell(namespace string) {
	n.mu.Lock()
	followers := n.followers
	n.mu.Unlock()
	for _, moved := range followers {
		moved(namespace)
	}
}

// WithSubnet returns the KuryrNetwork whose status names a subnet, shared with the cache; nil if
// none does, and before Serve. Several namespaces may share an existing subnet: then it is one of
// their KuryrNetworks.
func (n *Networks) WithSubnet(ctx context.Context, id string) (*v1.KuryrNetwork, error) {
	if !n.served.Load() {
		return nil, nil
	}
	list, err := listBy(ctx, n.client, &v1.KuryrNetworkList{}, "KuryrNetworks with subnet", networkSubnet, id)
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// Of returns the KuryrNetwork of a namespace, shared with the cache; nil if the namespace has none.
// known is false before Serve: then there may be one, unless KuryrNetworks are Lacking.
func (n *Networks) Of(ctx context.Context, namespace string) (network *v1.KuryrNetwork, known bool, err error) {
	if !n.served.Load() {
		return nil, false, nil
	}
	network = &v1.KuryrNetwork{}
	err = n.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: namespace}, network, ReadOnly)
	if apierrors.IsNotFound(err) {
		return nil, true, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("reading KuryrNetwork %s: %w", namespace, err)
	}
	return network, true, nil
}
