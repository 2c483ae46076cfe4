// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
)

// waitingWorkers is the number of namespaces that are looked at at once.
const waitingWorkers = 4

// Waiting reports to the pods of a namespace why its network gives them no ports. It also has the
// namespace's pools planned when the network changes. It runs in each process, for the pods and the pools
// of own nodes: a namespace has pods on many.
type Waiting struct {
	Options
	sites   *Sites
	notices *notices
	queue   kube.Queue[news]
}

// news is about the pods of a namespace.
type news struct {
	namespace string
	moved     bool // the network has changed; else: a pod may wait
}

// Setup adds the controller that reports to waiting pods to mgr.
func (w *Waiting) Setup(mgr ctrl.Manager) error {
	return builder.TypedControllerManagedBy[news](mgr).Named("waiting").
		WithOptions(outcome.Options[news](waitingWorkers, w.Backoff)).
		WatchesRawSource(w.queue.Source()).
		Complete(w)
}

// Tell has pods of a namespace that wait for its network told why.
func (w *Waiting) Tell(namespace string) { w.queue.Add(news{namespace: namespace}) }

// Moved has the pools of a namespace planned: its network has changed. With no namespace it is for
// all. It does not wait.
func (w *Waiting) Moved(namespace string) { w.queue.Add(news{namespace, true}) }

// Reconcile handles one piece of news.
func (w *Waiting) Reconcile(ctx context.Context, n news) (ctrl.Result, error) {
	if n.moved {
		if err := w.Pools.RequeueNamespace(ctx, n.namespace); err != nil {
			return ctrl.Result{}, err
		}
	}
	if n.namespace == "" {
		w.Again() // what all wait for may have ended
		return ctrl.Result{}, nil
	}
	why, err := w.sites.wait(ctx, n.namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	var pods []*corev1.Pod
	if why != nil {
		if pods, err = w.pods(ctx, n.namespace); err != nil {
			return ctrl.Result{}, err
		}
	}
	if len(pods) == 0 {
		w.notices.forget(n.namespace)
		return ctrl.Result{}, nil
	}
	since := w.notices.count(n.namespace, len(pods))
	// Most waits for these reasons end by themselves in a moment.
	brief := why.reason == v1.ReasonNotPlanned || why.reason == v1.ReasonPending
	if early := time.Until(since.Add(w.Backoff.Max)); brief && early > 0 {
		return ctrl.Result{RequeueAfter: early}, nil
	}
	news := w.notices.news(n.namespace, why.reason, uids(pods))
	for _, pod := range pods {
		switch {
		case !news[pod.UID]:
		case why.said == nil:
			w.event(pod, why, "")
		default:
			w.event(pod, why, why.said.Message)
		}
	}
	return ctrl.Result{}, nil
}

// event writes an Event on a waiting pod. detail explains the wait; empty: nothing does.
func (w *Waiting) event(pod *corev1.Pod, why *wait, detail string) {
	note := "The pod waits for a port: " + why.text
	if detail != "" {
		note += ": " + detail
	}
	w.Events.Eventf(kube.Reference(pod, "Pod"), nil, corev1.EventTypeWarning, why.reason, "CreatePort", "%s", outcome.Cut(note))
}

// recount looks at all namespaces with waiting pods anew.
func (w *Waiting) recount() {
	for _, name := range w.notices.keys() {
		w.Tell(name)
	}
}

// Again looks at all namespaces with waiting pods anew, and lets all Events be written again.
func (w *Waiting) Again() {
	w.notices.again()
	w.recount()
}

// wait returns why the network of a namespace gives no ports now; nil if it does, or if there is no
// such namespace.
func (s *Sites) wait(ctx context.Context, name string) (*wait, error) {
	site := &Site{client: s.Client, networks: s.Networks, Rules: s.Settings.Rules(), namespaces: map[string]namespace{}}
	ns, err := site.namespace(ctx, name)
	return ns.wait, err
}

// pods returns the pods of a namespace on own nodes that want a port and have none.
func (w *Waiting) pods(ctx context.Context, namespace string) (out []*corev1.Pod, err error) {
	var list corev1.PodList
	if err := w.Client.List(ctx, &list, client.InNamespace(namespace), kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing pods of namespace %s: %w", namespace, err)
	}
	var ports []v1.KuryrPort
	read := map[string]bool{}
	list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !w.Shards.Owns(kube.OnNode(p.Spec.NodeName)) })
	for i := range list.Items {
		if node := list.Items[i].Spec.NodeName; node != "" && !read[node] {
			more, err := kube.PortsOn(ctx, w.Client, node)
			if err != nil {
				return nil, err
			}
			read[node], ports = true, append(ports, more...)
		}
	}
	return withoutPort(list.Items, ports), nil
}
