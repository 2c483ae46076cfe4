// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package preflight makes the preflight checks while the controller serves, and reports them on the
// KuryrCluster: at the start, once an hour and after each change of the settings. They stop nothing
// that runs, and only a first start waits for them: while the cluster has no KuryrPort, no
// KuryrNetwork and no KuryrLoadBalancer, and lacks what all pods or all Services need, nothing is
// made in the cloud.
//
// The KuryrCluster is read past the cache. So a cluster without its CustomResourceDefinition costs
// no watch that fails.
package preflight

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
)

const (
	period = time.Hour       // between two checks
	again  = 5 * time.Minute // between two checks while there is an error, or the cloud does not answer
	limit  = 5 * time.Minute // of all checks together
)

// task is the key of the checks: one process makes them, and writes the KuryrCluster.
var task = kube.Task("preflight")

const owner = client.FieldOwner(v1.FieldOwnerCluster)

var findings = kube.GaugeOf("severity", "kuryr_preflight_findings", "Findings of the last preflight checks, by severity: Error, Warning, Unknown.")

// Options is what a Loop needs beyond the manager.
type Options struct {
	Checks   Checks
	Settings *settings.Live
	Shards   kube.Shards
}

// Checks are all preflight checks.
type Checks interface {
	// Check makes them. ctx has a deadline, and one goroutine calls it.
	Check(ctx context.Context) preflight.Report
}

// Loop makes the checks while this process owns their key. In other processes it only waits until a
// first start goes on.
type Loop struct {
	Options
	client  client.Client
	live    client.Reader // reads past the cache
	events  events.EventRecorder
	early   kube.Signal   // requests checks now
	wait    time.Duration // until the next checks
	lacking bool          // the log says that the KuryrCluster cannot be written

	serving chan struct{} // closed by serve
	served  sync.Once
	pause   time.Duration // before the last checks while it waited
	logged  string        // why it waits, as the log says
}

// New returns a Loop.
func New(mgr ctrl.Manager, o Options) *Loop {
	l := &Loop{
		Options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), events: mgr.GetEventRecorder("kuryr-controller"),
		early: kube.NewSignal(), wait: period, serving: make(chan struct{}),
	}
	l.early.Send() // at the start
	return l
}

// Setup adds the loop to mgr.
func (l *Loop) Setup(mgr ctrl.Manager) error {
	if err := mgr.Add(kube.Runnable(l.Settings.Follow(l.reload))); err != nil {
		return err
	}
	l.follows()
	return mgr.Add(kube.Runnable(l.lead))
}

// follows makes the checks as soon as their key is gained.
func (l *Loop) follows() {
	l.Shards.Follow(func(_ context.Context, keys kube.Keys, _ bool) {
		if keys(task) {
			l.early.Send()
		}
	}, func(keys kube.Keys) {
		if keys(task) {
			findings.Reset() // another process counts them
		}
	})
}

// reload makes the checks anew after the settings have changed.
func (l *Loop) reload(context.Context) error {
	if !l.waits() {
		l.serve() // also while checks hang
	}
	l.early.Send()
	return nil
}

// lead makes the checks until ctx ends.
func (l *Loop) lead(ctx context.Context) error {
	if !l.begin(ctx) {
		return nil
	}
	return kube.Every("preflight", func() time.Duration { return l.wait }, l.run, l.early).Start(ctx)
}

// check makes the checks once. It returns false if ctx ends.
func (l *Loop) check(ctx context.Context) (preflight.Report, bool) {
	checking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	report := l.Checks.Check(checking) // what was not read in time is Unknown
	return report, ctx.Err() == nil
}

// run makes the checks once, and reports them. The key is not entered before there is something to
// write: checks of a cloud that does not answer would keep other keys from another process.
func (l *Loop) run(ctx context.Context) error {
	if !l.Shards.Owns(task) {
		return l.follow(ctx)
	}
	report, ok := l.check(ctx)
	if !ok {
		return nil
	}
	why := l.hold(ctx, report)
	leave, ok := l.Shards.Enter(task)
	if !ok {
		l.wait = soon
		return nil
	}
	defer leave()
	object, err := l.object(ctx)
	if kube.NotServed(err) {
		l.lack(ctx, err)
	} else if err != nil {
		l.wait = l.soonest(again)
		return err
	}
	next := status(&object.Status, report, time.Now())
	started(next, time.Now(), why)
	for severity, n := range map[preflight.Severity]int32{
		preflight.Error: next.Errors, preflight.Warning: next.Warnings, preflight.Unknown: next.Unknown,
	} {
		findings.WithLabelValues(string(severity)).Set(float64(n))
	}
	if l.wait = period; next.Errors > 0 || unreached(report) != nil {
		l.wait = l.soonest(again)
	}
	if object.UID == "" || !due(&object.Status, next) {
		return nil
	}
	if _, err := kube.ApplyStatus(ctx, l.client, object, "KuryrCluster", next, owner); kube.NotServed(err) {
		l.lack(ctx, err)
		return nil
	} else if err != nil {
		l.wait = l.soonest(again)
		return err
	}
	l.lacking = false
	l.tell(ctx, object, next)
	return nil
}

// object returns the KuryrCluster, which it creates if there is none. After an error it returns an
// empty one.
func (l *Loop) object(ctx context.Context) (*v1.KuryrCluster, error) {
	object := &v1.KuryrCluster{}
	err := l.live.Get(ctx, client.ObjectKey{Name: v1.ClusterName}, object)
	if apierrors.IsNotFound(err) {
		object = &v1.KuryrCluster{ObjectMeta: metav1.ObjectMeta{Name: v1.ClusterName}}
		err = l.client.Create(ctx, object, owner)
	}
	if err != nil {
		return &v1.KuryrCluster{}, fmt.Errorf("reading or creating KuryrCluster %s: %w", v1.ClusterName, err)
	}
	return object, nil
}

// lack reports once that the KuryrCluster cannot be read or written.
func (l *Loop) lack(ctx context.Context, err error) {
	if !l.lacking {
		ctrl.LoggerFrom(ctx).Error(err, "the results of the preflight checks are in the metrics only: "+
			"apply the CustomResourceDefinitions and the ClusterRole kuryr-controller of this version; Kuryr looks again by itself")
	}
	l.lacking = true
}

// due reports whether a status is to be written: it differs in more than the time, or the time is
// a period old.
func due(is, next *v1.KuryrClusterStatus) bool {
	if is.LastChecked != nil && next.LastChecked.Sub(is.LastChecked.Time) >= period {
		return true
	}
	if is.LastChecked == nil && next.LastChecked != nil {
		return true
	}
	timeless := next.DeepCopy()
	timeless.LastChecked = is.LastChecked
	return !equality.Semantic.DeepEqual(is, timeless)
}

// tell logs the findings that were not there before, and sends an Event for each. It also sends one
// when a first start begins or ends to wait.
func (l *Loop) tell(ctx context.Context, object *v1.KuryrCluster, next *v1.KuryrClusterStatus) {
	waits := meta.IsStatusConditionFalse(next.Conditions, v1.ConditionServing)
	if c := meta.FindStatusCondition(next.Conditions, v1.ConditionServing); waits != meta.IsStatusConditionFalse(object.Status.Conditions, v1.ConditionServing) {
		kind := corev1.EventTypeNormal
		if waits {
			kind = corev1.EventTypeWarning
		}
		l.events.Eventf(kube.Reference(object, "KuryrCluster"), nil, kind, c.Reason, "Start", "%s", c.Message)
	}
	for _, f := range next.Findings {
		if has(object.Status.Findings, &f) {
			continue
		}
		ctrl.LoggerFrom(ctx).Info("preflight found something", "name", f.Name, "severity", f.Severity, "object", f.Object)
		if f.Severity != string(preflight.Unknown) {
			l.events.Eventf(kube.Reference(object, "KuryrCluster"), nil, corev1.EventTypeWarning, f.Name, "Preflight", "%s", f.String())
		}
	}
}
