// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// await has the object wait for a load balancer that is busy from now on. If the object waits for it
// already, it is busy since then.
func (v *reconciliation) await(id string) { v.awaitSince(id, v.Now()) }

// awaitStill is await for a load balancer that was found busy, maybe for long. The status says since
// when an earlier process has found it busy.
func (v *reconciliation) awaitStill(id string) {
	since := v.Now()
	if w := v.klb.Status.WaitingFor; w != nil && w.LoadBalancerID == id {
		since = w.Since.Time
	}
	v.awaitSince(id, since)
}

func (v *reconciliation) awaitSince(id string, since time.Time) {
	v.round.Waiting.ID, v.round.Waiting.Since = id, v.wait.add(id, v.req, since, v.Now())
}

// awaitChildren has the object wait for load balancers that are ACTIVE before the objects below them.
// Lists of load balancers do not show when these are done, so the trees are read again.
func (v *reconciliation) awaitChildren(ids []string, again time.Duration) {
	if len(ids) == 0 {
		return
	}
	v.round.unfinished, v.round.within, v.round.Waiting.ID, v.round.Waiting.Since = ids, again, ids[0], v.Now()
	v.memory.trees = nil
}

// steps carries out steps. A step over quota is not requested. After a failed step, steps of
// other kinds are still tried, see failures. A step whose load balancer is busy waits, and so
// do all later steps of that load balancer. A provider other than OVN's accepts no change while
// the one before is in progress. A step that is done in part makes no other step
// wait: its rest follows in the next round.
func (v *reconciliation) steps(ctx context.Context, steps []balancer.Step) error {
	busy := map[string]bool{}
	var failed failures
	asked := false // whether a request was sent
	for _, s := range steps {
		if busy[balancer.Target(s)] || failed.skips(s, &v.round) {
			continue
		}
		did := len(v.round.did)
		err := v.step(ctx, s)
		var pending *sdn.PendingError
		switch {
		case err == nil:
			v.round.did = append(v.round.did, s.String())
			if at := balancer.Target(s); at != "" { // else the next step has another target
				busy[at] = !v.round.Features.ChildrenLater
				v.await(at)
			}
			ctrl.LoggerFrom(ctx).Info("changed load balancer", "step", s.String(), "loadBalancer", v.round.Waiting.ID)
			v.memory.attempts.Did(s, v.Now(), v.Backoff.Min, "")
			v.memory.attempts.Removed(s, v.Now(), v.Backoff.Min, "")
			v.memory.attempts.NotBusy()
		case errors.As(err, &pending):
			busy[balancer.Target(s)] = !pending.Part
			v.awaitRefused(ctx, s, pending.Part)
		case errors.Is(err, sdn.ErrNotFound): // somebody has deleted it since it was read
			v.lose(s)
		case v.unmarked(s, err):
		default:
			if isRefusal(err) {
				v.memory.attempts.Removed(s, v.Now(), v.Backoff.Min, err.Error())
			}
			failed.add(s, err, &v.round)
		}
		asked = asked || !errors.Is(err, errTurn) || len(v.round.did) > did
	}
	if asked { // the cloud is read again, to see the result
		v.memory.trees = nil
	}
	return errors.Join(failed.all...)
}

// failures are the steps of a round that could not be carried out. A step that is refused for
// its content, or for a conflict, makes no other step wait. After any other failure, all steps
// of its kind wait. Once the cloud has not answered twice, all but urgent steps wait; after the
// third time these wait, too: each may take a whole request timeout.
type failures struct {
	all   []error
	kinds []string // the kind of steps that waits for each of them; empty: none
	away  int
}

func (f *failures) add(s balancer.Step, err error, o *round) {
	kind := balancer.Kind(s)
	if away(err) {
		f.away++
	} else {
		o.open(s)
	}
	if reason := outcome.Of(outcome.LoadBalancer, err).Reason; reason == v1.ReasonRejected || reason == v1.ReasonNotSupported || reason == v1.ReasonConflict {
		kind = ""
	}
	f.all, f.kinds = append(f.all, err), append(f.kinds, kind)
}

func (f *failures) skips(s balancer.Step, o *round) bool {
	var err error
	if i := slices.Index(f.kinds, balancer.Kind(s)); i >= 0 {
		err = f.all[i]
	}
	if c, is := s.(balancer.ChangeMembers); is && len(c.Remove) > 0 && errors.Is(err, sdn.ErrQuota) {
		err = nil // the removed members make room for as many new ones of this pool
	}
	if err != nil && !away(err) { // it will not be carried out soon
		o.open(s)
	}
	return err != nil || f.away > 2 || f.away > 1 && !balancer.Urgent(s)
}

// awaitRefused has the object wait for a load balancer that has refused a step as busy.
func (v *reconciliation) awaitRefused(ctx context.Context, s balancer.Step, part bool) {
	id := balancer.Target(s)
	// A deletion counts as an attempt: it may end in ERROR, and be needed again.
	if d, deletes := s.(balancer.DeleteLoadBalancer); deletes {
		v.deleted(ctx, d.ID, v.memory.attempts.Did(s, v.Now(), v.Backoff.Min, ""))
	} else if v.round.stopped = true; !part && v.memory.attempts.RefusedAsBusy(s, v.Now()) {
		v.round.Blocked, v.round.again = id, v.Backoff.Quota
		return
	}
	v.await(id)
}

// lose notes that the object of a step was not found.
func (v *reconciliation) lose(s balancer.Step) {
	if !balancer.MayDiffer(s) {
		v.memory.attempts.Did(s, v.Now(), v.Backoff.Min, "")
	}
	v.round.Lost, v.round.again = true, v.Backoff.Min
}

// step sends the requests of one step. Only a change of members may take several.
func (v *reconciliation) step(ctx context.Context, step balancer.Step) (err error) {
	if s, is := step.(balancer.ChangeMembers); is {
		err = v.changeMembers(ctx, s)
	} else {
		err = v.send(ctx, step)
	}
	// A request that creates members with their parents may be refused for a member.
	if refused := sdn.RefusedMembers(err); len(refused) > 0 {
		v.memory.attempts.RefusedMembers(nil, refused, v.Now(), v.Backoff.Min, v.Backoff.Rejected, err.Error())
		v.round.withoutRefused = true
	}
	if err != nil {
		return fmt.Errorf("cannot %s: %w", step, err)
	}
	return nil
}

// send sends one request.
func (v *reconciliation) send(ctx context.Context, step balancer.Step) error {
	cloud, id := v.Cloud.LoadBalancers, balancer.Target(step)
	return v.request(step, func() (err error) {
		switch s := step.(type) {
		case balancer.CreateLoadBalancer:
			err = v.create(ctx, s)
		case balancer.DeleteLoadBalancer:
			v.memory.created[id] = time.Time{} // the status may still say that it is being created
			err = cloud.DeleteLoadBalancer(ctx, id)
		case balancer.MarkLoadBalancer:
			err = cloud.MarkLoadBalancer(ctx, id, ownerOf(v.klb))
		case balancer.FailOver:
			err = cloud.FailOver(ctx, id)
		case balancer.CreateListener:
			_, err = cloud.CreateListener(ctx, id, s.Listener)
		case balancer.UpdateListener:
			err = cloud.UpdateListener(ctx, id, s.ID, s.Listener)
		case balancer.DeleteListener:
			err = cloud.DeleteListener(ctx, id, s.ID)
		case balancer.CreatePool:
			_, err = cloud.CreatePool(ctx, id, s.ListenerID, s.Pool)
		case balancer.UpdatePool:
			err = cloud.UpdatePool(ctx, id, s.ID, s.Pool)
		case balancer.DeletePool:
			err = cloud.DeletePool(ctx, id, s.ID)
		case balancer.RenewMembers:
			err = cloud.ChangeMembers(ctx, id, s.PoolID, s.Members, nil)
		case balancer.ChangeMembers:
			err = cloud.ChangeMembers(ctx, id, s.PoolID, s.Add, s.Remove)
		}
		return err
	})
}

// create creates a load balancer, and waits for it. Whatever the result, except for a full quota, a
// load balancer may exist from now on.
func (v *reconciliation) create(ctx context.Context, s balancer.CreateLoadBalancer) error {
	v.memory.nothingCreated = false
	made, err := v.Cloud.LoadBalancers.CreateLoadBalancer(ctx, ownerOf(v.klb), s.LoadBalancer)
	if err != nil {
		v.memory.statusIncomplete = v.memory.statusIncomplete || !errors.Is(err, sdn.ErrQuota)
		if s.LoadBalancer.VIP.IP == "" {
			return err
		}
		return taken(err)
	}
	v.round.Trees = append(slices.Clone(v.round.Trees), made)
	if made.Provisioning == sdn.ProvisioningCreating {
		v.memory.created[made.ID] = v.Now()
	}
	v.await(made.ID)
	return nil
}

// errTaken says that another user of the cloud has an address. When it becomes free is unknown.
var errTaken = errors.New("another user of the cloud has this address")

func taken(err error) error {
	if errors.Is(err, sdn.ErrConflict) {
		return fmt.Errorf("%w: %w", errTaken, err)
	}
	return err
}

// changeMembers changes the members of a pool. The cloud does all of a request or nothing. The
// removals are done in any case. Of the additions, as many are done as the quota has room for
// and the cloud does not refuse.
func (v *reconciliation) changeMembers(ctx context.Context, s balancer.ChangeMembers) error {
	err := v.send(ctx, s)
	switch {
	case err == nil:
		v.memory.attempts.Accepted(s.Add)
		return nil
	case errors.Is(err, sdn.ErrQuota):
	case len(s.Add) == 0 || !isRefusal(err):
		return err
	case errors.Is(err, sdn.ErrInvalid):
		v.memory.attempts.RefusedMembers(s.Add, sdn.RefusedMembers(err), v.Now(), v.Backoff.Min, v.Backoff.Rejected, err.Error())
		v.round.again = sooner(v.round.again, v.Backoff.Min)
		err = nil // the next plan leaves the refused members out
	}
	return errors.Join(err, v.changeSome(ctx, s, err))
}

// changeSome changes as many members as the cloud accepts, which has refused to change all of them. It
// removes those that are to go. If the quota is the reason, it adds as many as there is room for:
// removed members make room for as many new ones. Without removals it tries half of the additions,
// then half of that. why is reported by the caller.
func (v *reconciliation) changeSome(ctx context.Context, s balancer.ChangeMembers, why error) error {
	var err error
	less, n := s, 0
	if errors.Is(why, sdn.ErrQuota) {
		n = max(len(s.Remove), len(s.Add)/2)
	}
	for {
		if less.Add = s.Add[:min(n, len(s.Add))]; len(less.Add)+len(less.Remove) == 0 {
			return nil
		}
		if err = v.send(ctx, less); n == 0 || !errors.Is(err, sdn.ErrQuota) {
			break
		}
		if n /= 2; len(s.Remove) > n {
			n = 0
		}
	}
	switch {
	case err == nil:
		v.round.did = append(v.round.did, less.String())
		v.await(s.LoadBalancerID)
	case errors.Is(why, sdn.ErrQuota) && errors.Is(err, sdn.ErrQuota):
		return nil
	case why != nil && !errors.Is(why, sdn.ErrQuota) && isRefusal(err): // the removals are refused by themselves, too
		v.memory.attempts.Removed(less, v.Now(), v.Backoff.Min, err.Error())
		return nil
	}
	return err
}
