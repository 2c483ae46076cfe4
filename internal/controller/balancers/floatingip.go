// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// addressRounds is how many plans a floating IP takes at most: one is made, the old
// one is taken away, the new one put there, the old one deleted.
const addressRounds = 5

// locate brings the floating IP in line. It waits for the port of the VIP, not for
// the load balancer to be ready; but one whose clients are to be kept out gets none
// before they are. As long as nothing about it changes the cloud is not asked.
func (r *Reconciler) locate(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, want []sdn.LoadBalancer, o *round) error {
	at := placeOf(want, klb, o)
	known := addressKnown{port: at.Port, withheld: at.Withheld}
	if klb.Spec.PublicIP != nil {
		known.spec = *klb.Spec.PublicIP
	}
	wanted := klb.Spec.PublicIP != nil
	switch {
	case r.floating == nil:
		if o.located = true; wanted {
			o.address.Problem = "Kuryr has no floating IPs to give here"
		}
		return nil
	case wanted && !at.Withheld && (at.Port == "" || o.closing && klb.Status.PublicIP == nil):
		return nil
	case m.placed && m.addressFor == known:
		o.address, o.located = m.address, true
		return nil
	case r.stands(klb, m, known):
		o.address.Has, o.located = klb.Status.PublicIP, true
		r.held.Note(klb, klb.Status.PublicIP)
		return nil
	}
	if may, err := r.mayHaveAddress(ctx, klb, m); !may || err != nil {
		o.located = err == nil
		return err
	}
	if err := r.choosePlace(ctx, klb, m, at, known, o); err != nil {
		return err
	}
	if at.Withheld && len(o.moved) > 0 {
		r.event(klb, v1.ReasonFloatingIPWithheld, "WithholdFloatingIP",
			"The source ranges are not kept, so that anybody could come in: "+strings.Join(o.moved, "; "))
	}
	m.placed, m.address, m.addressFor = o.address.Problem == "", o.address, known
	if m.placed && !at.Withheld {
		r.held.Note(klb, o.address.Has)
	}
	return nil
}

// choosePlace has the floating IP where it is to be. While there is no room for one, what
// there is need not be looked at.
func (r *Reconciler) choosePlace(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, at balancer.Place, known addressKnown, o *round) (err error) {
	if m.lacking == known {
		if err := r.quotas.Waits(addressQuota(klb), kube.RequestOf(klb)); err != nil {
			return fmt.Errorf("to create a floating IP: %w", err)
		}
	}
	if klb.Spec.PublicIP != nil && klb.Spec.PublicIP.SubnetID != "" {
		at.Subnet = r.prefixOf(ctx, klb.Spec.PublicIP.SubnetID)
	}
	at.Held = klb.Spec.PublicIP != nil && klb.Spec.PublicIP.Address != "" && r.held.Has(klb, klb.Spec.PublicIP.Address)
	if at.Before, err = r.before(ctx, klb); err != nil {
		return err
	}
	m.lacking = addressKnown{}
	if err = r.place(ctx, klb, m, at, o); errors.Is(err, sdn.ErrQuota) {
		m.lacking = known
	}
	return err
}

// placeOf says where the floating IP is to be, and where it may be taken from.
func placeOf(want []sdn.LoadBalancer, klb *v1.KuryrLoadBalancer, o *round) balancer.Place {
	at := balancer.Place{Own: portsOf(klb), Withheld: o.withheld}
	for i := range o.trees {
		at.Own = append(at.Own, o.trees[i].VIPPortID)
	}
	if len(want) == 0 {
		return at
	}
	if lb := balancer.Serving(want[0].VIP, o.trees, balancer.Named(klb)); lb != nil {
		at.Port, at.ProjectID = lb.VIPPortID, lb.ProjectID
	}
	return at
}

// portsOf returns the ports of the VIPs that the status names.
func portsOf(klb *v1.KuryrLoadBalancer) (ports []string) {
	for _, lb := range klb.Status.LoadBalancers {
		ports = append(ports, lb.PortID)
	}
	return ports
}

// stands reports whether the floating IP is as a status says that nobody doubts:
// the inventory compares it with the cloud all the time, with one list for all.
func (r *Reconciler) stands(klb *v1.KuryrLoadBalancer, m *memory, known addressKnown) bool {
	ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
	return !m.suspected && balancer.IsReady(klb) && ready.Message == readyMessage && !known.withheld && klb.Spec.PublicIP != nil &&
		klb.Status.PublicIP != nil && len(klb.Status.LoadBalancers) > 0 && klb.Status.LoadBalancers[0].PortID == known.port
}

// prefixOf returns what a subnet holds; zero if that is not to be known.
func (r *Reconciler) prefixOf(ctx context.Context, id string) netip.Prefix {
	if r.subnets == nil {
		return netip.Prefix{}
	}
	s, err := r.subnets.Subnet(ctx, id)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("cannot tell whether a floating IP is in its subnet", "subnet", id, "error", err.Error())
		return netip.Prefix{}
	}
	p, _ := netip.ParsePrefix(s.CIDR) // zero if it is none
	return p
}

// Whether a KuryrLoadBalancer that wants no floating IP may have one.
type publicity int

const (
	unknown   publicity = iota // the process before may have left one
	private                    // it has none
	maybeOpen                  // it may have one, or one that is reserved
)

// mayHaveAddress reports whether there is a floating IP, or is to be. A process that
// was stopped may have made one without a word about it: that is asked once, for all
// KuryrLoadBalancers together.
func (r *Reconciler) mayHaveAddress(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory) (bool, error) {
	if r.floating == nil {
		return false, nil
	}
	if klb.Spec.PublicIP != nil || klb.Status.PublicIP != nil || m.public == maybeOpen {
		return true, nil
	}
	if m.public == unknown {
		left, err := r.left.of(ctx, ownerOf(klb), func(ctx context.Context) ([]sdn.FloatingIP, error) {
			return r.addresses.Get(ctx, klb.Spec.ProjectID, r.floating.ListFloatingIPs)
		})
		if err != nil {
			return false, fmt.Errorf("listing floating IPs: %w", err)
		}
		if m.public = private; left {
			m.public = maybeOpen
		}
	}
	return m.public == maybeOpen, nil
}

// leftovers are the floating IPs of the processes before. Its methods are safe for
// concurrent use; the zero value is ready.
type leftovers struct {
	mu     sync.Mutex
	owners map[sdn.Owner]bool // nil: nobody has asked yet
}

// of reports whether an owner had a floating IP when this process asked first. Later
// ones are this process's own, or are found by the inventory. A list of any project has
// all that bear our mark, and of lists at the same time any will do: none waits locked.
func (l *leftovers) of(ctx context.Context, owner sdn.Owner, list func(context.Context) ([]sdn.FloatingIP, error)) (bool, error) {
	l.mu.Lock()
	owners := l.owners
	l.mu.Unlock()
	if owners == nil {
		all, err := list(ctx)
		if err != nil && !errors.Is(err, sdn.ErrNoService) {
			return false, err
		}
		owners = map[sdn.Owner]bool{}
		for i := range all {
			owners[all[i].Owner] = true
		}
		l.mu.Lock()
		l.owners = owners
		l.mu.Unlock()
	}
	return owners[owner], nil
}

// place carries out plans for the floating IP until there is nothing to do.
func (r *Reconciler) place(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, at balancer.Place, o *round) error {
	m.public, m.placed = maybeOpen, false
	all, err := r.usable(ctx, klb)
	if errors.Is(err, sdn.ErrNoService) {
		if o.located = true; klb.Spec.PublicIP != nil {
			o.address.Problem = "the cloud has no routers, and so no floating IPs: make the Service an internal one " +
				"(annotation service.beta.kubernetes.io/openstack-internal-load-balancer: \"true\"), or have the cloud's routers served"
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing floating IPs: %w", err)
	}
	for range addressRounds {
		a := balancer.NextAddress(klb, at, all, ownerOf(klb))
		if len(a.Steps) == 0 {
			o.address, o.located, m.suspected = a, true, false
			if a.Has == nil && !slices.ContainsFunc(all, func(f sdn.FloatingIP) bool { return f.Owner == ownerOf(klb) }) {
				m.public = private
			}
			return nil
		}
		if o.address.Problem = m.unfit.among(a.Steps, klb, r.now()); o.address.Problem != "" {
			o.noWay = true
			return nil
		}
		before, off := klb.Status.PublicIP, []balancer.Dissociate(nil)
		for _, s := range a.Steps {
			if err := r.intend(ctx, klb, m, s, all); err != nil {
				return err
			}
			if all, err = r.move(ctx, klb, s, all); err != nil {
				if refused, ok := s.(balancer.Associate); ok && neverFits(err) {
					return r.putBack(ctx, klb, m, o, refused, before, off, err)
				}
				return fmt.Errorf("to %s: %w", s, err)
			}
			if d, ok := s.(balancer.Dissociate); ok && d.PortID == at.Port {
				off = append(off, d)
			}
			ctrl.LoggerFrom(ctx).Info("changed floating IP", "step", s.String())
			o.moved = append(o.moved, s.String())
		}
	}
	return errors.New("placing a floating IP: the plan does not come to an end")
}

// unfit is a floating IP that the cloud does not put before a load balancer: no router
// leads there from its network, say.
type unfit struct {
	id         string
	generation int64 // for which it was asked for
	until      time.Time
	problem    string
}

// unfitRounds is for how many pauses of who is rejected it is not tried again: to try
// it takes away what serves instead of it.
const unfitRounds = 10

// neverFits reports whether the cloud would say the same if it were asked again. That
// somebody else has it shows in the next list.
func neverFits(err error) bool {
	return errors.Is(err, sdn.ErrInvalid) || errors.Is(err, sdn.ErrForbidden) || errors.Is(err, sdn.ErrUnsupported)
}

// among returns why steps are not to be taken, empty if they may.
func (u *unfit) among(steps []balancer.Step, klb *v1.KuryrLoadBalancer, now time.Time) string {
	if u.generation != klb.Generation || !now.Before(u.until) {
		return ""
	}
	for _, s := range steps {
		if a, ok := s.(balancer.Associate); ok && a.ID == u.id {
			return u.problem
		}
	}
	return ""
}

// putBack has things as they were before a floating IP was refused: those that made
// room for it are where they were, and the status does not name it.
func (r *Reconciler) putBack(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, o *round, refused balancer.Associate,
	before *v1.PublicIPStatus, off []balancer.Dissociate, cause error,
) error {
	for _, d := range off {
		if err := r.floating.Associate(ctx, d.ID, d.PortID); err != nil {
			return fmt.Errorf("putting floating IP %s back (%w): %w", d.Address, cause, err)
		}
		o.moved = append(o.moved, fmt.Sprintf("put floating IP %s back", d.Address))
	}
	if before != nil && before.ID == refused.ID {
		before = nil // from a try of the process before
	}
	s := *klb.Status.DeepCopy()
	s.PublicIP = before
	if err := r.write(ctx, klb, m, &s); err != nil {
		return err
	}
	m.unfit = unfit{
		id: refused.ID, generation: klb.Generation, until: r.now().Add(unfitRounds * r.backoff.Rejected),
		problem: fmt.Sprintf("floating IP %s cannot be had here: %s. Ask for another address, or have a router lead from the subnet of the cluster IPs "+
			"to its network; Kuryr tries again every %s", refused.Address, cause, unfitRounds*r.backoff.Rejected),
	}
	o.address.Problem, o.noWay = m.unfit.problem, true
	return nil
}

// usable returns the floating IPs that a KuryrLoadBalancer may have: those of the
// project that is wanted, and that of its load balancer, if that is another and the
// one of the status is not among the first.
func (r *Reconciler) usable(ctx context.Context, klb *v1.KuryrLoadBalancer) ([]sdn.FloatingIP, error) {
	all, err := r.addresses.Get(ctx, klb.Spec.ProjectID, r.floating.ListFloatingIPs)
	if err != nil {
		return nil, err
	}
	all = slices.Clone(all)
	has, lbs := klb.Status.PublicIP, klb.Status.LoadBalancers
	if has == nil || len(lbs) == 0 || lbs[0].ProjectID == klb.Spec.ProjectID || slices.ContainsFunc(all, func(f sdn.FloatingIP) bool { return f.ID == has.ID }) {
		return all, nil
	}
	others, err := r.addresses.Get(ctx, lbs[0].ProjectID, r.floating.ListFloatingIPs)
	for _, f := range others {
		if f.ID == has.ID {
			all = append(all, f)
		}
	}
	return all, err
}

// intend writes into the status that the load balancer gets a floating IP that bears
// no mark of it, or that its own one loses it, before it does: else a process that is
// stopped in between would leave one that nobody knows to be given back.
func (r *Reconciler) intend(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, step balancer.Step, all []sdn.FloatingIP) error {
	var p v1.PublicIPStatus
	switch s := step.(type) {
	case balancer.Associate:
		mine := slices.ContainsFunc(all, func(f sdn.FloatingIP) bool { return f.ID == s.ID && f.Owner == ownerOf(klb) })
		if p = (v1.PublicIPStatus{ID: s.ID, IP: s.Address}); mine {
			return nil
		}
	case balancer.DisownFloatingIP:
		p = v1.PublicIPStatus{ID: s.ID, IP: s.Address}
	default:
		return nil
	}
	if prior := klb.Status.PublicIP; prior != nil && prior.ID == p.ID || klb.Spec.PublicIP == nil || !klb.DeletionTimestamp.IsZero() {
		return nil
	}
	s := *klb.Status.DeepCopy()
	s.PublicIP = &p
	return r.write(ctx, klb, m, &s)
}

// move carries out one step and returns the floating IPs as they are then.
func (r *Reconciler) move(ctx context.Context, klb *v1.KuryrLoadBalancer, step balancer.Step, all []sdn.FloatingIP) ([]sdn.FloatingIP, error) {
	is := func(id string) func(sdn.FloatingIP) bool { return func(f sdn.FloatingIP) bool { return f.ID == id } }
	switch s := step.(type) {
	case balancer.CreateFloatingIP:
		err := r.within(klb, s, func() error {
			made, err := r.floating.CreateFloatingIP(ctx, ownerOf(klb), s.Request)
			if err == nil {
				all = append(all, made)
			}
			return taken(err)
		})
		return all, err
	case balancer.Associate:
		if err := r.floating.Associate(ctx, s.ID, s.PortID); err != nil {
			return all, err
		}
		if i := slices.IndexFunc(all, is(s.ID)); i >= 0 {
			all[i].PortID = s.PortID
		}
	case balancer.Dissociate:
		if err := r.floating.Dissociate(ctx, s.ID, s.PortID); err != nil {
			return all, err
		}
		if i := slices.IndexFunc(all, is(s.ID)); i >= 0 {
			all[i].PortID = ""
		}
	case balancer.DisownFloatingIP:
		if err := r.floating.DisownFloatingIP(ctx, s.ID); err != nil {
			return all, err
		}
		if i := slices.IndexFunc(all, is(s.ID)); i >= 0 {
			all[i].Owner = sdn.Owner{}
		}
	case balancer.DeleteFloatingIP:
		if err := r.floating.DeleteFloatingIP(ctx, s.ID, s.PortID); err != nil {
			return all, err
		}
		all = slices.DeleteFunc(all, is(s.ID))
	}
	return all, nil
}
