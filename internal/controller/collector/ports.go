// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// arrivals is what the collector needs of package supply, which requests ports for pools.
type arrivals interface {
	// Knows returns ports in use that no object names yet. It also returns pools with requests in
	// progress, which may have created ports.
	Knows() (ports, busy map[string]bool)
	// Adopt gives a port to a pool, as if it had just been created.
	Adopt(r pool.Ref, port sdn.Port)
	// Freed reports that a port was deleted. r is zero if its pool is not known.
	Freed(r pool.Ref)
}

// PortOptions is what the collection of ports needs. All fields are required.
type PortOptions struct {
	Cloud      sdn.Ports
	Visibility sdn.Visibility
	Settings   *settings.Live
	Shards     kube.Shards
	Supply     arrivals
	Applier    portApplier
	Queue      *kube.Queue[pool.Ref] // of pools to plan
	Look       kube.Signal           // sent when there may be something to find
}

// portApplier requeues a KuryrPort whose port the SDN does not have, or has with other security groups.
type portApplier interface {
	Lost(name string)
	Regroup(name string)
}

// ports compares the ports of the cloud with the KuryrPorts.
type ports struct {
	PortOptions
	client client.Client
	live   client.Reader // reads past the cache
	kind   *Kind

	// audit is when security groups are to be compared, in nanoseconds; 0: they are not. A process that
	// crashed may have requested other groups, and Neutron may change them after the next owner did.
	audit   atomic.Int64
	changed map[string]bool // ports with other groups in the last comparison
}

// AddPorts adds the collection of ports to mgr. It also adds what requests a comparison when a pod
// with a port does not start.
func AddPorts(mgr ctrl.Manager, o PortOptions) error {
	inventory := Ports(mgr, o)
	s := &stuckPods{client: mgr.GetClient(), settings: o.Settings, shards: o.Shards, look: o.Look}
	watch := kube.Every("stuck-pods", func() time.Duration { return max(s.grace(), time.Second/10) }, s.once, nil)
	return errors.Join(inventory.Setup(mgr), mgr.Add(watch))
}

// Ports returns the inventory of ports.
func Ports(from source, o PortOptions) *Inventory {
	r := &ports{PortOptions: o, client: from.GetClient(), live: from.GetAPIReader()}
	r.kind = &Kind{
		Name: "port", From: from, Wanted: r.wanted, Adopt: r.adopt, Delete: r.delete,
		Adopted: portsAdopted, Deleted: orphansDeleted,
		WhyAdopt: "its pool can use it", WhyDelete: "no KuryrPort names it, and no pool can use it",
	}
	o.Shards.Follow(func(_ context.Context, _ kube.Keys, crashed bool) {
		if crashed {
			r.audit.Store(time.Now().Add(o.Settings.Load().Orphans.Grace.Duration).UnixNano())
		}
	}, nil)
	return &Inventory{Name: "orphans", Settings: o.Settings, Shards: o.Shards, comparison: r, Early: o.Look, Soon: true}
}

// tell has the reconciler of KuryrPorts, which owns the status, look at the port.
func (r *ports) tell(req ctrl.Request) {
	if r.changed[req.Name] {
		r.Applier.Regroup(req.Name)
		return
	}
	r.Applier.Lost(req.Name)
}

func (r *ports) period() time.Duration { return r.Settings.Load().Orphans.Interval.Duration }

// look lists the objects' names before and after the cloud's list, and in between the ports that
// this process knows. A port created meanwhile is in one of the later two. A port deleted meanwhile
// had an object in the first.
//
// What the list has is compared also if the list lacks the ports of a project. Only the objects of
// that project are not missing then.
func (r *ports) look(ctx context.Context) (Findings, error) {
	before, err := kube.All[*v1.KuryrPort](ctx, r.client, &v1.KuryrPortList{})
	if err != nil {
		return Findings{}, err
	}
	listed, err := r.Cloud.ListPorts(ctx)
	if err != nil && sdn.Partial(err) == nil {
		return Findings{}, fmt.Errorf("listing ports: %w", err)
	}
	lacks := err
	// An arriving port is in supply until the cache shows its object. So supply is asked first.
	remembered, busy := r.Supply.Knows()
	after, err := kube.All[*v1.KuryrPort](ctx, r.client, &v1.KuryrPortList{})
	if err != nil {
		return Findings{}, err
	}
	keys, err := r.keys(ctx)
	if err != nil {
		return Findings{}, err
	}
	annotated, err := r.annotated(ctx)
	if err != nil {
		return Findings{}, err
	}
	found := Findings{Differ: r.otherGroups(listed, before, after), Unsure: unlisted("ports", lacks)}
	there := map[ctrl.Request]bool{}
	for _, p := range listed {
		req := ctrl.Request{NamespacedName: client.ObjectKey{Name: p.ID}}
		there[req] = true
		if before[req] == nil && after[req] == nil && !annotated[p.ID] && !remembered[p.ID] {
			found.addUnnamed(r.kind, p, keys(p), r.Shards, busy)
		}
	}
	var absent []*v1.KuryrPort
	for req, p := range before {
		switch now := after[req]; {
		case !r.Shards.Owns(kube.OnNode(p.Spec.NodeName)):
		case there[req] && p.Lost(): // the SDN has it again
			found.Differ = append(found.Differ, req)
		case !there[req] && now != nil && now.DeletionTimestamp.IsZero() && sdn.ErrorIn(p.Spec.ProjectID, lacks) == nil:
			absent = append(absent, p)
		}
	}
	gone, unseen := r.credible(ctx, absent)
	found.Differ, found.Unsure = append(found.Differ, gone...), errors.Join(found.Unsure, unseen)
	return found, nil
}

// addUnnamed adds a port that nothing names, if its key is an own one: its owner knows which of its pools, the
// busy ones, has a request in progress.
func (f *Findings) addUnnamed(kind *Kind, p sdn.PortSummary, key kube.Key, shards kube.Shards, busy map[string]bool) {
	switch {
	case !shards.Owns(key):
	case busy[p.Owner.Name]: // most likely it is one that the pool has requested
		f.Unsure = errors.Join(f.Unsure, fmt.Errorf("port %s may have no owner: a request of pool %s that is in progress may have created it", p.ID, p.Owner.Name))
	default:
		f.Unnamed = append(f.Unnamed, Resource{Kind: kind, ID: p.ID, Owner: p.Owner, Key: key, Name: p.Name, Created: p.Created, Revision: p.Revision})
	}
}

// otherGroups returns own KuryrPorts whose port has other security groups than they say, once a grace
// period after keys were taken over from a process that crashed. Their objects were at rest meanwhile.
func (r *ports) otherGroups(listed []sdn.PortSummary, before, after map[ctrl.Request]*v1.KuryrPort) (differ []ctrl.Request) {
	r.changed = map[string]bool{}
	due := r.audit.Load()
	if due == 0 || time.Now().UnixNano() < due {
		return nil
	}
	for _, p := range listed {
		req := ctrl.Request{NamespacedName: client.ObjectKey{Name: p.ID}}
		was, is := before[req], after[req]
		if was == nil || is == nil || was.Generation != is.Generation || !was.Grouped() || !is.DeletionTimestamp.IsZero() || !r.Shards.Owns(kube.OnNode(is.Spec.NodeName)) {
			continue
		}
		if !v1.SameGroups(is.Spec.SecurityGroupIDs, p.SecurityGroupIDs) {
			r.changed[p.ID] = true
			differ = append(differ, req)
		}
	}
	r.audit.CompareAndSwap(due, 0)
	return differ
}

// keys returns the keys of ports: the node of a port's pool. Of a pool that is gone, the port's host
// is the node; without one the pool's name stands for it.
func (r *ports) keys(ctx context.Context) (func(sdn.PortSummary) kube.Key, error) {
	var pools v1.KuryrPortPoolList
	if err := r.client.List(ctx, &pools, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPortPools: %w", err)
	}
	nodes := map[string]string{}
	for i := range pools.Items {
		nodes[pools.Items[i].Name] = pools.Items[i].Spec.Key.NodeName
	}
	return func(p sdn.PortSummary) kube.Key {
		return kube.OnNode(cmp.Or(nodes[p.Owner.Name], p.Host, p.Owner.Name))
	}, nil
}

// credible returns the KuryrPorts whose port the SDN would show if it had it. unseen says why others
// are not returned: a credential that has lost a role sees no ports.
func (r *ports) credible(ctx context.Context, missing []*v1.KuryrPort) (gone []ctrl.Request, unseen error) {
	type place struct{ project, network string }
	sights := map[place]error{}
	for _, p := range missing {
		at := place{p.Spec.ProjectID, p.Spec.NetworkID}
		err, asked := sights[at]
		if !asked {
			if err = r.Visibility.Sees(ctx, at.project, at.network); err != nil {
				unseen = errors.Join(unseen, fmt.Errorf("the cloud does not show the ports of KuryrPort %s and others: %w", p.Name, err))
			}
			sights[at] = err
		}
		if err == nil {
			gone = append(gone, kube.RequestOf(p))
		}
	}
	return gone, unseen
}

// annotated returns the ports that running pods name in their annotations. Most of these ports have
// an object. A port without one is about to get its object back.
func (r *ports) annotated(ctx context.Context) (map[string]bool, error) {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	ports := map[string]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if kube.Annotation(pod) == "" || pool.Finished(pod) || pod.Spec.HostNetwork {
			continue
		}
		named, err := v1.ParseVIFs(kube.Annotation(pod))
		if err != nil {
			continue // a person has written something unreadable
		}
		for _, id := range named {
			ports[id] = true
		}
	}
	return ports, nil
}

// wanted returns an error if a KuryrPort of that name exists, or if that cannot be determined.
func (r *ports) wanted(ctx context.Context, p Resource) (bool, error) {
	return false, kube.NoKuryrPort(ctx, r.live, p.ID)
}

// delete deletes a port as it was listed. An earlier owner's request may have changed it since: then the
// next comparison decides.
func (r *ports) delete(ctx context.Context, p Resource) error {
	err := r.Cloud.DeleteUnchangedPort(ctx, p.ID, p.Revision)
	if err == nil {
		r.Supply.Freed(pool.Ref{})
	}
	return err
}

// adopt gives a port to the pool that it was created for, if that pool still exists. A process that
// was stopped had requested the port but had not written its object. The pool's next plan creates
// the object, or deletes the port.
func (r *ports) adopt(ctx context.Context, p Resource) (func(context.Context) error, error) {
	if p.Owner.Kind != sdn.KindPool {
		return nil, nil
	}
	var object v1.KuryrPortPool
	err := r.client.Get(ctx, client.ObjectKey{Name: p.Owner.Name}, &object, kube.ReadOnly)
	if apierrors.IsNotFound(err) || err == nil && !object.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading KuryrPortPool %s: %w", p.Owner.Name, err)
	}
	port, err := r.Cloud.Port(ctx, p.ID)
	if err != nil {
		return nil, fmt.Errorf("reading port %s: %w", p.ID, err)
	}
	if !fresh(port, &object.Spec.Key) {
		return nil, nil
	}
	return func(context.Context) error {
		req := pool.Ref{Pool: p.Owner.Name, Node: object.Spec.Key.NodeName}
		r.Supply.Adopt(req, port)
		r.Queue.Add(req)
		return nil
	}, nil
}

// fresh reports whether a port is like a newly created port of the pool, and nothing that uses it
// is plugged. A subport is active from the start.
//
// A port with other security groups is not fresh: it could get to a pod with these. An interrupted
// `kuryr adopt` may leave one.
func fresh(port sdn.Port, key *v1.PoolKey) bool {
	if port.Name != sdn.FreePortName || port.DeviceID != "" || port.VIF.ParentPortID != key.ParentPortID ||
		!v1.SameGroups(port.SecurityGroupIDs, key.SecurityGroupIDs) {
		return false
	}
	if key.ParentPortID != "" {
		return true
	}
	return port.Host == key.NodeName && !port.Active && bindable(port.VIF.Type, key)
}

// bindable reports whether the SDN could bind a port of this type to its host. A process that ended
// may have left a port with a failed binding.
func bindable(vifType string, key *v1.PoolKey) bool {
	switch vifType {
	case "binding-failed":
		return false
	case "unbound", "":
		return key.VIFType != ""
	}
	return true
}
