// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"

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
	Why     string
	Deleted bool
	Err     error // why it could not be judged, or not be deleted
}

// Audit compares all inventories twice, and judges what no object named, as the controllers do. wait
// waits for a grace period, as the settings of the inventories have it. With deletes, Audit deletes
// what is to be deleted. It adopts nothing: that is for the controllers, which may run meanwhile. It
// does not hold their locks, so what they may be about to name is theirs, too: a security group, a
// network or a router whose owner exists.
//
// Resources are handled in the order of the inventories, those of an inventory concurrently. The error
// is what the comparisons could not determine.
func Audit(ctx context.Context, live client.Reader, all []*Inventory, wait func(context.Context) error, deletes bool) ([]Judged, error) {
	unsure := map[*Inventory]error{}
	look := func(v *Inventory) []*leftover {
		found, err := v.look(ctx)
		if kube.NotServed(err) { // a cluster without that kind
			return nil
		}
		if unsure[v] = errors.Join(err, found.Unsure); err != nil {
			return nil
		}
		_, due, _ := v.remember(found)
		return due
	}
	for _, v := range all {
		look(v)
	}
	if err := wait(ctx); err != nil {
		return nil, err
	}
	var out []Judged
	var failed []error
	for _, v := range all {
		due := look(v)
		if unsure[v] != nil {
			failed = append(failed, fmt.Errorf("%s: %w", v.Name, unsure[v]))
		}
		judged := make([]Judged, len(due))
		var at errgroup.Group
		at.SetLimit(atOnce)
		for i, l := range due {
			at.Go(func() error {
				judged[i] = l.audit(ctx, live, deletes)
				return nil
			})
		}
		_ = at.Wait()
		for _, j := range judged {
			if j.Verdict != Keeps || j.Err != nil {
				out = append(out, j)
			}
		}
	}
	return out, errors.Join(failed...)
}

// audit judges a resource, and deletes it if it is to be deleted.
func (r Resource) audit(ctx context.Context, live client.Reader, deletes bool) Judged {
	j := Judged{Resource: r}
	j.Verdict, _, j.Err = r.judge(ctx)
	if j.Verdict == Deletes && r.Kind.Making != nil {
		object := client.Object(&v1.KuryrLoadBalancer{})
		if r.Owner.Kind == sdn.KindNetwork {
			object = &v1.KuryrNetwork{}
		}
		var exists bool
		if exists, j.Err = r.owner(ctx, live, object); exists {
			j.Verdict, j.Why = Leaves, "its owner exists, so the controllers decide"
		}
	}
	switch {
	case j.Err != nil:
		j.Verdict = Leaves
	case j.Verdict == Adopts:
		j.Why = r.Kind.WhyAdopt
	case j.Verdict == Deletes:
		j.Why = r.Kind.WhyDelete
		if deletes {
			j.Err = r.Kind.Delete(ctx, r)
			j.Deleted = j.Err == nil
		}
	}
	return j
}
