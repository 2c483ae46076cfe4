// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/group"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// writers is the number of a pool's objects that are written at once.
const writers = 16

// write is a KuryrPort after a write: of this version or a later one, or not there if the version is
// empty.
type write struct {
	version string
	unsure  bool // it ended with an error: the API server may or may not have done it
}

// write writes the objects that a plan changes, and returns once the cache shows them. A plan
// without them would bind or create a port twice. A failed write does not stop the others.
// Conflicts are returned only if no other error occurred.
//
// Specs are written as merge patches that carry the resource version, not by server-side apply.
// If two writers give away one port, one of them has to fail. An apply also could not remove a
// security group that another writer has added.
func (r *Reconciler) write(ctx context.Context, v *view, a *pool.Actions) error {
	var g errgroup.Group
	g.SetLimit(writers)
	var mu sync.Mutex
	var all []error
	writes := map[string]write{}
	do := func(doing, name string, f func() (version string, err error)) {
		g.Go(func() error {
			version, err := f()
			mu.Lock()
			defer mu.Unlock()
			if writes[name] = (write{version, err != nil}); err != nil {
				all = append(all, fmt.Errorf("%s KuryrPort %s: %w", doing, name, err))
			}
			return nil
		})
	}
	for _, b := range a.Bind {
		do("binding", b.Port, func() (string, error) { return r.bind(ctx, v, b) })
	}
	for _, b := range a.Adopt {
		do("creating", b.Port, func() (string, error) { return r.adopt(ctx, v, b) })
	}
	for _, name := range a.Recycle {
		do("returning to its pool", name, func() (string, error) { return r.recycle(ctx, v, name) })
	}
	for _, name := range a.Repair {
		do("changing security groups of", name, func() (string, error) { return r.repair(ctx, v, name) })
	}
	for _, name := range a.Delete {
		do("deleting", name, func() (string, error) { return r.delete(ctx, v, name) })
	}
	_ = g.Wait()
	if err := r.await(ctx, v.req, writes); err != nil {
		return err
	}
	for _, err := range all {
		if !apierrors.IsConflict(err) {
			return errors.Join(all...)
		}
	}
	if len(all) > 0 {
		return all[0]
	}
	return nil
}

// staleAfter is how long the cache may take to show a write. After it, the API server is asked
// whether the object still exists: it may have been deleted before the cache ever saw it.
const staleAfter = 10 * time.Second

// await waits until the cache shows writes of a pool. It fails only if ctx ends.
func (r *Reconciler) await(ctx context.Context, req pool.Ref, writes map[string]write) error {
	var event kube.Signal
	r.memory.with(req, func(p *poolMemory) { event = p.event })
	began, pause := time.Now(), time.Second // one clock: objects that are gone do not wait one after the other
	for name, w := range writes {
		for asked := began; w.unsure || !r.shows(ctx, name, w.version); {
			if !w.unsure && time.Since(asked) < staleAfter {
				select {
				case <-event:
				case <-time.After(staleAfter / 100):
				case <-ctx.Done():
				}
			} else if is, err := r.resolve(ctx, req, name); err == nil {
				w, asked, pause = is, time.Now(), time.Second
			} else {
				if pause == time.Second && ctx.Err() == nil { // once per outage
					ctrl.LoggerFrom(ctx).Info("cannot read a KuryrPort after a write; Kuryr tries again", "port", name, "error", err.Error())
				}
				w.unsure = true
				kube.Pause(ctx, pause)
				pause = min(2*pause, staleAfter)
			}
			if ctx.Err() != nil {
				return fmt.Errorf("waiting for the cache to show KuryrPort %s: %w", name, ctx.Err())
			}
		}
	}
	return nil
}

// resolve asks the API server for a KuryrPort after a write that ended with an error, or that the
// cache does not show. The write may have been done in spite of any error: a conflict or an existing
// object, too, may come from an earlier attempt of the same request.
func (r *Reconciler) resolve(ctx context.Context, req pool.Ref, name string) (write, error) {
	var port v1.KuryrPort
	if err := r.live.Get(ctx, client.ObjectKey{Name: name}, &port); client.IgnoreNotFound(err) != nil {
		return write{}, err
	}
	r.memory.with(req, func(p *poolMemory) { p.served(port.Spec.PodRef.Claim()) })
	return write{version: port.ResourceVersion}, nil // empty without an object
}

// shows reports whether the cache shows a KuryrPort of this version or a later one, or no object or
// one in deletion if the version is empty.
func (r *Reconciler) shows(ctx context.Context, name, version string) bool {
	var port v1.KuryrPort
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, &port, kube.ReadOnly)
	switch {
	case err != nil:
		return apierrors.IsNotFound(err) && version == ""
	case version == "":
		return !port.DeletionTimestamp.IsZero()
	}
	return !kube.Older(port.ResourceVersion, version)
}

// bind gives a free port to a pod.
func (r *Reconciler) bind(ctx context.Context, v *view, b pool.Binding) (version string, err error) {
	version, err = r.patch(ctx, v, b.Port, func(port *v1.KuryrPort) {
		port.Spec.PodRef = b.Pod
		groups := b.Groups
		if groups == nil {
			groups = v.key.SecurityGroupIDs
		}
		if !v1.SameGroups(port.Spec.SecurityGroupIDs, groups) {
			port.Spec.SecurityGroupIDs = groups
		}
		delete(port.Annotations, v1.ReleasedAnnotation)
		r.stamp(port, v1.BoundAnnotation)
		kube.Label(port, v1.PortBound)
	})
	if err == nil {
		r.bound(ctx, v, b)
	}
	return version, err
}

// adopt creates the object of an unrecorded port, with its finalizer, and bound if a pod waits
// for it. The port stays unrecorded until the next plan sees the object: the collector always finds
// it in one of the two.
func (r *Reconciler) adopt(ctx context.Context, v *view, b pool.Binding) (version string, err error) {
	from := v.known.Unrecorded[b.Port].Port
	if err := r.asKeyed(ctx, v, &from); err != nil {
		return "", err
	}
	port := &v1.KuryrPort{
		ObjectMeta: metav1.ObjectMeta{Name: b.Port, Finalizers: []string{v1.PortFinalizer}},
		Spec:       v.spec(&from, b.Pod),
	}
	phase := v1.PortAvailable
	if b.Pod != nil {
		phase = v1.PortBound
		r.stamp(port, v1.BoundAnnotation)
	}
	kube.Label(port, phase)
	err = r.client.Create(ctx, port, kube.OwnerPool)
	if apierrors.IsInvalid(err) {
		r.refuse(v, &from, err)
		return "", nil
	}
	if err == nil && b.Pod != nil {
		r.bound(ctx, v, b)
	}
	return port.ResourceVersion, err
}

// stamp writes the time as an annotation.
func (r *Reconciler) stamp(port *v1.KuryrPort, annotation string) {
	metav1.SetMetaDataAnnotation(&port.ObjectMeta, annotation, time.Now().UTC().Format(time.RFC3339Nano))
}

// refuse gives up a port whose object the API server refuses, such as one without an address.
func (r *Reconciler) refuse(v *view, port *sdn.Port, err error) {
	err = fmt.Errorf("recording port %s: %w: %w", port.ID, sdn.ErrInvalid, err)
	r.Supply.Failed(v.req, err)
	r.Supply.Discard(v.req, []string{port.ID})
}

// bound counts and logs a pod that has got its port.
func (r *Reconciler) bound(ctx context.Context, v *view, b pool.Binding) {
	var took time.Duration
	r.memory.with(v.req, func(p *poolMemory) {
		took = p.served(b.Pod.Claim())
		p.known[b.Pod.UID] = true
		delete(p.reported, string(b.Pod.UID))
	})
	bindSeconds.Observe(took.Seconds())
	ctrl.LoggerFrom(ctx).V(1).Info("bound port", "port", b.Port, "namespace", b.Pod.Namespace, "pod", b.Pod.Name, "uid", b.Pod.UID, "took", took.String())
}

// recycle takes a port from a pod that does not need it any more. The port keeps the groups of
// a rule if the SDN has them: the next pod may match the same rule.
func (r *Reconciler) recycle(ctx context.Context, v *view, name string) (version string, err error) {
	return r.patch(ctx, v, name, func(port *v1.KuryrPort) {
		port.Spec.PodRef = nil
		applied, own := port.Grouped(), group.Without(port.Spec.SecurityGroupIDs, group.MemberGroups(port))
		group.SetMemberGroups(port, nil)
		switch {
		case applied && v.ruled(own):
			port.Spec.SecurityGroupIDs = own
		case v.key != nil:
			port.Spec.SecurityGroupIDs = v.key.SecurityGroupIDs
		}
		delete(port.Annotations, v1.BoundAnnotation)
		r.stamp(port, v1.ReleasedAnnotation)
		kube.Label(port, v1.PortRecycling)
	})
}

// repair writes the wanted security groups. It replaces those that another writer, or earlier
// labels or settings, have left.
func (r *Reconciler) repair(ctx context.Context, v *view, name string) (version string, err error) {
	groups := v.groups[name]
	ctrl.LoggerFrom(ctx).Info("changing security groups of KuryrPort", "port", name, "groups", groups)
	return r.patch(ctx, v, name, func(port *v1.KuryrPort) {
		port.Spec.SecurityGroupIDs = groups
		group.SetMemberGroups(port, v.memberGroups[name])
	})
}

// delete deletes the object. Package ports deletes the port before it removes the finalizer.
func (r *Reconciler) delete(ctx context.Context, v *view, name string) (none string, err error) {
	port := v.ports[name]
	err = r.client.Delete(ctx, port.DeepCopy(), client.Preconditions{UID: &port.UID, ResourceVersion: &port.ResourceVersion})
	return "", kube.Lost(err)
}

// patch changes a KuryrPort, if its version is still that of the plan. It returns the new version.
func (r *Reconciler) patch(ctx context.Context, v *view, name string, change func(*v1.KuryrPort)) (version string, err error) {
	old := v.ports[name]
	port := old.DeepCopy()
	change(port)
	err = r.client.Patch(ctx, port, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), kube.OwnerPool)
	return port.ResourceVersion, err
}

// home returns the pool of an unrecorded port. A port that was looked up may belong to a pool
// of earlier settings.
func (v *view) home(port *sdn.Port) string {
	if port.Owner.Kind == sdn.KindPool && port.Owner.Name != "" {
		return port.Owner.Name
	}
	return v.req.Pool
}

// asKeyed gives a port the VIF type and the order of addresses of its pool's key. A port that
// was looked up has those of the SDN, and keeps them if its pool has no object.
func (r *Reconciler) asKeyed(ctx context.Context, v *view, port *sdn.Port) error {
	key, more := v.key, v.more
	if name := v.home(port); name != v.req.Pool {
		var object v1.KuryrPortPool
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, &object, kube.ReadOnly)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading KuryrPortPool %s of port %s: %w", name, port.ID, err)
		}
		key = &object.Spec.Key
		if more, err = r.further.More(ctx, key.SubnetIDs); err != nil {
			return err
		}
	}
	if key == nil {
		return nil
	}
	port.Arrange(key.SubnetIDs, more)
	if key.VIFType != "" {
		port.VIF.Type = key.VIFType
	}
	return nil
}

// spec returns the KuryrPort's spec of an unrecorded port.
func (v *view) spec(port *sdn.Port, ref *v1.PodReference) v1.KuryrPortSpec {
	return v1.KuryrPortSpec{
		Pool: v.home(port), NodeName: v.req.Node, ProjectID: port.ProjectID, NetworkID: port.NetworkID,
		SecurityGroupIDs: slices.Clone(port.SecurityGroupIDs), VIF: port.VIF, PodRef: ref,
	}
}
