// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/polling"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// reasonNoWay is the same on a Service and on its KuryrLoadBalancer.
const reasonNoWay = service.FloatingIPRefused

// readyMessage is what is said if there is nothing else to say.
const readyMessage = "The cloud has the load balancer as wanted."

// stuckAfter is how long a load balancer may be busy before it is worth a word: an
// amphora takes minutes to boot.
const stuckAfter = 10 * time.Minute

// report writes the status, if it has changed, and says what is to be done next.
func (r *Reconciler) report(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round) (ctrl.Result, error) {
	if away(o.err) && len(o.did)+len(o.moved) == 0 && balancer.IsReady(klb) {
		return r.next(o) // nobody has asked for anything: what was so is most likely so still
	}
	status := r.status(klb, o)
	before := klb.Status.Conditions
	if err := r.write(ctx, klb, m, &status); err != nil {
		return kube.Retry(err)
	}
	r.tell(klb, before, m, &status, o) // who reads the Event finds the status that it is about
	r.measure(klb, m, o)
	if o.settled() {
		m.settled()
		m.features = &o.features
		r.quotas.Forget(kube.RequestOf(klb))
		r.moved(kube.RequestOf(klb))
	}
	return r.next(o)
}

// away reports whether an error says nothing but that the cloud did not answer.
func away(err error) bool { return errors.Is(err, sdn.ErrUnavailable) }

// learning is how often in a row something not supported is asked for soon again: the
// backend learns most of that, and the next plan does without. What it does not learn
// is not to keep others from being served.
const learning = 5

// next is what a round means for the queue.
func (r *Reconciler) next(o *round) (ctrl.Result, error) {
	res, err := r.pause(o)
	if err == nil && o.within > 0 && (res.RequeueAfter == 0 || res.RequeueAfter > o.within) {
		res.RequeueAfter = o.within
	}
	return res, err
}

// pause says when to go on after a round. Who waits for a load balancer is woken.
func (r *Reconciler) pause(o *round) (ctrl.Result, error) {
	var turn *polling.QueuedError
	switch reason := outcome.BalancerReason(o.err); {
	case away(o.err): // whatever else has failed: what did not answer may soon
		return r.soon(o.err)
	case errors.Is(o.err, errTaken):
		return ctrl.Result{RequeueAfter: r.backoff.Quota}, nil
	case reason == v1.ReasonReady:
	case reason == v1.ReasonOverQuota && errors.As(o.err, &turn):
		return ctrl.Result{RequeueAfter: turn.After}, nil
	case reason == v1.ReasonNotSupported && o.refusals <= learning:
		return ctrl.Result{RequeueAfter: r.backoff.Min}, nil
	case reason == v1.ReasonNotSupported, reason == v1.ReasonNoLoadBalancing:
		return ctrl.Result{RequeueAfter: r.backoff.Rejected}, nil
	case slices.Contains([]string{v1.ReasonPending, v1.ReasonOverQuota, v1.ReasonRejected, v1.ReasonForbidden}, reason):
		return ctrl.Result{RequeueAfter: r.backoff.Delay(o.err, 1)}, nil
	default:
		return r.soon(o.err)
	}
	switch {
	case o.waiting != "":
		return ctrl.Result{RequeueAfter: stuckAfter}, nil
	case o.again > 0:
		return ctrl.Result{RequeueAfter: o.again}, nil
	case o.address.Problem != "" || !o.settled():
		return ctrl.Result{RequeueAfter: r.backoff.Quota}, nil
	}
	return ctrl.Result{}, nil
}

// soon is when to go on after an error that may be over at any time.
func (r *Reconciler) soon(err error) (ctrl.Result, error) {
	if after, ok := sdn.RetryAfter(err); ok {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	return ctrl.Result{}, err // backoff by the queue
}

// status is what is to be said after a round.
func (r *Reconciler) status(klb *v1.KuryrLoadBalancer, o *round) v1.KuryrLoadBalancerStatus {
	s := *klb.Status.DeepCopy()
	if o.seen && (len(o.did) == 0 || len(o.trees) > len(s.LoadBalancers)) {
		s = balancer.Status(o.trees, klb.Spec.VIPs)
		s.Conditions, s.PublicIP, s.SecurityGroupID = slices.Clone(klb.Status.Conditions), klb.Status.PublicIP, klb.Status.SecurityGroupID
	}
	if o.fence.known && (!o.withheld || o.located) { // else it has a floating IP yet
		s.SecurityGroupID = o.fence.group
	}
	if o.located {
		s.PublicIP = o.address.Has
	}
	put := func(kind string, is bool, reason, message string) {
		kube.SetCondition(&s.Conditions, kind, is, reason, outcome.Cut(message), klb.Generation, r.now())
	}
	if o.asked {
		if text := supported(o.problems); len(o.problems) == 0 {
			put(v1.ConditionSupported, true, "Supported", text)
		} else {
			put(v1.ConditionSupported, false, v1.ReasonNotSupported, text)
		}
	}
	if o.settled() {
		put(v1.ConditionReady, true, v1.ReasonReady, o.ready())
		put(v1.ConditionProgressing, false, "Settled", "Nothing is to be done.")
		put(v1.ConditionInSync, true, "InSync", "The last look at the cloud showed what this status says.")
		return s
	}
	reason, message := r.unready(klb, o)
	// What serves is said to be ready while a change of it is under way: until then
	// it is what an earlier generation wanted, which observedGeneration tells.
	was := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
	if reason != v1.ReasonPending || was == nil || was.Status != metav1.ConditionTrue {
		put(v1.ConditionReady, false, reason, message)
	}
	put(v1.ConditionProgressing, !o.spent, "Working", o.progress())
	return s
}

// ready says what is so, and what is not quite so.
func (o *round) ready() string {
	text := readyMessage
	if kept := slices.Concat(o.kept, o.address.Kept); len(kept) > 0 {
		text += " But this goes for new ones only: " + strings.Join(kept, "; ") +
			". Delete the KuryrLoadBalancer to have it made anew, which interrupts it and gives up a floating IP that Kuryr has made"
	}
	if len(o.left) > 0 {
		text += " But the cloud has accepted this, and keeps it as it is: " + strings.Join(o.left, "; ")
	}
	if len(o.noted) > 0 {
		text += " But Kuryr failed " + strings.Join(o.noted, "; ") + ". It serves all the same, and Kuryr tries again"
	}
	return text
}

// progress says what Kuryr is at.
func (o *round) progress() string {
	if o.deferred != "" {
		return fmt.Sprintf("Provider %s serves it until it is its turn: load balancers change their provider one at a time.", o.deferred)
	}
	return "Kuryr is at it, or waits until the cloud is."
}

// closed says that a Service is not open to all, although its load balancer is.
func (o *round) closed() string {
	if !o.withheld {
		return ""
	}
	return ". Until its source ranges are kept the Service has no floating IP"
}

// unready says why the cloud is not as wanted.
func (r *Reconciler) unready(klb *v1.KuryrLoadBalancer, o *round) (reason, message string) {
	switch {
	case o.err != nil:
		return outcome.BalancerReason(o.err), explain(o.err) + o.closed()
	case o.spent:
		return v1.ReasonLoadBalancerInError, fmt.Sprintf("In ERROR, also after %d tries to get it out of there: %s. Look at it in the cloud; Kuryr tries again at %s",
			mendTries, strings.Join(o.broken, ", "), o.since.UTC().Format(time.RFC3339))
	case len(o.broken) > 0:
		return v1.ReasonLoadBalancerInError, "In ERROR, and being mended: " + strings.Join(o.broken, ", ")
	case o.address.Problem != "" && o.noWay:
		return reasonNoWay, o.address.Problem
	case o.address.Problem != "":
		return v1.ReasonFloatingIPNotUsable, o.address.Problem
	case len(o.refused) > 0:
		return v1.ReasonNotTaken, "The cloud has accepted this, and not done it: " + strings.Join(o.refused, "; ") + ". Kuryr goes on by itself" + o.closed()
	case o.beaten != "":
		return v1.ReasonLoadBalancerBusy, fmt.Sprintf("Load balancer %s refuses each change as busy, and is shown as done: is something of somebody else's in the way, "+
			"as a policy that uses a pool? Look at it in the cloud; Kuryr tries again every %s", o.beaten, r.backoff.Quota)
	case o.waiting != "" && r.now().Sub(o.since) >= stuckAfter:
		return v1.ReasonLoadBalancerBusy, fmt.Sprintf("Load balancer %s has been busy since %s: look at it, and at Octavia, in the cloud", o.waiting, o.since.UTC().Format(time.RFC3339))
	}
	if o.fence.Waits && klb.Status.PublicIP == nil && klb.Spec.PublicIP != nil {
		return v1.ReasonPending, "It gets its floating IP once an endpoint has its security group, " + o.fence.group
	}
	return v1.ReasonPending, "The cloud is at work on it."
}

// supported says what a provider can do of what is wanted.
func supported(problems []balancer.Problem) string {
	if len(problems) == 0 {
		return "The provider does all that is asked for."
	}
	return outcome.Cut(list(problems))
}

// list writes problems as one text.
func list(problems []balancer.Problem) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

// explain writes err for a person: what happened, and what to do about it.
func explain(err error) string {
	text := err.Error()
	switch outcome.BalancerReason(err) {
	case v1.ReasonOverQuota:
		text += ". Raise the quota of load balancers, listeners, pools, members, ports, floating IPs, security groups or their rules in the cloud, or delete what is not used; Kuryr goes on by itself"
	case v1.ReasonRejected:
		text += ". Check " + fieldsOf(text) + "; Kuryr tries again"
	case v1.ReasonNoLoadBalancing:
		text += ". Install Octavia, or take services.subnetIDs out of Kuryr's configuration. What is being deleted goes once its status names no load balancer"
	case v1.ReasonNotSupported:
		text += ". Choose another provider for the Service, or take the field away"
	case v1.ReasonConflict:
		if errors.Is(err, errTaken) {
			text += ". Somebody else has it: release it in the cloud, or make the Service anew to get another"
		} else {
			text += ". Somebody else changes it at the same time; Kuryr looks again"
		}
	case v1.ReasonForbidden:
		text += ". Check the credential that Kuryr uses and its roles in the project of the load balancers"
	case v1.ReasonUnavailable, v1.ReasonBackendError, v1.ReasonPortMissing:
		text += ". Kuryr tries again until the cloud answers; nothing is to be done here"
	}
	return text
}

// write writes the status if it says anything new.
func (r *Reconciler) write(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, status *v1.KuryrLoadBalancerStatus) error {
	if equality.Semantic.DeepEqual(*status, klb.Status) {
		return nil
	}
	version, err := kube.ApplyStatus(ctx, r.client, klb, "KuryrLoadBalancer", status, kube.OwnerBalancer)
	if err != nil {
		return err
	}
	if version != "" { // else it is gone
		m.version = version
		klb.ResourceVersion = version
		klb.Status = *status
	}
	return nil
}

// tell says on the Service what a status says that the conditions before did not say.
func (r *Reconciler) tell(klb *v1.KuryrLoadBalancer, before []metav1.Condition, m *memory, s *v1.KuryrLoadBalancerStatus, o *round) {
	for kind, action := range map[string]string{v1.ConditionReady: "ApplyLoadBalancer", v1.ConditionSupported: "PlanLoadBalancer"} {
		was, is := meta.FindStatusCondition(before, kind), meta.FindStatusCondition(s.Conditions, kind)
		if kind == v1.ConditionReady && len(o.kept)+len(o.address.Kept) > 0 && o.settled() && (was == nil || was.Message != is.Message) {
			r.event(klb, v1.ReasonNotChanged, action, is.Message)
		}
		if is == nil || is.Status == metav1.ConditionTrue || is.Reason == v1.ReasonPending || is.Reason == v1.ReasonLoadBalancerInError && !o.spent && !m.leaving {
			continue
		}
		same := was != nil && was.Status == is.Status && was.Reason == is.Reason
		if kind == v1.ConditionSupported {
			same = same && was.Message == is.Message
		} else {
			same = same && was.ObservedGeneration == is.ObservedGeneration
		}
		if !same {
			r.event(klb, is.Reason, action, is.Message)
		}
	}
}

// event warns on the Service, and on the KuryrLoadBalancer if it is nobody's. Events
// that differ in their text alone are made one, with the text of the first: so it
// names the version of the KuryrLoadBalancer that it is about.
func (r *Reconciler) event(klb *v1.KuryrLoadBalancer, reason, action, note string) {
	about := kube.Reference(klb, "KuryrLoadBalancer")
	about.ResourceVersion = klb.ResourceVersion
	r.events.Eventf(serviceOf(klb), about, corev1.EventTypeWarning, reason, action, "%s", outcome.Cut(note))
}

// serviceOf names the Service of a KuryrLoadBalancer in an Event.
func serviceOf(klb *v1.KuryrLoadBalancer) *corev1.ObjectReference {
	for _, o := range klb.OwnerReferences {
		if o.Kind == "Service" {
			return &corev1.ObjectReference{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: klb.Namespace, Name: o.Name, UID: o.UID}
		}
	}
	return kube.Reference(klb, "KuryrLoadBalancer")
}

func (r *Reconciler) tellBroken(klb *v1.KuryrLoadBalancer, broken []string, try int) {
	r.event(klb, v1.ReasonLoadBalancerInError, "MendLoadBalancer",
		fmt.Sprintf("In ERROR: %s. Try %d of %d to get it out of there", strings.Join(broken, ", "), try, mendTries))
}

// tellDrift says that the cloud is not as the status says, before it is mended.
func (r *Reconciler) tellDrift(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, drift []string) error {
	balancerDrifts.Inc()
	note := "The cloud was changed by somebody else, and is put right: to " + strings.Join(drift, "; to ")
	r.event(klb, v1.ReasonDrift, "CheckLoadBalancer", note)
	s := *klb.Status.DeepCopy()
	kube.SetCondition(&s.Conditions, v1.ConditionInSync, false, v1.ReasonDrift, outcome.Cut(note), klb.Generation, r.now())
	kube.SetCondition(&s.Conditions, v1.ConditionProgressing, true, "Working", "Kuryr is at it, or waits until the cloud is.", klb.Generation, r.now())
	return r.write(ctx, klb, m, &s)
}

func hasFinalizer(klb *v1.KuryrLoadBalancer) bool {
	return controllerutil.ContainsFinalizer(klb, v1.LoadBalancerFinalizer)
}

// reportLeaving says that an object goes, and why it is not gone yet.
func (r *Reconciler) reportLeaving(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round) (ctrl.Result, error) {
	s := *klb.Status.DeepCopy()
	reason, message := r.unready(klb, o)
	if reason == v1.ReasonPending {
		reason, message = "Deleting", "The load balancer is being deleted."
	}
	kube.SetCondition(&s.Conditions, v1.ConditionReady, false, reason, outcome.Cut(message), klb.Generation, r.now())
	kube.SetCondition(&s.Conditions, v1.ConditionProgressing, true, "Deleting", "The load balancer is being deleted.", klb.Generation, r.now())
	m.leaving = true
	before := klb.Status.Conditions
	if err := r.write(ctx, klb, m, &s); err != nil {
		return kube.Retry(err)
	}
	if reason != "Deleting" {
		r.tell(klb, before, m, &s, o)
	}
	return r.next(o)
}

// drop lets the API server delete the object.
func (r *Reconciler) drop(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory) (ctrl.Result, error) {
	err := r.patch(ctx, klb, m, func(o client.Object) { controllerutil.RemoveFinalizer(o, v1.LoadBalancerFinalizer) })
	if err == nil {
		m.dropped = true
	}
	return kube.Retry(err)
}

// measure notes how long the stages took.
func (r *Reconciler) measure(klb *v1.KuryrLoadBalancer, m *memory, o *round) {
	if m.fresh && o.seen && len(o.trees) >= len(klb.Spec.VIPs) && len(o.did) == 0 && o.waiting == "" {
		m.fresh = false
		balancerStages.WithLabelValues("active").Observe(r.now().Sub(m.born).Seconds())
	}
	if o.settled() && !m.synced {
		m.synced = true
		balancerStages.WithLabelValues("synced").Observe(r.now().Sub(m.begun).Seconds())
	}
}

// fieldsOf names what of a Service, and of the configuration, the cloud may have meant
// when it refused something: it speaks of its own fields. text is the error.
func fieldsOf(text string) string {
	ours, cloud, _ := strings.Cut(text, " answered ")
	says := func(words string) bool { return strings.Contains(strings.ToLower(cloud), words) }
	switch {
	case strings.Contains(ours, "is none of the cloud's"), says("is not enabled"):
		return "the Service's annotation openstack.org/kuryr-provider, and services.provider in Kuryr's configuration"
	case says("flavor"):
		return "the Service's annotation loadbalancer.openstack.org/flavor-id, and services.flavorID in Kuryr's configuration"
	case says("availability"):
		return "the Service's annotation loadbalancer.openstack.org/availability-zone"
	case strings.Contains(ours, "floating IP"):
		return "the Service's annotations loadbalancer.openstack.org/floating-network-id and loadbalancer.openstack.org/floating-subnet-id, " +
			"and services.externalNetworkID and services.externalSubnetID in Kuryr's configuration"
	case says("subnet"):
		return "services.subnetIDs and services.nodeSubnetIDs in Kuryr's configuration, " +
			"and the Service's annotation loadbalancer.openstack.org/member-subnet-id"
	}
	return "the Service's annotations and services in Kuryr's configuration"
}
