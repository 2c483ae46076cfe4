// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/plan/orphan"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// LoadBalancers compares what load balancers and floating IPs the cloud has with the
// KuryrLoadBalancers, with one list of each kind, as often as orphans of ports are
// looked for, and once an interval of looks at load balancers at least: floating IPs are
// looked at nowhere else. What belongs to nobody is deleted.
type LoadBalancers struct {
	client   client.Client
	live     client.Reader // past the cache
	cloud    sdn.LoadBalancers
	floating sdn.FloatingIPs // nil: none
	settings *settings.Live
	now      func() time.Time
	suspect  func(ctrl.Request)

	nobodys orphan.Collector
	asked   map[string]bool // IDs of what is nobody's; whether it was told to go
}

// LoadBalancerOptions is what LoadBalancers needs beyond the manager.
type LoadBalancerOptions struct {
	Cloud       sdn.LoadBalancers
	FloatingIPs sdn.FloatingIPs // nil: none
	Settings    *settings.Live
	Now         func() time.Time
	Suspect     func(ctrl.Request) // has the cloud looked at for a KuryrLoadBalancer, also for what its status does not name
}

// NewLoadBalancers returns what looks at nothing before Setup.
func NewLoadBalancers(mgr ctrl.Manager, o LoadBalancerOptions) *LoadBalancers {
	return &LoadBalancers{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), cloud: o.Cloud, floating: o.FloatingIPs, settings: o.Settings,
		now: o.Now, suspect: o.Suspect,
	}
}

// Setup adds the check to mgr.
func (r *LoadBalancers) Setup(mgr ctrl.Manager) error { return mgr.Add(kube.Leading(r.collect)) }

// collect looks for orphans, and for what is gone, until ctx ends.
func (r *LoadBalancers) collect(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("loadbalancers")
	ctx = ctrl.LoggerInto(ctx, log)
	again := false
	for {
		o := r.settings.Load().Orphans
		wait := o.Interval.Duration
		if wait <= 0 {
			wait = 2 * time.Minute
		}
		if wait = min(wait, settings.CheckInterval(r.settings.Load().Services.CheckInterval.Duration)); again {
			wait = min(wait, o.Grace.Duration)
		}
		if !kube.Pause(ctx, wait) {
			return nil
		}
		found, err := r.inventory(ctx)
		again = found
		if err != nil && ctx.Err() == nil {
			log.Info("could not compare the cloud's load balancers with the KuryrLoadBalancers", "error", err.Error())
		}
	}
}

// inventory takes the objects before and after the lists: what was made in between
// has an object after them. It returns whether it found what is nobody's and not
// due yet. A cluster without Services costs no list.
func (r *LoadBalancers) inventory(ctx context.Context) (found bool, err error) {
	before, err := kube.LoadBalancers(ctx, r.client)
	if err != nil {
		return false, err
	}
	if len(before) == 0 && len(r.settings.Load().Services.SubnetIDs) == 0 {
		return false, nil
	}
	balancers, err := r.cloud.ListLoadBalancers(ctx)
	unserved := errors.Is(err, sdn.ErrNoService) // then there are none; floating IPs may be left
	if err != nil && !unserved {
		return false, fmt.Errorf("listing load balancers: %w", err)
	}
	floating, err := r.listFloating(ctx)
	if err != nil {
		return false, fmt.Errorf("listing floating IPs: %w", err)
	}
	after, err := kube.LoadBalancers(ctx, r.client)
	if err != nil {
		return false, err
	}
	if unserved { // where one is cannot be told
		floating = slices.DeleteFunc(floating, func(f sdn.FloatingIP) bool { return f.PortID != "" })
	}
	things := r.things(balancers, floating, after)
	var ids []string
	for id := range things {
		ids = append(ids, id)
	}
	due := r.nobodys.Observe(ids, r.now(), r.settings.Load().Orphans.Grace.Duration)
	asked := map[string]bool{}
	for _, id := range due {
		asked[id] = r.delete(ctx, things[id], r.asked[id])
	}
	r.asked = asked
	if !unserved {
		r.missing(before, balancers, floating)
	}
	return len(due) < len(ids), nil
}

// listFloating returns the floating IPs; none where the cloud has no such thing.
func (r *LoadBalancers) listFloating(ctx context.Context) ([]sdn.FloatingIP, error) {
	if r.floating == nil {
		return nil, nil
	}
	all, err := r.floating.ListFloatingIPs(ctx, r.settings.Load().Services.ProjectID)
	if errors.Is(err, sdn.ErrNoService) {
		return nil, nil
	}
	return all, err
}

// thing is something in the cloud that belongs to nobody.
type thing struct {
	kind, id string
	owner    ctrl.Request
	// elsewhere: somebody may have given it to a port of their own.
	elsewhere bool
}

// things returns what bears our mark and is for no object.
func (r *LoadBalancers) things(balancers []sdn.LoadBalancerSummary, floating []sdn.FloatingIP, objects map[ctrl.Request]*v1.KuryrLoadBalancer) map[string]thing {
	all := map[string]thing{}
	for _, lb := range balancers {
		if req := kube.OwnerRequest(lb.Owner); lb.Owner.Kind == sdn.KindLoadBalancer && objects[req] == nil && lb.Provisioning != sdn.ProvisioningDeleted {
			all[lb.ID] = thing{kind: "load balancer", id: lb.ID, owner: req}
		}
	}
	for _, f := range floating {
		req := kube.OwnerRequest(f.Owner)
		serves := f.PortID != "" && slices.ContainsFunc(balancers, func(lb sdn.LoadBalancerSummary) bool {
			return lb.Owner == f.Owner && lb.VIPPortID == f.PortID
		})
		if f.Owner.Kind == sdn.KindLoadBalancer && objects[req] == nil && !serves { // else its port goes first
			all[f.ID] = thing{kind: "floating IP", id: f.ID, owner: req, elsewhere: f.PortID != ""}
		}
	}
	return all
}

// delete removes what belongs to nobody, and reports whether it was told to go, by now
// or, as again says, before: it takes its time, and is seen until it is gone.
func (r *LoadBalancers) delete(ctx context.Context, t thing, again bool) bool {
	log := ctrl.LoggerFrom(ctx).WithValues("kind", t.kind, "id", t.id, "owner", t.owner.String())
	var klb v1.KuryrLoadBalancer
	if err := r.live.Get(ctx, t.owner.NamespacedName, &klb); !apierrors.IsNotFound(err) {
		log.Info("left something alone that seemed to belong to nobody")
		return again
	}
	var err error
	switch {
	case t.kind == "load balancer":
		err = r.cloud.DeleteLoadBalancer(ctx, t.id)
	case t.elsewhere:
		if err = r.floating.DisownFloatingIP(ctx, t.id); err == nil {
			log.Info("left a floating IP to who has given it to another port")
			return true
		}
	default:
		err = r.floating.DeleteFloatingIP(ctx, t.id, "")
	}
	switch {
	case err != nil && outcome.Reason(err) != v1.ReasonPending:
		log.Info("could not delete what belongs to nobody", "error", err.Error())
		return again
	case !again:
		log.Info("deleted what belonged to nobody")
		balancerOrphansDeleted.WithLabelValues(t.kind).Inc()
	}
	return true
}

// missing has those objects looked at whose load balancer or floating IP is gone, or
// which have one that they do not speak of.
func (r *LoadBalancers) missing(before map[ctrl.Request]*v1.KuryrLoadBalancer, balancers []sdn.LoadBalancerSummary, floating []sdn.FloatingIP) {
	there, public := map[string]sdn.Provisioning{}, map[string]string{}
	for _, lb := range balancers {
		there[lb.ID] = lb.Provisioning
	}
	for _, f := range floating {
		public[f.ID] = f.PortID
	}
	stray := strays(before, balancers, floating)
	for req, klb := range before {
		lost := stray[req] && (klb.Spec.PublicIP == nil || balancer.IsReady(klb))
		if !balancer.IsReady(klb) && !lost {
			continue
		}
		for _, lb := range klb.Status.LoadBalancers {
			state, is := there[lb.ID]
			lost = lost || !is || state == sdn.ProvisioningError || state == sdn.ProvisioningDeleted
		}
		if p := klb.Status.PublicIP; p != nil && r.floating != nil && len(klb.Status.LoadBalancers) > 0 {
			lost = lost || r.mislaid(p, public, &klb.Status.LoadBalancers[0])
		}
		if lost {
			r.suspect(req)
		}
	}
}

// mislaid reports whether a floating IP is not where a load balancer is. One of
// somebody's is not listed if it is of another project than is configured now.
func (r *LoadBalancers) mislaid(p *v1.PublicIPStatus, ports map[string]string, lb *v1.LoadBalancerStatus) bool {
	port, listed := ports[p.ID]
	if project := r.settings.Load().Services.ProjectID; !listed && !p.Made && project != "" && project != lb.ProjectID {
		return false
	}
	return port != lb.PortID
}

// strays returns which objects have a load balancer or a floating IP that they do not
// speak of: a process that was stopped has made it, or it is of an object before that
// somebody took the finalizer off. A floating IP that is reserved for an object that
// wants one is none.
func strays(objects map[ctrl.Request]*v1.KuryrLoadBalancer, balancers []sdn.LoadBalancerSummary, floating []sdn.FloatingIP) map[ctrl.Request]bool {
	all := map[ctrl.Request]bool{}
	for _, lb := range balancers {
		klb := objects[kube.OwnerRequest(lb.Owner)]
		if lb.Owner.Kind == sdn.KindLoadBalancer && klb != nil && balancer.IsReady(klb) && lb.Provisioning != sdn.ProvisioningDeleted && !slices.Contains(balancer.Named(klb), lb.ID) {
			all[kube.RequestOf(klb)] = true
		}
	}
	for _, f := range floating {
		req := kube.OwnerRequest(f.Owner)
		klb := objects[req]
		if f.Owner.Kind != sdn.KindLoadBalancer || klb == nil {
			continue
		}
		if has := klb.Status.PublicIP; has != nil && has.ID == f.ID || has == nil && klb.Spec.PublicIP != nil && f.PortID == "" {
			continue
		}
		all[req] = true
	}
	return all
}
