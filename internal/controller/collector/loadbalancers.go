// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// loadBalancers compares the load balancers and floating IPs of the cloud with the
// KuryrLoadBalancers. Whether a floating IP is deleted depends on the load balancers. So one
// comparison covers both, with one list of each.
type loadBalancers struct {
	LoadBalancerOptions
	client client.Client
	live   client.Reader // reads past the cache

	balancer, floating, vip *Kind
}

// LoadBalancerOptions is what the collection of load balancers needs beyond the manager.
type LoadBalancerOptions struct {
	Cloud       sdn.LoadBalancers
	FloatingIPs sdn.FloatingIPs // nil: the cloud has none
	Settings    *settings.Live
	Shards      kube.Shards
	Applier     balancerApplier
	Thorough    bool // for a command: it is compared also if no object and no setting asks for load balancers
}

const ownerGone = "its KuryrLoadBalancer is gone"

// balancerApplier checks a KuryrLoadBalancer in the cloud, soon. With statusIncomplete it includes
// resources that the status does not name.
type balancerApplier interface {
	RequestCheck(req ctrl.Request, statusIncomplete bool)
}

// LoadBalancers returns the inventory of load balancers and floating IPs. It is compared as often
// as that of ports, and at least once per check interval of load balancers. No other part checks
// floating IPs.
func LoadBalancers(from source, o LoadBalancerOptions) *Inventory {
	r := &loadBalancers{LoadBalancerOptions: o, client: from.GetClient(), live: from.GetAPIReader()}
	deleteFloatingIP := func(ctx context.Context, f Resource) error { return o.FloatingIPs.DeleteFloatingIP(ctx, f.ID, "") }
	freeVIP := func(ctx context.Context, port Resource) error {
		return o.Cloud.FreeVIP(ctx, port.ProjectID, port.VIP, port.ID)
	}
	r.balancer = &Kind{Name: "load balancer", Wanted: r.wanted, Delete: r.deleteLoadBalancer, WhyDelete: ownerGone}
	r.floating = &Kind{Name: "floating IP", Wanted: r.wanted, Adopt: r.disown, Delete: deleteFloatingIP, WhyAdopt: "another port has it, so it only loses its mark", WhyDelete: ownerGone}
	r.vip = &Kind{Name: "VIP port", Wanted: r.wantsVIP, Delete: freeVIP, WhyDelete: "Octavia has left it; it has no load balancer"}
	for _, k := range []*Kind{r.balancer, r.floating, r.vip} {
		k.From, k.Deleted = from, balancerOrphansDeleted.WithLabelValues(k.Name)
	}
	return &Inventory{Name: "loadbalancers", Settings: o.Settings, Shards: o.Shards, comparison: r}
}

func (r *loadBalancers) tell(req ctrl.Request) { r.Applier.RequestCheck(req, true) }

func (r *loadBalancers) period() time.Duration {
	s := r.Settings.Load()
	return min(period(s, 2*time.Minute), settings.CheckInterval(s.Services.CheckInterval.Duration))
}

// period returns the interval of the configuration, or another one without it: ports have other
// occasions for a comparison, these inventories have none.
func period(s *settings.Settings, otherwise time.Duration) time.Duration {
	return cmp.Or(max(0, s.Orphans.Interval.Duration), otherwise)
}

// look lists the objects before and after the resources. So a resource that is created between the
// lists has an object in the second list of objects. A cluster without Services costs no request to
// the cloud.
func (r *loadBalancers) look(ctx context.Context) (found Findings, err error) {
	before, err := kube.LoadBalancers(ctx, r.client)
	if err != nil || !r.Thorough && len(before) == 0 && len(r.Settings.Load().Services.SubnetIDs) == 0 {
		return found, err
	}
	var is shown
	is.balancers, is.balancersLack = r.Cloud.ListLoadBalancers(ctx)
	// Without the service the cloud has no load balancers, but it may have floating IPs.
	unserved := errors.Is(is.balancersLack, sdn.ErrNoService)
	if is.balancersLack != nil && sdn.Partial(is.balancersLack) == nil && !unserved {
		return found, fmt.Errorf("listing load balancers: %w", is.balancersLack)
	}
	is.floating, is.floatingLack = r.listFloating(ctx, before)
	if is.floatingLack != nil && sdn.Partial(is.floatingLack) == nil {
		return found, fmt.Errorf("listing floating IPs: %w", is.floatingLack)
	}
	after, err := kube.LoadBalancers(ctx, r.client)
	if err != nil {
		return found, err
	}
	found.Unnamed = r.unnamed(is, after)
	if unserved {
		is.balancersLack = nil // that is no failure
	} else {
		found.Differ = r.missing(before, is)
	}
	left, failed := r.leftVIPs(ctx, after)
	found.Unnamed = append(found.Unnamed, left...)
	found.Unsure = errors.Join(failed, unlisted("load balancers", is.balancersLack), unlisted("floating IPs", is.floatingLack))
	return found, nil
}

// shown is what the cloud shows of load balancers, and what its lists lack.
type shown struct {
	balancers                   []sdn.LoadBalancerSummary
	floating                    []sdn.FloatingIP
	balancersLack, floatingLack error
}

// hidden reports whether a list may lack what a KuryrLoadBalancer has.
func hidden(klb *v1.KuryrLoadBalancer, lacks error) bool {
	return sdn.ErrorIn(klb.Spec.ProjectID, lacks) != nil || slices.ContainsFunc(klb.Status.LoadBalancers, func(lb v1.LoadBalancerStatus) bool {
		return sdn.ErrorIn(lb.ProjectID, lacks) != nil
	})
}

// listFloating returns the floating IPs; none if the cloud has no such service. The list of any
// project has all with Kuryr's mark. Those that Kuryr did not create are in the list of their own
// project only. So each project is listed in which a load balancer has such a floating IP. An
// sdn.PartialError has what any of these lists lacks.
func (r *loadBalancers) listFloating(ctx context.Context, objects map[ctrl.Request]*v1.KuryrLoadBalancer) (all []sdn.FloatingIP, err error) {
	if r.FloatingIPs == nil {
		return nil, nil
	}
	listed, lacks := map[string]bool{}, map[string]error{}
	for _, project := range append([]string{r.Settings.Load().Services.ProjectID}, lenders(objects)...) {
		if listed[project] {
			continue
		}
		listed[project] = true
		some, err := r.FloatingIPs.ListFloatingIPs(ctx, project)
		if errors.Is(err, sdn.ErrNoService) {
			return nil, nil
		} else if partial := sdn.Partial(err); partial != nil {
			maps.Copy(lacks, partial.Lacks)
		} else if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(a, b sdn.FloatingIP) int { return strings.Compare(a.ID, b.ID) })
	all = slices.CompactFunc(all, func(a, b sdn.FloatingIP) bool { return a.ID == b.ID })
	if len(lacks) > 0 {
		return all, &sdn.PartialError{Lacks: lacks}
	}
	return all, nil
}

// lenders returns the projects whose own floating IPs load balancers have, sorted.
func lenders(objects map[ctrl.Request]*v1.KuryrLoadBalancer) (projects []string) {
	for _, klb := range objects {
		if has := klb.Status.PublicIP; has != nil && !has.Made {
			projects = append(projects, klb.Spec.ProjectID)
		}
	}
	slices.Sort(projects)
	return slices.Compact(projects)
}

// unnamed returns the resources with Kuryr's mark that belong to no object. A floating IP on a port
// waits for a list of all load balancers, as it may serve one that this list lacks.
func (r *loadBalancers) unnamed(is shown, objects map[ctrl.Request]*v1.KuryrLoadBalancer) (all []Resource) {
	for _, lb := range is.balancers {
		if lb.Owner.Kind == sdn.KindLoadBalancer && objects[kube.OwnerRequest(lb.Owner)] == nil && lb.Provisioning != sdn.ProvisioningDeleted {
			left := ownedBy(lb.Owner, r.balancer, lb.ID)
			left.Name, left.Created = lb.Name, lb.Created
			all = append(all, left)
		}
	}
	for _, f := range is.floating {
		serves := f.PortID != "" && slices.ContainsFunc(is.balancers, func(lb sdn.LoadBalancerSummary) bool {
			return lb.Owner == f.Owner && lb.VIPPortID == f.PortID
		})
		// A floating IP that serves a load balancer is deleted after the load balancer. A command that
		// deletes both shows both.
		waits := f.PortID != "" && is.balancersLack != nil || serves && !r.Thorough
		if f.Owner.Kind == sdn.KindLoadBalancer && objects[kube.OwnerRequest(f.Owner)] == nil && !waits {
			left := ownedBy(f.Owner, r.floating, f.ID)
			left.Name, left.Elsewhere = f.Address, f.PortID != "" && !serves
			all = append(all, left)
		}
	}
	return all
}

// leftByOctavia is the key of all VIPs without a load balancer: they have no owner.
var leftByOctavia = kube.Task("vips")

// leftVIPs returns the VIPs that are taken in the subnets of Services though they have no load
// balancer. A trial (plan/balancer) has any address, so nobody else looks for what it has left.
func (r *loadBalancers) leftVIPs(ctx context.Context, objects map[ctrl.Request]*v1.KuryrLoadBalancer) (all []Resource, failed error) {
	if !r.Shards.Owns(leftByOctavia) {
		return nil, nil
	}
	type place struct{ project, subnet string }
	services, places := r.Settings.Load().Services, map[place]bool{}
	for _, id := range services.SubnetIDs {
		places[place{services.ProjectID, id}] = true
	}
	for _, klb := range objects {
		for _, vip := range klb.Spec.VIPs {
			places[place{klb.Spec.ProjectID, vip.SubnetID}] = true
		}
	}
	for at := range places {
		vips, err := r.Cloud.LeftVIPs(ctx, at.project, at.subnet)
		if err != nil && !errors.Is(err, sdn.ErrNoService) {
			failed = errors.Join(failed, err)
		}
		for id, vip := range vips {
			all = append(all, Resource{Kind: r.vip, ID: id, Key: leftByOctavia, Name: vip.IP, ProjectID: at.project, VIP: vip})
		}
	}
	return all, failed
}

// wantsVIP reports whether a KuryrLoadBalancer has a VIP. Then its own next creation finds the port,
// and may be under way.
func (r *loadBalancers) wantsVIP(ctx context.Context, port Resource) (bool, error) {
	all, err := kube.LoadBalancers(ctx, r.live)
	for _, klb := range all {
		if slices.ContainsFunc(klb.Spec.VIPs, func(vip v1.VIPAddress) bool { return vip.IP == port.VIP.IP && vip.SubnetID == port.VIP.SubnetID }) {
			return true, nil
		}
	}
	return false, err
}

// wanted reports whether the KuryrLoadBalancer exists that a resource was created for.
func (r *loadBalancers) wanted(ctx context.Context, res Resource) (bool, error) {
	return res.owner(ctx, r.live, &v1.KuryrLoadBalancer{})
}

// deleteLoadBalancer requests the deletion of a load balancer. Octavia takes time for it.
func (r *loadBalancers) deleteLoadBalancer(ctx context.Context, lb Resource) error {
	err := r.Cloud.DeleteLoadBalancer(ctx, lb.ID)
	if errors.As(err, new(*sdn.PendingError)) {
		return nil
	}
	return err
}

// disown removes Kuryr's mark from a floating IP that somebody has given to another port.
func (r *loadBalancers) disown(_ context.Context, f Resource) (func(context.Context) error, error) {
	if !f.Elsewhere {
		return nil, nil
	}
	return func(ctx context.Context) error { return r.FloatingIPs.DisownFloatingIP(ctx, f.ID) }, nil
}

// missing returns the objects whose load balancer or floating IP is gone. It also returns objects
// with a load balancer or a floating IP that their status does not name.
func (r *loadBalancers) missing(before map[ctrl.Request]*v1.KuryrLoadBalancer, all shown) (differ []ctrl.Request) {
	there, public := map[string]sdn.Provisioning{}, map[string]string{}
	for _, lb := range all.balancers {
		there[lb.ID] = lb.Provisioning
	}
	for _, f := range all.floating {
		public[f.ID] = f.PortID
	}
	stray := strays(before, all.balancers, all.floating)
	for req, klb := range before {
		lost := stray[req] && (klb.Spec.PublicIP == nil || balancer.IsReady(klb))
		if !balancer.IsReady(klb) && !lost {
			continue
		}
		for _, lb := range klb.Status.LoadBalancers {
			state, is := there[lb.ID]
			lost = lost || !is && !hidden(klb, all.balancersLack) || state == sdn.ProvisioningError || state == sdn.ProvisioningDeleted
		}
		if p := klb.Status.PublicIP; p != nil && r.FloatingIPs != nil && len(klb.Status.LoadBalancers) > 0 {
			_, listed := public[p.ID]
			lost = lost || (listed || !hidden(klb, all.floatingLack)) && mislaid(klb, public)
		}
		if lost {
			differ = append(differ, req)
		}
	}
	return differ
}

// mislaid reports whether a floating IP is not at its load balancer. A floating IP that Kuryr did
// not create is not listed if it is of another project than the one of the spec.
func mislaid(klb *v1.KuryrLoadBalancer, ports map[string]string) bool {
	p, lb := klb.Status.PublicIP, &klb.Status.LoadBalancers[0]
	port, listed := ports[p.ID]
	if project := klb.Spec.ProjectID; !listed && !p.Made && project != "" && project != lb.ProjectID {
		return false
	}
	return port != lb.PortID
}

// strays returns the objects that have a load balancer or a floating IP that they do not name. A
// process that was stopped may have created it. It may also belong to an earlier object of the same
// name, whose finalizer somebody removed.
//
// A floating IP that is reserved for an object that wants one does not count.
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
