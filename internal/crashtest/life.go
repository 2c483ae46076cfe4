// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// live lives through a scenario, and returns the processes there were.
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
	w.start()
	w.T.Cleanup(w.end)
	w.life.Steps()
	w.Settled()
	w.end()
	w.review()
	return w.processes
}

// ctx lasts longer than the test: what is left is cleaned up with it.
func (w *World) ctx() context.Context { return context.WithoutCancel(w.T.Context()) }

// kinds are those whose history is kept.
func (w *World) kinds() []client.ObjectList {
	return append([]client.ObjectList{&corev1.PodList{}, &v1.KuryrPortList{}}, w.more...)
}

// Settled waits until all is at rest.
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
		if len(uneven) == 0 { // a real cloud takes its time to answer
			uneven = w.unevenPorts()
		}
		return len(uneven) == 0
	})
}

// end ends the controller that runs, in order: it may still say what it has to.
func (w *World) end() {
	w.process.cancel()
	w.bury(w.process)
}

// review checks what there was to be seen of the whole life.
func (w *World) review() {
	w.T.Helper()
	w.look()
	for kind, n := range w.made {
		if limit := w.life.Limits[kind]; n > limit {
			w.fault("%d of kind %s were made in the cloud, want %d at most", n, kind, limit)
		}
	}
	w.catchUp()
	for _, fault := range w.history.check(append(portRules, w.life.Rules...)...) {
		w.fault("at some time %s", fault)
	}
}

// catchUp waits until Pods and Ports show all that was done up to now.
func (w *World) catchUp() {
	w.T.Helper()
	if err := w.history.completed(w.ctx(), w.kinds()); err != nil {
		w.T.Fatalf("keeping the history: %v", err)
	}
}

// clean leaves the API server as it was.
func (w *World) clean() {
	ctx := w.ctx()
	now := client.GracePeriodSeconds(0)
	w.ignore(w.Client.DeleteAllOf(ctx, &eventsv1.Event{}, client.InNamespace(namespace)))
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

// ignore makes a test fail only for what is not gone.
func (w *World) ignore(err error) {
	if client.IgnoreNotFound(err) != nil {
		w.T.Error(fmt.Errorf("cleaning up: %w", err))
	}
}
