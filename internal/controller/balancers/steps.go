// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/polling"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// look returns what the cloud has for a KuryrLoadBalancer: as it was seen last, if
// nothing has been asked for since; else those that the status names; and all that
// bear its mark, if the status may not name all.
func (r *Reconciler) look(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory) ([]sdn.LoadBalancer, error) {
	if m.seen && !m.doubt {
		return m.trees, nil
	}
	if m.untouched {
		return nil, nil
	}
	ids := balancer.Named(klb)
	all := m.doubt || !namesAll(klb)
	for {
		if all {
			var err error
			var owned []sdn.LoadBalancerSummary
			if owned, err = r.owned(ctx, klb); err != nil {
				return nil, err
			}
			for _, s := range owned { // one whose tags somebody has taken off is not listed
				if !slices.Contains(ids, s.ID) {
					ids = append(ids, s.ID)
				}
			}
		}
		trees, missing, err := r.read(ctx, klb, ids)
		if err != nil {
			return nil, err
		}
		if missing && !all { // is there another in its place?
			all = true
			continue
		}
		m.trees, m.seen, m.doubt = trees, true, false
		return trees, nil
	}
}

// namesAll reports whether the status names a load balancer for each VIP.
func namesAll(klb *v1.KuryrLoadBalancer) bool {
	for _, vip := range klb.Spec.VIPs {
		if !slices.ContainsFunc(klb.Status.LoadBalancers, func(lb v1.LoadBalancerStatus) bool {
			return lb.ID != "" && lb.IP == vip.IP && lb.SubnetID == vip.SubnetID
		}) {
			return false
		}
	}
	return true
}

// owned returns all load balancers that bear the mark of an object.
func (r *Reconciler) owned(ctx context.Context, klb *v1.KuryrLoadBalancer) ([]sdn.LoadBalancerSummary, error) {
	listed, err := r.lists.Get(ctx, r.cloud.ListLoadBalancers)
	if err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	var owned []sdn.LoadBalancerSummary
	for _, s := range listed {
		if s.Owner == ownerOf(klb) && s.Provisioning != sdn.ProvisioningDeleted {
			owned = append(owned, s)
		}
	}
	return owned, nil
}

// read returns the load balancers of an object that there are of these. One that is
// another's is none of its own, whatever a status says.
func (r *Reconciler) read(ctx context.Context, klb *v1.KuryrLoadBalancer, ids []string) (trees []sdn.LoadBalancer, missing bool, err error) {
	for _, id := range ids {
		tree, err := r.cloud.LoadBalancer(ctx, id)
		if errors.Is(err, sdn.ErrNotFound) || err == nil && tree.Owner != (sdn.Owner{}) && tree.Owner != ownerOf(klb) {
			missing = true
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("reading load balancer %s: %w", id, err)
		}
		trees = append(trees, tree)
	}
	return trees, missing, nil
}

// await has the object wait for a load balancer.
func (r *Reconciler) await(id string, klb *v1.KuryrLoadBalancer, o *round) {
	r.wait.Add(id, kube.RequestOf(klb))
	o.waiting, o.since = id, r.now()
}

// awaitAll has the object wait for those that were found busy, as long as it has
// already.
func (r *Reconciler) awaitAll(ids []string, klb *v1.KuryrLoadBalancer, m *memory, o *round) {
	for _, id := range ids {
		if known, since := r.wait.WaitsFor(kube.RequestOf(klb)); known == id {
			o.waiting, o.since = id, since
		} else {
			r.await(id, klb, o)
		}
		m.forgetTrees()
	}
}

// steps carries out steps. What is over quota is not asked for. One that fails keeps none of another kind from being tried, see
// failures; one that finds its load balancer busy waits, with all others of it, and
// so do they where a change of one's own is known to keep it busy. One that is done in
// part keeps none of them waiting: it goes on with the next round.
func (r *Reconciler) steps(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, steps []balancer.Step, o *round) error {
	known := m.seen || m.untouched
	if len(steps) > 0 { // what comes of it is to be seen
		m.forgetTrees()
	}
	busy, changed := map[string]bool{}, map[string]bool{}
	var failed failures
	asked := false // for what may have had an effect
	for _, s := range steps {
		if busy[balancer.Target(s)] || failed.skips(s, o) {
			continue
		}
		did := len(o.did)
		id, err := r.step(ctx, klb, m, s, o)
		var pending *sdn.PendingError
		switch {
		case err == nil:
			o.did = append(o.did, s.String())
			if at := balancer.Target(s); at != "" { // else the next step is about another
				changed[at], busy[at] = true, r.busy.Is(o.provider(at), r.now())
			}
			ctrl.LoggerFrom(ctx).Info("changed load balancer", "step", s.String(), "loadBalancer", id)
			m.stubborn.Did(balancer.Fingerprint(s), r.now(), r.backoff.Min)
			m.beatenBy = ""
			if id != "" {
				r.await(id, klb, o)
			}
		case errors.As(err, &pending):
			busy[balancer.Target(s)] = r.pending(s, id, pending.Part, changed, o)
			r.awaitRefused(ctx, klb, m, s, pending.Part, o)
		case errors.Is(err, sdn.ErrNotFound): // somebody has taken it away since the look
			r.lose(m, s, o)
		case r.unmarked(m, s, err, o):
		default:
			failed.add(s, err, o)
		}
		asked = asked || mayHave(s, err) || len(o.did) > did
	}
	if known && !asked { // all is as it was seen
		m.trees, m.seen = o.trees, o.seen
	}
	return errors.Join(failed.all...)
}

// mayHave reports whether a step may have had an effect. One that is over quota has none,
// if it was not sent, or is one request: of a listener or a pool there may be a part.
func mayHave(s balancer.Step, err error) bool {
	if !errors.Is(err, sdn.ErrQuota) {
		return true
	}
	var queued *polling.QueuedError
	if errors.As(err, &queued) && !queued.Sent {
		return false
	}
	_, whole := s.(balancer.CreateLoadBalancer)
	return !whole
}

// failures are the steps of a round that could not be carried out. One that is refused for
// what it says, or as somebody else has what it asks for, keeps no other from being
// tried. Else those of its kind have to wait; and where the cloud has not answered twice,
// all but what is urgent, and then that, too: each may take as long as a request may.
type failures struct {
	all   []error
	kinds map[string]error
	away  int
}

func (f *failures) add(s balancer.Step, err error, o *round) {
	f.all = append(f.all, err)
	if away(err) {
		f.away++
	} else {
		o.open(s)
	}
	if reason := outcome.BalancerReason(err); reason == v1.ReasonRejected || reason == v1.ReasonNotSupported || reason == v1.ReasonConflict {
		return
	}
	if f.kinds == nil {
		f.kinds = map[string]error{}
	}
	f.kinds[balancer.Kind(s)] = err
}

func (f *failures) skips(s balancer.Step, o *round) bool {
	err := f.kinds[balancer.Kind(s)]
	if c, is := s.(balancer.ChangeMembers); is && len(c.Remove) > 0 && errors.Is(err, sdn.ErrQuota) {
		err = nil // what is to go makes room for as many others of this pool
	}
	if err != nil && !away(err) { // it will not be carried out soon
		o.open(s)
	}
	return err != nil || f.away > 2 || f.away > 1 && !balancer.Urgent(s)
}

// awaitRefused has the object wait for a load balancer that has refused a step as busy.
func (r *Reconciler) awaitRefused(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, s balancer.Step, part bool, o *round) {
	id := balancer.Target(s)
	if d, deletes := s.(balancer.DeleteLoadBalancer); deletes { // it may end in ERROR, and be wanted again
		r.deleted(ctx, m, balancer.Fingerprint(s), d.ID)
	} else if o.stopped = true; !part && m.refusesAgain(balancer.Fingerprint(s)) {
		o.beaten, o.again = id, r.backoff.Quota
		return
	}
	r.await(id, klb, o)
}

// lose notes that what a step is about is not there.
func (r *Reconciler) lose(m *memory, s balancer.Step, o *round) {
	if !balancer.Leaves(s) {
		m.stubborn.Did(balancer.Fingerprint(s), r.now(), r.backoff.Min)
	}
	o.lost, o.again = true, r.backoff.Min
}

// pending notes that a load balancer is at work, and reports whether the other steps of
// it are to wait: not for one that is done in part, whose rest has its turn after them.
func (r *Reconciler) pending(s balancer.Step, id string, part bool, changed map[string]bool, o *round) (busy bool) {
	at := balancer.Target(s)
	if part {
		changed[at] = true
		return r.busy.Is(o.provider(id), r.now())
	}
	if changed[at] {
		r.busy.Seen(o.provider(id), r.now())
	}
	return true
}

// step carries out one step and returns the load balancer that is busy with it.
func (r *Reconciler) step(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, step balancer.Step, o *round) (id string, err error) {
	id = balancer.Target(step)
	switch s := step.(type) {
	case balancer.CreateLoadBalancer:
		err = r.within(klb, s, func() (err error) {
			id, err = r.create(ctx, klb, m, s, o)
			return err
		})
	case balancer.DeleteLoadBalancer:
		err = r.cloud.DeleteLoadBalancer(ctx, id)
	case balancer.MarkLoadBalancer:
		err = r.cloud.MarkLoadBalancer(ctx, id, ownerOf(klb))
	case balancer.FailOver:
		err = r.cloud.FailOver(ctx, id)
		if errors.Is(err, sdn.ErrUnsupported) {
			m.noFailOver = true
		}
	case balancer.CreateListener:
		err = r.within(klb, s, func() error {
			_, err := r.cloud.CreateListener(ctx, id, s.Listener)
			return err
		})
	case balancer.UpdateListener:
		err = r.cloud.UpdateListener(ctx, s.ID, s.Listener)
	case balancer.DeleteListener:
		err = r.cloud.DeleteListener(ctx, id, s.ID)
	case balancer.CreatePool:
		err = r.within(klb, s, func() error {
			_, err := r.cloud.CreatePool(ctx, s.ListenerID, s.Pool)
			return err
		})
	case balancer.UpdatePool:
		err = r.cloud.UpdatePool(ctx, s.ID, s.Pool)
	case balancer.ChangeMembers:
		err = r.changeMembers(ctx, klb, s, o)
	}
	if err != nil {
		return id, fmt.Errorf("to %s: %w", step, err)
	}
	return id, nil
}

// changeMembers changes those of a pool. Where there is no room for all, those that are to
// go make room for as many others: the cloud does all of a request, or nothing.
func (r *Reconciler) changeMembers(ctx context.Context, klb *v1.KuryrLoadBalancer, s balancer.ChangeMembers, o *round) error {
	err := r.within(klb, s, func() error { return r.cloud.ChangeMembers(ctx, s.PoolID, s.Add, s.Remove) })
	if !errors.Is(err, sdn.ErrQuota) || len(s.Remove) == 0 {
		return err
	}
	less := s
	less.Add = s.Add[:min(len(s.Add), len(s.Remove))]
	if err := r.cloud.ChangeMembers(ctx, s.PoolID, less.Add, less.Remove); err != nil {
		return err
	}
	o.did = append(o.did, less.String())
	r.await(s.LoadBalancerID, klb, o)
	return err
}

// create makes a load balancer. Whatever comes of it, but for a full quota, there may be
// one from now on.
func (r *Reconciler) create(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, s balancer.CreateLoadBalancer, o *round) (string, error) {
	m.untouched = false
	made, err := r.cloud.CreateLoadBalancer(ctx, ownerOf(klb), s.LoadBalancer)
	if err != nil {
		m.doubt = m.doubt || !errors.Is(err, sdn.ErrQuota)
		return "", taken(err)
	}
	o.trees = append(slices.Clone(o.trees), made)
	return made.ID, nil
}

// errTaken says that somebody else has an address: for how long, nobody knows.
var errTaken = errors.New("the address is in use")

func taken(err error) error {
	if errors.Is(err, sdn.ErrConflict) {
		return fmt.Errorf("%w: %w", errTaken, err)
	}
	return err
}

// mendTries is how often something is tried to get out of ERROR, in a row.
const mendTries = 3

// mendRest is for how many first pauses it is left alone after that.
const mendRest = 30

// heal carries out steps that get something out of ERROR: a few times, with longer
// and longer pauses, and then no more for a good while, whatever else changes:
// endpoints come and go all the time. A try after which less is broken counts for
// nothing: of several things a busy load balancer lets one be mended at a time. Nor
// does one that was stopped half way, as an amphora is busy as soon as the first part
// is done: it goes on when that is over.
func (r *Reconciler) heal(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, steps []balancer.Step, o *round) error {
	now := r.now()
	m.forgetTrees() // it may have got out of there by itself
	if len(o.broken) < m.broken {
		m.tries, m.tryAt = 0, now
	}
	m.broken = len(o.broken)
	again := m.tryAt.Add(mendRest * r.mend)
	if !now.Before(again) {
		m.tries = 0
	}
	switch {
	case m.tries >= mendTries:
		o.spent, o.again, o.since = true, again.Sub(now), again
		m.failedOver(steps)
		return nil
	case now.Before(m.tryAt):
		o.again = m.tryAt.Sub(now)
		return nil
	}
	if m.unfinished == 0 {
		r.tellBroken(klb, o.broken, m.tries+1)
		balancersMended.Inc()
	}
	did := len(o.did)
	o.stopped = false
	err := r.steps(ctx, klb, m, steps, o)
	if err == nil && o.stopped && len(o.did) == did && m.unfinished < mendTries {
		m.unfinished++
		return nil
	}
	m.unfinished = 0
	m.tryAt = now.Add(r.mend << m.tries)
	m.tries++
	return err
}

// open notes a step that was to keep somebody out, and does not.
func (o *round) open(s balancer.Step) {
	if balancer.Narrows(s) {
		o.withheld, o.located = true, false
	}
}
