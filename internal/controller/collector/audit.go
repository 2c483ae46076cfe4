// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Judged is a resource that no object named in two comparisons, and what becomes of it.
type Judged struct {
	Resource
	Verdict Verdict
	Why     string // for a person
	Deleted bool
	Err     error // why it could not be judged, or not be deleted
}

// Audit compares all inventories twice, and judges what no object named, as the controllers do. It
// changes nothing. wait waits for a grace period, as the settings of the inventories have it. fresh is
// how much was found that was not there in the first comparison, or has changed since.
//
// The error is what the comparisons could not determine.
func Audit(ctx context.Context, live client.Reader, all []*Inventory, wait func(context.Context) error) (judged []Judged, fresh int, unsure error) {
	failed := make([]error, len(all))
	look := func() {
		judged, fresh = nil, 0
		for i, v := range all {
			found, err := v.look(ctx)
			if kube.NotServed(err) { // a cluster without that kind
				continue
			}
			if err = errors.Join(err, found.Unsure); err != nil {
				failed[i] = fmt.Errorf("%s: %w", v.Name, err)
			}
			_, due, _ := v.remember(found)
			for _, l := range due {
				judged = append(judged, Judged{Resource: l.Resource, Verdict: Deletes})
			}
			fresh += len(v.unnamed) - len(due)
		}
	}
	look()
	if err := wait(ctx); err != nil {
		return nil, 0, err
	}
	look()
	settle(judged, func(j *Judged) { j.judge(ctx, live) })
	judged = slices.DeleteFunc(judged, func(j Judged) bool { return j.Verdict == Keeps && j.Err == nil })
	return judged, fresh, errors.Join(failed...)
}

// Delete judges once more what is to be deleted, and deletes it. It may be repeated for what was not.
func Delete(ctx context.Context, live client.Reader, judged []Judged) {
	settle(judged, func(j *Judged) {
		if j.Verdict != Deletes || j.Deleted {
			return
		}
		if j.judge(ctx, live); j.Verdict == Deletes && j.Err == nil {
			j.Err = j.Kind.Delete(ctx, j.Resource)
			if j.Deleted = j.Err == nil; j.Deleted {
				j.did(ctx, v1.ReasonOrphanDeleted, j.Why)
			}
		}
	})
}

// settle handles the resources of a kind concurrently, and the kinds one after the other: the cloud
// deletes no router before its network.
func settle(judged []Judged, one func(*Judged)) {
	for rest := judged; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(j Judged) bool { return j.Kind != rest[0].Kind })
		if n < 0 {
			n = len(rest)
		}
		var at errgroup.Group
		at.SetLimit(atOnce)
		for i := range rest[:n] {
			at.Go(func() error { one(&rest[i]); return nil })
		}
		_ = at.Wait()
		rest = rest[n:]
	}
}

// judge judges a resource without the locks of the controllers. So what they may be about to name is
// theirs, too: a security group, a network or a router whose owner exists.
func (j *Judged) judge(ctx context.Context, live client.Reader) {
	j.Verdict, _, j.Err = j.Resource.judge(ctx)
	j.Why = map[Verdict]string{Keeps: "an object names it by now", Adopts: j.Kind.WhyAdopt, Deletes: j.Kind.WhyDelete}[j.Verdict]
	if j.Verdict != Deletes || j.Kind.Making == nil {
		return
	}
	object := client.Object(&v1.KuryrLoadBalancer{})
	if j.Owner.Kind == sdn.KindNetwork {
		object = &v1.KuryrNetwork{}
	}
	var exists bool
	if exists, j.Err = j.owner(ctx, live, object); exists {
		j.Verdict, j.Why = Leaves, "its owner exists, so the controllers decide"
	}
}
