// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package balancers brings KuryrLoadBalancers into the cloud: load balancers, floating
// IPs, and the security groups that keep source ranges where the provider cannot. What
// is to be done is the decision of package balancer; this one looks, carries out, counts
// tries and reports. What there is to be is others' to plan, which ports get a security
// group too, and what nobody's object names is deleted elsewhere.
//
// A KuryrLoadBalancer is applied when it changes, when a member's port has got other
// security groups, when a load balancer that was busy with it is done, when somebody
// suspects that the cloud differs, and once an interval to see whether it does. One
// worker at a time has an object and what is remembered of it; what workers share has a
// lock of its own. What is remembered may be lost at any time.
package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/polling"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// +kubebuilder:rbac:groups=openstack.org,resources=kuryrloadbalancers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=openstack.org,resources=kuryrloadbalancers/status,verbs=patch

// workers is how many KuryrLoadBalancers are applied at once; the backend
// bounds its own calls.
const workers = 32

// Reconciler applies: it brings load balancers and floating IPs in line with a
// KuryrLoadBalancer and reports. Of other objects it reads the KuryrPorts of members,
// for the security group that keeps source ranges. Each round looks at what there is,
// has package balancer plan, carries out what the plan says, and looks again once the
// cloud is done; no worker waits for that.
//
// A KuryrLoadBalancer whose status says that its generation is in the cloud costs
// no call at all, after a restart neither.
type Reconciler struct {
	client   client.Client
	cloud    sdn.LoadBalancers
	floating sdn.FloatingIPs
	subnets  sdn.Subnets        // nil: what they hold is not known
	groups   sdn.SecurityGroups // nil: none keeps source ranges
	backoff  outcome.Backoff
	mend     time.Duration // pause after the first try to get something out of ERROR
	events   events.EventRecorder
	now      func() time.Time
	wake     kube.Queue[ctrl.Request]
	wait     *polling.Waiter
	memory   memories
	drift    *polling.Drift

	lists     polling.Shared[[]sdn.LoadBalancerSummary]
	addresses polling.SharedByProject
	left      leftovers
	held      polling.Holders
	quotas    *polling.Quotas
	moves     polling.Turns
	busy      polling.BusyProviders
	grants    memberGroups
	making    *kube.Owners // of security groups that are made and named, or deleted as nobody's
}

// memberGroups knows what groups members of load balancers have.
type memberGroups interface {
	// Need notes whether a KuryrLoadBalancer needs a group.
	Need(ctx context.Context, klb *v1.KuryrLoadBalancer, needs bool) error
	// Granting returns the KuryrLoadBalancers that give a port a group for an address.
	Granting(ctx context.Context, port *v1.KuryrPort, ip string) ([]*v1.KuryrLoadBalancer, error)
}

// Options is what a Reconciler needs beyond the manager.
type Options struct {
	Cloud    Cloud
	Subnets  sdn.Subnets // nil: what they hold is not known
	Members  memberGroups
	Making   *kube.Owners // held by who makes a group, and names it, or deletes one
	Settings *settings.Live
	Backoff  outcome.Backoff
	Mend     time.Duration // pause after the first try to get something out of ERROR
	Now      func() time.Time
}

// Cloud is what changes load balancers, and what they need.
type Cloud struct {
	LoadBalancers  sdn.LoadBalancers
	FloatingIPs    sdn.FloatingIPs    // nil: Services get none
	SecurityGroups sdn.SecurityGroups // nil: none keeps source ranges
}

// New returns what is to be added to mgr once Services are to be served.
func New(mgr ctrl.Manager, o Options) *Reconciler {
	r := &Reconciler{
		client: mgr.GetClient(), cloud: o.Cloud.LoadBalancers, floating: o.Cloud.FloatingIPs, subnets: o.Subnets, groups: o.Cloud.SecurityGroups, backoff: o.Backoff, mend: o.Mend,
		events: mgr.GetEventRecorder("kuryr-controller"), now: o.Now, grants: o.Members, making: o.Making,
	}
	r.quotas = polling.NewQuotas(o.Backoff.Quota, o.Now, r.wake.Add)
	r.wait = polling.NewWaiter(o.Cloud.LoadBalancers.ListLoadBalancers, o.Now, r.wake.Add)
	r.drift = polling.NewDrift(r.client, o.Settings, r.memory.suspect, r.memory.looking, r.wake.Add)
	return r
}

// Setup adds the reconciler to mgr, whose cache has KuryrLoadBalancers and the index of
// KuryrPorts by address, and with it what waits for busy load balancers and what looks
// at all of them.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("loadbalancers").
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, RateLimiter: outcome.Limiter[ctrl.Request](r.backoff), SkipNameValidation: new(true),
		}).
		For(&v1.KuryrLoadBalancer{}).
		Watches(&v1.KuryrPort{}, handler.EnqueueRequestsFromMapFunc(r.guards), builder.WithPredicates(groupsMoved)).
		WatchesRawSource(r.wake.Source()).
		Complete(r)
	if err != nil {
		return err
	}
	for _, run := range []kube.Leading{r.wait.Run, r.drift.Look} {
		if err := mgr.Add(run); err != nil {
			return err
		}
	}
	return nil
}

// Suspect has the cloud looked at for a KuryrLoadBalancer; with doubt also for what its
// status does not name.
func (r *Reconciler) Suspect(req ctrl.Request, doubt bool) {
	r.memory.suspect(req, doubt)
	r.wake.Add(req)
}

// Reconcile applies one KuryrLoadBalancer.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	res, err := r.apply(ctx, req)
	if err == nil { // else the queue has it tried again
		r.memory.looked(req)
	}
	return res, err
}

func (r *Reconciler) apply(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	klb, m, err := r.get(ctx, req)
	if klb == nil || err != nil {
		return ctrl.Result{}, err
	}
	if !klb.DeletionTimestamp.IsZero() {
		return r.release(ctx, klb, m)
	}
	if !controllerutil.ContainsFinalizer(klb, v1.LoadBalancerFinalizer) {
		// It is put there before the first call: nothing in the cloud is of this object,
		// unless somebody has taken it off.
		if m.generation == 0 && blank(klb) {
			m.untouched, m.fresh, m.public = true, true, private
		}
		err := r.patch(ctx, klb, m, func(o client.Object) { controllerutil.AddFinalizer(o, v1.LoadBalancerFinalizer) })
		if err != nil {
			return kube.Retry(err)
		}
	}
	if rest, again, err := r.atRest(ctx, klb, m); rest || err != nil {
		return ctrl.Result{RequeueAfter: again}, err
	}
	return r.bring(ctx, klb, m)
}

// get returns the KuryrLoadBalancer as a copy and what is remembered of it; nil if
// it is gone, or if the cache does not show the last own write yet, whose event
// will come here.
func (r *Reconciler) get(ctx context.Context, req ctrl.Request) (*v1.KuryrLoadBalancer, *memory, error) {
	var klb v1.KuryrLoadBalancer
	err := r.client.Get(ctx, req.NamespacedName, &klb)
	if apierrors.IsNotFound(err) {
		r.memory.forget(req)
		r.held.Forget(req)
		r.quotas.Freed(req)
		r.moved(req)
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading KuryrLoadBalancer %s: %w", req, err)
	}
	m := r.memory.of(req, klb.UID)
	if m.dropped || m.version != "" && kube.Older(klb.ResourceVersion, m.version) {
		return nil, nil, nil
	}
	return &klb, m, nil
}

// patch changes the metadata of a KuryrLoadBalancer, if nobody else has meanwhile.
func (r *Reconciler) patch(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, change func(client.Object)) error {
	next := &v1.KuryrLoadBalancer{ObjectMeta: *klb.ObjectMeta.DeepCopy()}
	if err := kube.PatchMetadata(ctx, r.client, next, "KuryrLoadBalancer", kube.OwnerBalancer, change); err != nil {
		return err
	}
	if next.ResourceVersion != "" {
		m.version = next.ResourceVersion
	}
	klb.ObjectMeta = next.ObjectMeta
	return nil
}

// atRest reports whether there is nothing to do, as the status says that this
// generation is in the cloud and names all that it is made of. It asks the cloud
// only what a provider can do, and only of one that cannot do all. again is when to ask
// anew, if that may be otherwise then.
func (r *Reconciler) atRest(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory) (rest bool, again time.Duration, err error) {
	s := &klb.Status
	ready := meta.FindStatusCondition(s.Conditions, v1.ConditionReady)
	if ready == nil && m.seen { // somebody has emptied the status
		m.forgetCloud()
		m.doubt = true
	}
	if m.check || m.doubt || ready == nil || ready.Status != "True" || ready.ObservedGeneration != klb.Generation ||
		!meta.IsStatusConditionFalse(s.Conditions, v1.ConditionProgressing) {
		return false, 0, nil
	}
	features, all := balancer.Everything(), meta.IsStatusConditionTrue(s.Conditions, v1.ConditionSupported)
	if !all || klb.Spec.SourceRangesAtMembers {
		f, err := r.features(ctx, klb, m.trees)
		if err != nil && !all {
			return false, 0, err
		}
		if features = f; err != nil { // whether there has to be a group is not known
			features = balancer.Everything()
			features.Unsure = true
		}
	}
	want, _ := balancer.Want(klb, features)
	public, told, again, err := r.fencedAs(ctx, klb, m, features)
	if err != nil {
		return false, 0, err
	}
	switch covers := balancer.Covers(s, want, public); {
	case covers && told:
		return true, again, nil
	case covers && s.SecurityGroupID != "": // and nobody has taken anything out of the status
		return false, 0, nil
	}
	// Somebody has taken something out of the status: look at what there is.
	m.forgetCloud()
	m.doubt = true
	return false, 0, nil
}

// bring does one round and reports.
func (r *Reconciler) bring(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory) (ctrl.Result, error) {
	m.begin(klb.Generation, r.now())
	m.synced = m.synced || balancer.IsReady(klb) // before this process: a look at it is no stage
	o := &round{}
	o.err = errors.Join(r.unpublish(ctx, klb, m, o), r.keepOut(ctx, klb, m, o))
	if id, since := r.wait.WaitsFor(kube.RequestOf(klb)); id != "" && !m.overdue(r.now(), r.patience()) {
		o.waiting, o.since, o.busy = id, since, r.wait.Busy(kube.RequestOf(klb))
		idle := func(id string) bool { return !slices.Contains(o.busy, id) }
		if !slices.ContainsFunc(balancer.Named(klb), idle) {
			return r.rest(ctx, klb, m, o)
		}
	}
	if o.err = r.round(ctx, klb, m, o); errors.Is(o.err, sdn.ErrUnsupported) {
		m.refusals++
	} else {
		m.refusals = 0
	}
	o.refusals = m.refusals
	return r.report(ctx, klb, m, o)
}

// rest is a round while all load balancers are busy.
func (r *Reconciler) rest(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round) (ctrl.Result, error) {
	if !m.lax.IsZero() {
		o.within = m.lax.Add(r.patience()).Sub(r.now())
	}
	if o.err == nil && len(o.moved) == 0 && meta.IsStatusConditionTrue(klb.Status.Conditions, v1.ConditionProgressing) && r.now().Sub(o.since) < stuckAfter {
		return r.next(o)
	}
	return r.report(ctx, klb, m, o)
}

// round is what one round has found and done.
type round struct {
	trees    []sdn.LoadBalancer
	seen     bool // trees are what the cloud has; else nothing is known of it
	features sdn.Features
	problems []balancer.Problem
	asked    bool   // problems are what the provider cannot do
	deferred string // the provider that stays until it is this one's turn to change it

	busy    []string // load balancers that were waited for before: the round is about the others
	did     []string // steps that were carried out
	waiting string   // a load balancer that is busy
	since   time.Time
	broken  []string // what is in ERROR
	spent   bool     // and no more is done about it
	beaten  string   // a load balancer that is shown to be done, and refuses as busy time and again
	lost    bool     // what a step was about is gone: the cloud is not as it was seen
	stopped bool     // a busy load balancer has stopped a step, maybe half way
	refused []string // what the cloud accepts and does not do
	left    []string // likewise, and it is left at that
	kept    []string // what goes for new load balancers only
	noted   []string // what could not be done, and does no harm
	again   time.Duration

	fence    fencing       // the security group that keeps the source ranges
	withheld bool          // there is to be no floating IP, as nobody could be kept out
	closing  bool          // what keeps somebody out is not in the cloud yet
	within   time.Duration // when to look again at that, at the latest; 0: whenever

	address balancer.Address
	noWay   bool     // the cloud refuses that floating IP
	located bool     // address is what there is and is to be
	moved   []string // steps about it that were carried out

	checking bool // nobody has changed the KuryrLoadBalancer
	err      error
	refusals int // how often in a row that was something not supported
}

// settled reports whether the round has found the cloud to be as it is to be.
func (o *round) settled() bool {
	return o.err == nil && o.seen && o.located && o.address.Problem == "" && o.deferred == "" &&
		len(o.did)+len(o.broken)+len(o.refused) == 0 && o.waiting == "" && o.beaten == "" && !o.lost
}

// round looks, plans and does.
func (r *Reconciler) round(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round) error {
	trees, err := r.look(ctx, klb, m)
	if err != nil {
		return r.shut(ctx, klb, m, o, err)
	}
	o.trees, o.seen = trees, true
	spec, hindered := r.turn(ctx, klb, trees, o)
	features, err := r.features(ctx, spec, trees)
	if err != nil {
		return r.shut(ctx, klb, m, o, err)
	}
	features.FailOver = features.FailOver && !m.noFailOver
	spec, unfenced := r.fence(ctx, klb, m, spec, features, o)
	want, problems := balancer.Want(spec, features)
	problems = append(problems, balancer.BrokenMonitors(trees)...)
	o.problems, o.asked, o.withheld = problems, !features.Unsure, balancer.Withheld(spec, features)
	o.features = features
	plan := balancer.Next(want, trees, balancer.Named(klb), features)
	plan.Leave(o.busy)
	m.replaceFailovers(plan.Mend, trees)
	o.broken, o.kept = plan.Broken, plan.Kept
	r.leaveStubborn(ctx, m, &plan, o)
	if err := r.guardRanges(ctx, klb, m, balancer.Lax(want, trees, balancer.Named(klb)), o); err != nil {
		return err
	}
	o.closing = o.closing || unfenced != nil && !balancer.Open(klb)
	if err := r.checked(ctx, klb, m, &plan, o); err != nil {
		return err
	}
	r.awaitAll(plan.Busy, klb, m, o)
	return r.carryOut(ctx, klb, m, want, &plan, o, errors.Join(hindered, unfenced))
}

// carryOut does what is planned; failed is what went wrong before.
func (r *Reconciler) carryOut(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, want []sdn.LoadBalancer, plan *balancer.Plan, o *round, failed error) error {
	if o.withheld { // before anybody can come in who is to stay out
		failed = errors.Join(failed, r.locate(ctx, klb, m, want, o))
	}
	failed = errors.Join(failed, r.steps(ctx, klb, m, plan.Steps, o))
	if !away(failed) && len(plan.Mend) > 0 {
		failed = errors.Join(failed, r.heal(ctx, klb, m, plan.Mend, o))
	}
	if !o.located {
		failed = errors.Join(failed, r.locate(ctx, klb, m, want, o))
	}
	if o.checking && len(o.moved) > 0 {
		failed = errors.Join(failed, r.tellDrift(ctx, klb, m, o.moved))
	}
	if failed == nil && o.settled() && len(plan.Last) > 0 {
		failed = r.steps(ctx, klb, m, plan.Last, o)
	}
	return failed
}
