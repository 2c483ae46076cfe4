// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
)

// Pauses between the checks of a first start that waits. Each pause is twice the one before.
const (
	soon = 3 * time.Second
	late = time.Minute
)

// Hold returns a manager for the parts that make things in the cloud. What is added by it to run
// while this process leads starts when the Loop begins to serve, in each process for itself. All else starts as usual: caches
// are filled, and probes are answered.
func (l *Loop) Hold(mgr ctrl.Manager) ctrl.Manager { return held{mgr, l.serving} }

type held struct {
	ctrl.Manager
	serving <-chan struct{}
}

// Add adds a runnable.
func (h held) Add(r manager.Runnable) error {
	if e, ok := r.(manager.LeaderElectionRunnable); ok && !e.NeedLeaderElection() {
		return h.Manager.Add(r)
	}
	return h.Manager.Add(kube.Runnable(func(ctx context.Context) error {
		select {
		case <-h.serving:
			return r.Start(ctx)
		case <-ctx.Done():
			return nil
		}
	}))
}

// waits reports whether a first start waits, by the settings.
func (l *Loop) waits() bool { return l.Settings.Load().Preflight.FirstStartWaits }

// serve lets start what waits for the checks of a first start. It may be called again.
func (l *Loop) serve() { l.served.Do(func() { close(l.serving) }) }

// waiting reports whether a first start waits.
func (l *Loop) waiting() bool {
	select {
	case <-l.serving:
		return false
	default:
		return true
	}
}

// begin has the Loop serve, unless this is a first start, which waits for the checks. It returns
// false if ctx ends before it knows.
func (l *Loop) begin(ctx context.Context) bool {
	log := ctrl.LoggerFrom(ctx)
	for {
		first, err := l.first(ctx)
		switch {
		case err == nil && (!first || !l.waits()):
			l.serve()
			return true
		case err == nil:
			log.Info("this is a first start: nothing is made in the cloud before the preflight checks find all that it needs")
			return true
		case ctx.Err() == nil:
			log.Info("cannot read whether this is a first start; trying again", "error", err.Error())
		}
		if !kube.Pause(ctx, time.Second) {
			return false
		}
	}
}

// first reports whether nothing of Kuryr is in the cluster. It asks the API server, and nothing of
// the cloud. A controller that may not list a kind has made none of it.
func (l *Loop) first(ctx context.Context) (bool, error) {
	for _, kind := range []string{"KuryrPort", "KuryrLoadBalancer", "KuryrNetwork"} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1.GroupVersion.WithKind(kind + "List"))
		if err := l.live.List(ctx, list, client.Limit(1)); kube.NotServed(err) {
			continue
		} else if err != nil {
			return false, fmt.Errorf("listing %ss: %w", kind, err)
		}
		if len(list.Items) > 0 {
			return false, nil
		}
	}
	return true, nil
}

// hold decides by a report whether a first start still waits, and returns why; empty: Kuryr serves.
func (l *Loop) hold(ctx context.Context, report preflight.Report) string {
	why := reason(report)
	if !l.waiting() {
		return ""
	}
	if log := ctrl.LoggerFrom(ctx); why == "" {
		log.Info("the first start goes on: preflight finds all that it needs")
		l.serve()
		return ""
	} else if why != l.logged {
		log.Info("the first start waits: nothing is made in the cloud before this is mended, or preflight.firstStartWaits is false", "because", why)
	}
	l.logged = why
	l.tellPods(ctx)
	return why
}

// follow lets start what waits here for the checks of another process, once that says so. One that was
// there at an earlier start counts, too. Without the KuryrCluster that says it, this process makes the
// checks for itself.
func (l *Loop) follow(ctx context.Context) error {
	if l.wait = period; !l.waiting() {
		return nil
	}
	l.wait = soon
	object := &v1.KuryrCluster{}
	err := client.IgnoreNotFound(l.live.Get(ctx, client.ObjectKey{Name: v1.ClusterName}, object))
	switch {
	case meta.IsNoMatchError(err), apierrors.IsForbidden(err):
		if report, ok := l.check(ctx); ok {
			l.hold(ctx, report)
			l.wait = l.soonest(period)
		}
	case err != nil:
		return fmt.Errorf("reading KuryrCluster %s: %w", v1.ClusterName, err)
	case meta.IsStatusConditionTrue(object.Status.Conditions, v1.ConditionServing):
		ctrl.LoggerFrom(ctx).Info("the first start goes on: another process has made the preflight checks")
		l.serve()
	}
	return nil
}

// tellPods writes an Event on each pod that waits for a port. It names nothing of the cloud: a tenant
// may read it. The recorder counts what it has written before.
func (l *Loop) tellPods(ctx context.Context) {
	var list corev1.PodList
	if err := l.client.List(ctx, &list, kube.ReadOnly); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing pods, to tell them that the first start waits")
	}
	for i := range list.Items {
		if pod := &list.Items[i]; pool.Wants(pod) {
			l.events.Eventf(kube.Reference(pod, "Pod"), nil, corev1.EventTypeWarning, v1.ReasonFirstStartWaits, "CreatePort", "%s",
				"The pod waits for a port: before its first start Kuryr makes nothing in the cloud while something that all pods or all Services need is missing there. What it is: kubectl describe kuryrclusters")
		}
	}
}

// soonest returns the time until the next checks: usual, or earlier while a first start waits.
func (l *Loop) soonest(usual time.Duration) time.Duration {
	if !l.waiting() {
		return usual
	}
	l.pause = min(max(2*l.pause, soon), late)
	return l.pause
}

// reason returns why a first start waits; empty: it does not.
func reason(report preflight.Report) string {
	var errors []string
	for _, f := range report.Findings {
		if preflight.Holds(f) {
			r := row(f, f.Message)
			errors = append(errors, r.String())
		}
	}
	if n := len(errors); n > 1 {
		return fmt.Sprintf("%s And %d more.", errors[0], n-1)
	}
	return strings.Join(errors, "")
}

// started sets the condition Serving.
func started(s *v1.KuryrClusterStatus, now time.Time, why string) {
	if why == "" {
		set(s, now, v1.ConditionServing, metav1.ConditionTrue, v1.ReasonServing, "Pods are served, and Services and networks as configured.")
		return
	}
	set(s, now, v1.ConditionServing, metav1.ConditionFalse, v1.ReasonFirstStartWaits,
		"Before its first start Kuryr makes nothing in the cloud, because of: "+why+
			" It checks again within a minute, and starts by itself. To start anyway, set preflight.firstStartWaits: false in the configuration.")
}
