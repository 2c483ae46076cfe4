// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// waitingWorkers is the number of namespaces that are looked at at once.
const waitingWorkers = 4

// Waiting reports to the pods of a namespace why its network gives them no ports. It also has the
// namespace's pools planned when the network changes. Its memory may be lost: then the Events are
// repeated once.
type Waiting struct {
	sites    *Sites
	events   events.EventRecorder
	pools    poolPlanner
	gauge    prometheus.Gauge // of waiting pods
	patience time.Duration    // until pods are told of a wait that usually ends by itself
	queue    kube.Queue[news]

	mu         sync.Mutex
	namespaces map[string]*waitingPods
}

// waitingPods are the pods of a namespace that wait for its network.
type waitingPods struct {
	since time.Time
	told  map[types.UID]string // reason of the last Event on each; empty: none yet
}

// news is about the pods of a namespace.
type news struct {
	namespace string
	moved     bool // the network has changed; else: a pod may wait
}

// Setup adds the controller that reports to waiting pods to mgr.
func (w *Waiting) Setup(mgr ctrl.Manager) error {
	return builder.TypedControllerManagedBy[news](mgr).Named("waiting").
		WithOptions(controller.TypedOptions[news]{
			MaxConcurrentReconciles: waitingWorkers, RateLimiter: outcome.Limiter[news](w.sites.ParentPorts.backoff), SkipNameValidation: new(true),
		}).
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
		if err := w.pools.RequeueNamespace(ctx, n.namespace); err != nil {
			return ctrl.Result{}, err
		}
	}
	if n.namespace == "" {
		w.each(func(*waitingPods) {})
		return ctrl.Result{}, nil
	}
	why, err := w.sites.wait(ctx, n.namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if why == nil {
		w.assess(n.namespace, &wait{}, nil)
		return ctrl.Result{}, nil
	}
	pods, err := w.pods(ctx, n.namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	tell, again := w.assess(n.namespace, why, pods)
	for _, pod := range tell {
		if why.said == nil {
			w.event(pod, why, "")
		} else {
			w.event(pod, why, why.said.Message)
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// event writes an Event on a waiting pod. detail explains the wait; empty: nothing does.
func (w *Waiting) event(pod *corev1.Pod, why *wait, detail string) {
	note := "The pod waits for a port: " + why.text
	if detail != "" {
		note += ": " + detail
	}
	w.events.Eventf(kube.Reference(pod, "Pod"), nil, corev1.EventTypeWarning, why.reason, "CreatePort", "%s", outcome.Cut(note))
}

// assess notes which pods of a namespace wait. It returns those that have to be told, and when to
// look again if it is too early for that; zero is never.
func (w *Waiting) assess(namespace string, why *wait, pods []*corev1.Pod) (tell []*corev1.Pod, again time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.namespaces[namespace]
	if p == nil {
		p = &waitingPods{since: time.Now()}
		w.namespaces[namespace] = p
	}
	w.gauge.Add(float64(len(pods) - len(p.told)))
	if why.brief() && len(pods) > 0 {
		again = max(0, time.Until(p.since.Add(w.patience)))
	}
	told := map[types.UID]string{}
	for _, pod := range pods {
		told[pod.UID] = p.told[pod.UID]
		if again == 0 && told[pod.UID] != why.reason {
			told[pod.UID] = why.reason
			tell = append(tell, pod)
		}
	}
	if p.told = told; len(told) == 0 {
		delete(w.namespaces, namespace)
	}
	return tell, again
}

// brief reports whether a wait usually ends by itself in a moment.
func (w *wait) brief() bool { return w.reason == v1.ReasonNotPlanned || w.reason == v1.ReasonPending }

// Again looks at all namespaces with waiting pods anew, and lets all Events be written again.
func (w *Waiting) Again() {
	w.each(func(p *waitingPods) {
		for uid := range p.told {
			p.told[uid] = ""
		}
	})
}

// each changes what is known of all namespaces with waiting pods, and looks at them anew.
func (w *Waiting) each(change func(*waitingPods)) {
	var names []string
	w.mu.Lock()
	for name, p := range w.namespaces {
		change(p)
		names = append(names, name)
	}
	w.mu.Unlock()
	for _, name := range names {
		w.Tell(name)
	}
}

// wait returns why the network of a namespace gives no ports now; nil if it does, or if there is no
// such namespace.
func (s *Sites) wait(ctx context.Context, name string) (*wait, error) {
	site := &Site{client: s.client, networks: s.networks, Rules: s.settings.Rules(), namespaces: map[string]namespace{}}
	ns, err := site.namespace(ctx, name)
	return ns.wait, err
}

// pods returns the pods of a namespace that want a port and have none.
func (w *Waiting) pods(ctx context.Context, namespace string) (out []*corev1.Pod, err error) {
	var list corev1.PodList
	if err := w.sites.client.List(ctx, &list, client.InNamespace(namespace), kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing pods of namespace %s: %w", namespace, err)
	}
	read, has := map[string]bool{}, map[v1.Claim]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if !pool.Wants(pod) {
			continue
		}
		if node := pod.Spec.NodeName; !read[node] {
			ports, err := kube.PortsOn(ctx, w.sites.client, node)
			if err != nil {
				return nil, err
			}
			read[node] = true
			for i := range ports {
				has[ports[i].Spec.PodRef.Claim()] = true // the claim of a free port is zero
			}
		}
		if !has[v1.Claim{UID: pod.UID, Interface: pool.Interface}] {
			out = append(out, pod)
		}
	}
	return out, nil
}
