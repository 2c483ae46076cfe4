// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
)

// TableName is the name of the Lease that is the table. Earlier versions elected their leader by it.
const TableName = "kuryr-controller"

// leases are the Leases of the controllers of one cluster: that of each replica, and the table.
type leases struct {
	coordinationv1client.LeaseInterface
	identity string
}

// newLeases returns the Leases of a namespace. Their requests have a connection of their own, by
// HTTP/1.1: a renewal must not wait behind the lists of the caches, nor on a connection that is broken and
// not known to be so.
func newLeases(cluster *rest.Config, namespace, identity string) (*leases, error) {
	own := rest.CopyConfig(cluster)
	own.NextProtos, own.QPS = []string{"http/1.1"}, -1
	client, err := coordinationv1client.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("preparing the Leases of the controllers: %w", err)
	}
	return &leases{client.Leases(namespace), identity}, nil
}

// nameOf returns the name of a replica's Lease.
func nameOf(identity string) string {
	return TableName + "-" + strings.ToLower(strings.ReplaceAll(identity, "_", "-"))
}

// The annotations of the Leases.
const (
	ownersAnnotation  = "openstack.org/owners"  // of the table: shard.Table
	leavingAnnotation = "openstack.org/leaving" // of a replica's Lease: it gives all away
)

// all returns all Leases of the controllers, and the version of that state.
func (l *leases) all(ctx context.Context) (map[string]*coordinationv1.Lease, string, error) {
	list, err := l.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("listing the Leases of the controllers: %w", err)
	}
	found := map[string]*coordinationv1.Lease{}
	for i := range list.Items {
		if ours(&list.Items[i]) {
			found[list.Items[i].Name] = &list.Items[i]
		}
	}
	return found, list.ResourceVersion, nil
}

func ours(l *coordinationv1.Lease) bool {
	return l.Name == TableName || strings.HasPrefix(l.Name, TableName+"-")
}

// follow calls saw with the Leases as they are, and again at each change, until ctx ends or the watch does
// not show the own renewals. It returns why it ended. The first call has what was listed anew.
func (l *leases) follow(ctx context.Context, saw func(now map[string]*coordinationv1.Lease, listed bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	bounded, done := context.WithTimeout(ctx, watchSilence)
	defer done()
	now, version, err := l.all(bounded)
	if err != nil {
		return err
	}
	saw(maps.Clone(now), true)
	w, err := l.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		return fmt.Errorf("watching the Leases of the controllers: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchSilence): // the own renewals are events, too
			return fmt.Errorf("the watch of the Leases of the controllers has shown nothing for %s", watchSilence)
		case e, open := <-w.ResultChan():
			changed, is := e.Object.(*coordinationv1.Lease)
			switch {
			case !open || e.Type == watch.Error:
				return fmt.Errorf("the watch of the Leases of the controllers has ended: %w", apierrors.FromObject(e.Object))
			case e.Type == watch.Bookmark || !is || !ours(changed):
				continue
			case e.Type == watch.Deleted:
				delete(now, changed.Name)
			default:
				now[changed.Name] = changed
			}
			saw(maps.Clone(now), false)
		}
	}
}

// watchSilence is after what time without an event the Leases are listed anew.
const watchSilence = 2 * shard.Period

// Living returns the name of a controller that renews its Lease, or one of an earlier version that leads; empty if
// there is none. It takes some seconds if there are Leases of controllers, living or not.
func Living(ctx context.Context, cluster *rest.Config, namespace string) (string, error) {
	l, err := newLeases(cluster, namespace, "")
	if err != nil {
		return "", err
	}
	before, _, err := l.all(ctx)
	if err != nil || len(before) == 0 || !kube.Pause(ctx, shard.Others) {
		return "", err
	}
	now, _, err := l.all(ctx)
	for name, lease := range now {
		if was := before[name]; lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && (was == nil || was.ResourceVersion != lease.ResourceVersion) {
			return *lease.Spec.HolderIdentity, nil
		}
	}
	return "", err
}

// stateOf returns the members and the table that Leases are.
func stateOf(all map[string]*coordinationv1.Lease) (members []shard.Member, table shard.Table) {
	for name, l := range all {
		if name == TableName {
			table = tableOf(l)
			continue
		}
		holder := name
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		members = append(members, shard.Member{
			UID: string(l.UID), Name: holder, Created: l.CreationTimestamp.Unix(), Version: l.ResourceVersion,
			Leaving: l.Annotations[leavingAnnotation] != "",
		})
	}
	return members, table
}

// tableOf reads the table. The versions of objects can be compared: they are those of etcd's store.
func tableOf(l *coordinationv1.Lease) (t shard.Table) {
	text, has := l.Annotations[ownersAnnotation]
	if has && json.Unmarshal([]byte(text), &t) != nil {
		t = shard.Table{Foreign: true, Held: true} // those who own something must have seen it before anybody takes anything
	}
	if !has {
		t.Foreign, t.Held = true, l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != ""
	}
	t.Version, _ = strconv.ParseUint(l.ResourceVersion, 10, 64)
	return t
}

// write writes the table, and returns its new version. holder is the name of the owner of bucket 0; it is the
// holder also for electors of earlier versions, which do not lead then.
func (l *leases) write(ctx context.Context, t *shard.Table, holder string) (uint64, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return 0, err
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: TableName, Annotations: map[string]string{ownersAnnotation: string(text)}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(foreverSeconds), RenewTime: new(metav1.NowMicro())},
	}
	if t.Version == 0 {
		lease, err = l.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		lease.ResourceVersion = strconv.FormatUint(t.Version, 10)
		lease, err = l.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return 0, fmt.Errorf("writing Lease %s: %w", TableName, err)
	}
	return tableOf(lease).Version, nil
}

// foreverSeconds is how long an elector of an earlier version waits.
const foreverSeconds = int32(10 * 365 * 24 * 3600)

// join creates this replica's Lease, and returns it. A Lease of its name is of a former process in the same pod,
// which has ended; it is deleted first, and former is its UID.
func (l *leases) join(ctx context.Context) (made *coordinationv1.Lease, former types.UID, err error) {
	name := nameOf(l.identity)
	old, err := l.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		former = old.UID
		err = l.remove(ctx, old.Name, old.UID, "")
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, "", fmt.Errorf("ending Lease %s of this replica's former process: %w", name, err)
	}
	made, err = l.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &l.identity, LeaseDurationSeconds: new(int32(shard.Others / time.Second)), RenewTime: new(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, former, fmt.Errorf("creating Lease %s of this replica: %w", name, err)
	}
	return made, former, nil
}

// renew renews this replica's Lease, if it is that with a UID, and returns its new version. leaving says that the
// replica gives all away.
func (l *leases) renew(ctx context.Context, uid types.UID, leaving bool) (version string, err error) {
	meta := map[string]any{"uid": uid}
	if leaving {
		meta["annotations"] = map[string]string{leavingAnnotation: "true"}
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"renewTime": metav1.NowMicro()}})
	if err != nil {
		return "", err
	}
	renewed, err := l.Patch(ctx, nameOf(l.identity), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return "", err
	}
	return renewed.ResourceVersion, nil
}

// remove deletes a Lease, if it has a UID, and a version unless that is empty.
func (l *leases) remove(ctx context.Context, name string, uid types.UID, version string) error {
	pre := &metav1.Preconditions{UID: &uid}
	if version != "" {
		pre.ResourceVersion = &version
	}
	return l.Delete(ctx, name, metav1.DeleteOptions{Preconditions: pre})
}
