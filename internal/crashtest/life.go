// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// live runs a scenario, and returns the processes that it needed.
func (w *World) live(begin func(*World) Life) []*process {
	w.T.Helper()
	w.T.Cleanup(func() {
		if w.T.Failed() {
			w.T.Logf("what happened:\n%s", w.trail)
		}
	})
	history, err := follow(w.ctx(), w.Client, w.kinds())
	if err != nil {
		w.T.Fatal(err)
	}
	w.history = history
	w.T.Cleanup(history.close)
	w.T.Cleanup(w.clean)
	w.life = begin(w)
	w.seen = w.resources()
	shared := &aim{fate: w.fate, at: w.at}
	for i := range w.running {
		w.start(i, shared)
	}
	w.T.Cleanup(w.end)
	w.life.Steps()
	w.Settled()
	if w.resumed() {
		w.Settled()
	}
	w.end()
	w.review()
	return w.processes
}

// ctx lasts longer than the test, so that cleaning up can use it.
func (w *World) ctx() context.Context { return context.WithoutCancel(w.T.Context()) }

// kinds returns the kinds whose history is kept.
func (w *World) kinds() []client.ObjectList {
	return append([]client.ObjectList{&corev1.PodList{}, &v1.KuryrPortList{}}, w.more...)
}

// Settled waits until everything is at rest.
func (w *World) Settled() {
	w.T.Helper()
	var uneven []string
	defer func() {
		if w.T.Failed() {
			w.Say("not at rest: %s", strings.Join(uneven, "; "))
		}
	}()
	w.Eventually("all is at rest", func() bool {
		if uneven = nil; w.life.Uneven != nil {
			uneven = w.life.Uneven()
		}
		// A real cloud takes its time to answer.
		if len(uneven) == 0 {
			uneven = w.unevenPorts()
		}
		return len(uneven) == 0
	})
}

// end ends the running controllers in order: they may finish their last requests.
func (w *World) end() {
	for _, p := range w.running {
		p.cancel()
	}
	for _, p := range w.running {
		w.bury(p)
	}
}

// afterwards is how long a controller that goes on after a pause has for what it does wrong.
const afterwards = time.Second

// resumed waits until a paused controller goes on, if there was one, and for what it does then.
func (w *World) resumed() bool {
	for _, p := range w.processes {
		if p.hasPaused() {
			w.Say("the paused controller is waited for")
			p.wait()
			time.Sleep(afterwards)
			return true
		}
	}
	return false
}

// review checks the whole life at its end.
func (w *World) review() {
	w.T.Helper()
	w.look()
	for kind, n := range w.made {
		if limit := w.life.Limits[kind]; n > limit {
			w.fault("%d of kind %s were made in the cloud, want %d at most", n, kind, limit)
		}
	}
	w.catchUp()
	for _, fault := range w.history.check(append(slices.Clone(w.portRules()), w.life.Rules...)...) {
		w.fault("at some time %s", fault)
	}
	for _, fault := range w.terms.check(w.history) {
		w.fault("at some time %s", fault)
	}
}

// catchUp waits until Pods and Ports show every change made so far.
func (w *World) catchUp() {
	w.T.Helper()
	if err := w.history.completed(w.ctx(), w.kinds()); err != nil {
		w.T.Fatalf("keeping the history: %v", err)
	}
}

// clean removes the scenario's objects from the API server.
func (w *World) clean() {
	ctx := w.ctx()
	now := client.GracePeriodSeconds(0)
	for _, o := range []client.Object{&eventsv1.Event{}, &coordinationv1.Lease{}} {
		w.ignore(w.Client.DeleteAllOf(ctx, o, client.InNamespace(namespace)))
	}
	for _, o := range []client.Object{&corev1.Node{}, &v1.KuryrPortPool{}} {
		w.ignore(w.Client.DeleteAllOf(ctx, o))
	}
	for _, o := range w.history.current() {
		if len(o.GetFinalizers()) > 0 {
			w.ignore(w.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		}
		w.ignore(w.Client.Delete(ctx, o, now))
	}
}

// ignore fails the test for any error except NotFound.
func (w *World) ignore(err error) {
	if client.IgnoreNotFound(err) != nil {
		w.T.Error(fmt.Errorf("cleaning up: %w", err))
	}
}
