// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// addressRounds is the most plans that a floating IP may take. The longest way: create the new
// one, take the old one off, associate the new one, delete the old one.
const addressRounds = 5

// locate brings the floating IP in line. A new load balancer gets its floating IP once the cloud
// has created it, see comesOrGoes, and one with source ranges once these are kept. The cloud is asked
// only if something about the floating IP has changed.
func (v *reconciliation) locate(ctx context.Context, want []sdn.LoadBalancer) error {
	at := v.placeOf(want)
	known := addressKnown{port: at.Port, withheld: at.Withheld}
	if v.klb.Spec.PublicIP != nil {
		known.spec = *v.klb.Spec.PublicIP
	}
	switch wanted := v.klb.Spec.PublicIP != nil; {
	case wanted && !at.Withheld && (at.Port == "" || v.comesOrGoes(at.Port) || v.round.notYetClosed && v.klb.Status.PublicIP == nil):
		return nil
	case v.memory.placed && v.memory.addressFor == known:
		v.round.Address.Address, v.round.Address.Placed = v.memory.address, true
		return nil
	}
	if !v.mayHaveAddress() {
		v.round.Address.Placed = true
		return nil
	}
	if err := v.place(ctx, at); err != nil {
		return err
	}
	if at.Withheld && len(v.round.moved) > 0 {
		v.event(v1.ReasonFloatingIPWithheld, "WithholdFloatingIP", "The source ranges are not enforced, and any client could connect. Kuryr withdraws the floating IP: "+strings.Join(v.round.moved, "; "))
	}
	v.memory.placed, v.memory.address, v.memory.addressFor = v.round.Address.Problem == "", v.round.Address.Address, known
	return nil
}

// comesOrGoes reports whether the load balancer of a VIP's port is PENDING_CREATE or PENDING_DELETE, or
// the provider is still at work below it. While it is deleted its port may be gone already; the next
// load balancer gets the floating IP. A floating IP that Neutron associates during the creation may
// never work: OVN's provider learns of it by one event, whose handler gives up if OVN has no such load
// balancer after ten seconds (ovn-octavia-provider 3.0.0, vip_port_update_handler).
func (v *reconciliation) comesOrGoes(port string) bool {
	return slices.ContainsFunc(v.round.Trees, func(lb sdn.LoadBalancer) bool {
		return lb.VIPPortID == port && (lb.Provisioning == sdn.ProvisioningCreating || lb.Provisioning == sdn.ProvisioningDeleting ||
			slices.Contains(v.round.unfinished, lb.ID))
	})
}

// choose says which floating IP should be at a place.
func (v *reconciliation) choose(ctx context.Context, at *balancer.Place) (err error) {
	wants := v.klb.Spec.PublicIP
	if wants == nil || v.leaves() {
		return nil
	}
	if wants.Address == "" && v.klb.Status.PublicIP == nil && !at.Withheld {
		if err := v.quotas.take(addressQuota(v.klb), 1, v.Now(), v.Now()); err != nil { // the request takes the turn
			return fmt.Errorf("cannot create a floating IP: %w", err)
		}
	}
	if wants.Address != "" {
		at.Before, err = v.before(ctx)
	}
	return err
}

// before returns the KuryrLoadBalancer, as namespace/name, that has precedence for the floating
// IP address that this one asks for; empty if none has. It reads the statuses of all, whichever process
// applies them.
func (v *reconciliation) before(ctx context.Context) (string, error) {
	all, err := kube.LoadBalancers(ctx, v.client)
	if err != nil {
		return "", err
	}
	first := balancer.Before(v.klb, slices.Collect(maps.Values(all)))
	if first == nil {
		return "", nil
	}
	return first.Namespace + "/" + first.Name, nil
}

// placeOf says which port should have the floating IP, and from which ports it may be taken.
func (v *reconciliation) placeOf(want []sdn.LoadBalancer) balancer.Place {
	at := balancer.Place{Own: portsOf(v.klb), Withheld: v.round.Address.Withheld}
	for i := range v.round.Trees {
		at.Own = append(at.Own, v.round.Trees[i].VIPPortID)
	}
	if len(want) == 0 {
		return at
	}
	if lb := balancer.Serving(want[0].VIP, v.round.Trees, balancer.Named(v.klb)); lb != nil {
		at.Port, at.ProjectID = lb.VIPPortID, lb.ProjectID
	}
	return at
}

// portsOf returns the VIP ports that the status names.
func portsOf(klb *v1.KuryrLoadBalancer) (ports []string) {
	for _, lb := range klb.Status.LoadBalancers {
		ports = append(ports, lb.PortID)
	}
	return ports
}

// mayHaveAddress reports whether the load balancer may have a floating IP, or wants one. A
// process that was stopped may have created one that no status names: the cloud is asked once.
func (v *reconciliation) mayHaveAddress() bool {
	return v.klb.Spec.PublicIP != nil || v.klb.Status.PublicIP != nil || !v.memory.noAddress
}

// place carries out plans for the floating IP until no step is left. It lists no floating IPs while
// their quota is used up.
func (v *reconciliation) place(ctx context.Context, at balancer.Place) error {
	if err := v.choose(ctx, &at); err != nil {
		return err
	}
	v.memory.noAddress, v.memory.placed = false, false
	all, err := v.usable(ctx)
	if errors.Is(err, sdn.ErrNoService) {
		v.memory.noAddress = true
		if v.round.Address.Placed = true; v.klb.Spec.PublicIP != nil {
			v.round.Address.Problem = "the cloud has no routers and so no floating IPs: make the Service internal " +
				"(annotation service.beta.kubernetes.io/openstack-internal-load-balancer: \"true\"), or enable Neutron's router extension"
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing floating IPs: %w", err)
	}
	for range addressRounds {
		a := balancer.NextAddress(v.klb, at, all, ownerOf(v.klb))
		if len(a.Steps) == 0 {
			v.round.Address.Address, v.round.Address.Placed = a, true
			v.memory.noAddress = a.Has == nil && !slices.ContainsFunc(all, func(f sdn.FloatingIP) bool { return f.Owner == ownerOf(v.klb) })
			return nil
		}
		if v.round.Address.Problem = v.memory.attempts.WhyUnfit(a.Steps, v.klb.Generation, v.Now()); v.round.Address.Problem != "" {
			v.round.Address.Refused = true
			return nil
		}
		before, off := v.klb.Status.PublicIP, []balancer.Dissociate(nil)
		for _, s := range a.Steps {
			if err := v.intend(ctx, s, all); err != nil {
				return err
			}
			if all, err = v.move(ctx, s, all); err != nil {
				if refused, ok := s.(balancer.Associate); ok && outcome.Of(outcome.LoadBalancer, err).Lasting {
					return v.restoreFloatingIP(ctx, refused, before, off, err)
				}
				return fmt.Errorf("cannot %s: %w", s, err)
			}
			if d, ok := s.(balancer.Dissociate); ok && d.PortID == at.Port {
				off = append(off, d)
			}
			ctrl.LoggerFrom(ctx).Info("changed floating IP", "step", s.String())
			v.round.moved = append(v.round.moved, s.String())
		}
	}
	return errors.New("cannot place the floating IP: the plan has not ended after several rounds")
}

// unfitRounds is for how many pauses a refused floating IP is not tried again. Each attempt
// takes the serving floating IP away for a moment.
const unfitRounds = 10

// restoreFloatingIP undoes the steps towards a floating IP that the cloud has refused. The
// floating IPs that were taken off are associated again, and the status does not name the
// refused one.
func (v *reconciliation) restoreFloatingIP(ctx context.Context, refused balancer.Associate, before *v1.PublicIPStatus, off []balancer.Dissociate, cause error) error {
	for _, d := range off {
		if _, err := v.move(ctx, balancer.Associate(d), nil); err != nil {
			return fmt.Errorf("cannot restore floating IP %s (%w): %w", d.Address, cause, err)
		}
		v.round.moved = append(v.round.moved, fmt.Sprintf("restored floating IP %s", d.Address))
	}
	if before != nil && before.ID == refused.ID {
		before = nil // from an attempt of the process before
	}
	if err := v.write(ctx, func(s *v1.KuryrLoadBalancerStatus) { s.PublicIP = before }); err != nil {
		return err
	}
	pause := unfitRounds * v.Backoff.Rejected
	advice := "Ask for another address, or connect the subnet of the cluster IPs by a router to its network"
	if sdn.FieldOf(cause) == sdn.FieldPort { // somebody deletes the load balancer, which is known soon
		pause, advice = v.Backoff.Quota, "The load balancer's port is gone; Kuryr reads the load balancer again"
		v.memory.forgetCloud()
	}
	problem := fmt.Sprintf("Neutron refuses floating IP %s for this load balancer: %s. %s. Kuryr tries again every %s", refused.Address, cause, advice, pause)
	v.memory.attempts.Unfit(refused, v.klb.Generation, v.Now(), pause, problem)
	v.round.Address.Problem, v.round.Address.Refused = problem, true
	return nil
}

// usable returns the floating IPs that a KuryrLoadBalancer may have: those of the project in
// the spec. If the load balancer is in another project, the floating IP of the status is added
// from there.
func (v *reconciliation) usable(ctx context.Context) ([]sdn.FloatingIP, error) {
	all, err := v.addresses.get(ctx, v.klb.Spec.ProjectID, v.Cloud.FloatingIPs.ListFloatingIPs)
	if err := v.lacking(err); err != nil {
		return nil, err
	}
	all = slices.Clone(all)
	has, lbs := v.klb.Status.PublicIP, v.klb.Status.LoadBalancers
	if has == nil || len(lbs) == 0 || lbs[0].ProjectID == v.klb.Spec.ProjectID || slices.ContainsFunc(all, func(f sdn.FloatingIP) bool { return f.ID == has.ID }) {
		return all, nil
	}
	others, err := v.addresses.get(ctx, lbs[0].ProjectID, v.Cloud.FloatingIPs.ListFloatingIPs)
	for _, f := range others {
		if f.ID == has.ID {
			all = append(all, f)
		}
	}
	return all, v.lacking(err)
}

// intend writes a step into the status before the step is done. It does so if the load balancer
// gets a floating IP without Kuryr's mark, or its own one loses the mark. If the process is
// stopped in between, the next process can still give the floating IP back.
func (v *reconciliation) intend(ctx context.Context, step balancer.Step, all []sdn.FloatingIP) error {
	var p v1.PublicIPStatus
	switch s := step.(type) {
	case balancer.Associate:
		mine := slices.ContainsFunc(all, func(f sdn.FloatingIP) bool { return f.ID == s.ID && f.Owner == ownerOf(v.klb) })
		if p = (v1.PublicIPStatus{ID: s.ID, IP: s.Address}); mine {
			return nil
		}
	case balancer.DisownFloatingIP:
		p = v1.PublicIPStatus{ID: s.ID, IP: s.Address}
	default:
		return nil
	}
	if prior := v.klb.Status.PublicIP; prior != nil && prior.ID == p.ID || v.klb.Spec.PublicIP == nil || v.leaves() {
		return nil
	}
	return v.write(ctx, func(s *v1.KuryrLoadBalancerStatus) { s.PublicIP = &p })
}

// move carries out one step and returns the floating IPs as they are if it succeeds.
func (v *reconciliation) move(ctx context.Context, step balancer.Step, all []sdn.FloatingIP) ([]sdn.FloatingIP, error) {
	edit := func(id string, change func(*sdn.FloatingIP)) {
		if i := slices.IndexFunc(all, func(f sdn.FloatingIP) bool { return f.ID == id }); i >= 0 {
			change(&all[i])
		}
	}
	err := v.request(step, func() (err error) {
		switch s := step.(type) {
		case balancer.CreateFloatingIP:
			var made sdn.FloatingIP
			made, err = v.Cloud.FloatingIPs.CreateFloatingIP(ctx, ownerOf(v.klb), s.Request)
			all, err = append(all, made), taken(err)
		case balancer.Associate:
			err = v.Cloud.FloatingIPs.Associate(ctx, s.ID, s.PortID)
			edit(s.ID, func(f *sdn.FloatingIP) { f.PortID = s.PortID })
		case balancer.Dissociate:
			err = v.Cloud.FloatingIPs.Dissociate(ctx, s.ID, s.PortID)
			edit(s.ID, func(f *sdn.FloatingIP) { f.PortID = "" })
		case balancer.DisownFloatingIP:
			err = v.Cloud.FloatingIPs.DisownFloatingIP(ctx, s.ID)
			edit(s.ID, func(f *sdn.FloatingIP) { f.Owner = sdn.Owner{} })
		case balancer.DeleteFloatingIP:
			err = v.Cloud.FloatingIPs.DeleteFloatingIP(ctx, s.ID, s.PortID)
			all = slices.DeleteFunc(all, func(f sdn.FloatingIP) bool { return f.ID == s.ID })
		}
		return err
	})
	return all, err
}
