// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// maxFill is how many free ports a pool may be asked to have, as spec.min.
const maxFill = 10000

// What a pool's object is told, once each time.
const (
	toldFailure = "failure"
	toldFill    = "fill"
)

// parseFill reads the annotation that asks for free ports.
func parseFill(value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil || n > maxFill {
		return 0, fmt.Errorf("%s is %q: write a number from 0 to %d, as in \"20\"", v1.FillAnnotation, shorten(value), maxFill)
	}
	return int(n), nil
}

// shorten keeps what anybody may write out of an Event's way.
func shorten(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// fill takes up what somebody asked the pool's object for.
func (r *pools) fill(v *view) {
	value, asked := fillOf(v.object)
	if !asked {
		r.memory.with(v.req, func(p *poolMemory) { delete(p.toldPool, toldFill) })
		return
	}
	n, err := parseFill(value)
	if err == nil && !v.current {
		err = errors.New("pods get no ports of this pool as the configuration is now: fill the one that they get them of")
	}
	if err == nil {
		v.state.Levels.Fill = n
		return
	}
	r.tellPool(v, toldFill, value, v1.ReasonFillRefused, "FillPool", err.Error())
}

func fillOf(object *v1.KuryrPortPool) (value string, asked bool) {
	if object == nil {
		return "", false
	}
	value, asked = object.Annotations[v1.FillAnnotation]
	return value, asked
}

// tellPool says something on the pool's object, once for each what.
func (r *pools) tellPool(v *view, kind, what, reason, action, note string) {
	if v.object == nil {
		return
	}
	var told bool
	r.memory.with(v.req, func(p *poolMemory) {
		told = p.toldPool[kind] == what
		p.toldPool[kind] = what
	})
	if !told {
		r.events.Eventf(kube.Reference(v.object, "KuryrPortPool"), nil, corev1.EventTypeWarning, reason, action, "%s", note)
	}
}

// filled takes the wish off the pool's object once it has come true, if it still
// is the same.
func (r *pools) filled(ctx context.Context, v *view, reached bool) error {
	value, asked := fillOf(v.object)
	if !asked || value != "0" && !reached {
		return nil
	}
	object := v.object.DeepCopy()
	delete(object.Annotations, v1.FillAnnotation)
	err := r.client.Patch(ctx, object, client.MergeFromWithOptions(v.object, client.MergeFromWithOptimisticLock{}), kube.OwnerPool)
	if err = kube.Lost(err); err != nil {
		return fmt.Errorf("taking %s off KuryrPortPool %s: %w", v1.FillAnnotation, v.req.Pool, err)
	}
	ctrl.LoggerFrom(ctx).Info("filled pool as asked for", "free", value)
	return nil
}

// poolChanged lets pass what a plan looks at of a pool's object: not its status.
var poolChanged = predicate.TypedFuncs[*v1.KuryrPortPool]{
	UpdateFunc: func(e event.TypedUpdateEvent[*v1.KuryrPortPool]) bool {
		before, _ := fillOf(e.ObjectOld)
		after, _ := fillOf(e.ObjectNew)
		return e.ObjectOld.Generation != e.ObjectNew.Generation || before != after
	},
}
