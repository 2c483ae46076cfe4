// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// memory is what is known of one KuryrLoadBalancer beyond the object. Only
// the worker that has the object uses it.
type memory struct {
	uid     types.UID
	version string // of the last own write
	dropped bool   // it has lost our finalizer
	leaving bool   // its status says that it goes

	untouched bool // nothing has ever been asked of the cloud for it
	doubt     bool // the cloud may have what the status does not name
	check     bool // the cloud is to be looked at although nothing has changed

	trees []sdn.LoadBalancer // what the cloud has
	seen  bool               // and trees are it

	placed     bool             // the floating IP was found to be right
	address    balancer.Address // as it was then
	addressFor addressKnown     // and for what
	suspected  bool             // it may be otherwise than the status says
	lacking    addressKnown     // what there was no room for a floating IP for
	unfit      unfit
	fence      fenceMemory
	public     publicity

	lax time.Time // since when others may come in than are to; zero: they may not

	features *sdn.Features // when the cloud was found to be as wanted; nil: not by this process

	noFailOver bool            // the provider says that it can, and cannot
	inVain     map[string]bool // load balancers that failovers have not got out of ERROR, by ID
	tries      int             // to get something out of ERROR
	tryAt      time.Time
	unfinished int               // tries, in a row, that a busy load balancer has stopped
	broken     int               // how many things were in ERROR at the last try
	beaten     int               // how often in a row a step was refused as its load balancer was busy
	beatenBy   string            // that step
	refusals   int               // how often in a row something was not supported
	stubborn   balancer.Attempts // steps that the next look did not show

	generation int64 // the last that was begun
	begun      time.Time
	born       time.Time // when the first was
	fresh      bool      // its load balancers have not been ACTIVE yet
	synced     bool      // this generation has been in the cloud once
}

// addressKnown is what a floating IP was found right for.
type addressKnown struct {
	port     string
	spec     v1.PublicIPSpec
	withheld bool
}

func (m *memory) forgetCloud() {
	m.forgetTrees()
	m.placed, m.suspected, m.public = false, true, maybeOpen
}

func (m *memory) forgetTrees() { m.trees, m.seen = nil, false }

// closes notes whether others may come in than are to, and returns how much of the
// patience with that is left.
func (m *memory) closes(lax bool, now time.Time, patience time.Duration) time.Duration {
	if !lax {
		m.lax = time.Time{}
	} else if m.lax.IsZero() {
		m.lax = now
	}
	return m.lax.Add(patience).Sub(now)
}

// overdue reports whether others may come in for longer than there is patience for.
func (m *memory) overdue(now time.Time, patience time.Duration) bool {
	return !m.lax.IsZero() && now.Sub(m.lax) >= patience
}

// settled forgets what is of no matter any more once all is as wanted.
func (m *memory) settled() {
	m.tries, m.broken, m.beaten = 0, 0, 0
	m.inVain = nil
	m.stubborn.ForgetReplacing()
}

// failedOver notes which load balancers a whole series of failovers has left in ERROR.
func (m *memory) failedOver(steps []balancer.Step) {
	for _, s := range steps {
		if f, is := s.(balancer.FailOver); is {
			if m.inVain == nil {
				m.inVain = map[string]bool{}
			}
			m.inVain[f.ID] = true
		}
	}
}

// replaceFailovers has load balancers made anew that failovers do not get out of ERROR;
// but for one that is still said to serve, as the cloud may have no room for another.
func (m *memory) replaceFailovers(steps []balancer.Step, trees []sdn.LoadBalancer) {
	for i, s := range steps {
		f, is := s.(balancer.FailOver)
		if is && m.inVain[f.ID] && !slices.ContainsFunc(trees, func(lb sdn.LoadBalancer) bool { return lb.ID == f.ID && lb.Operating == "ONLINE" }) {
			steps[i] = balancer.DeleteLoadBalancer{ID: f.ID, Because: "failovers have not got it out of ERROR"}
		}
	}
}

// beatenAfter is how often in a row a load balancer that is shown to be done may refuse a
// step as busy. Somebody else may be as fast as that; more often it is no state that
// ends, as a pool of LBaaS v2 that somebody's policy uses, and to wait for its end would
// be to ask some times a second for ever.
const beatenAfter = 10

// refusesAgain notes that a step was refused as busy, and reports whether that was so
// often enough. One that gets further each time is another step each time.
func (m *memory) refusesAgain(step string) bool {
	if step != m.beatenBy {
		m.beatenBy, m.beaten = step, 0
	}
	m.beaten++
	return m.beaten > beatenAfter
}

// begin notes when a generation is seen first.
func (m *memory) begin(generation int64, now time.Time) {
	if m.generation == generation {
		return
	}
	m.generation, m.begun, m.synced = generation, now, false
	if m.born.IsZero() {
		m.born = now
	}
}

// memories is the memory of all KuryrLoadBalancers. Its methods are safe
// for concurrent use.
type memories struct {
	mu    sync.Mutex
	all   map[ctrl.Request]*memory
	asked map[ctrl.Request]suspicion
	begun map[ctrl.Request]bool // what was asked for and is not done; nil: nothing
}

// suspicion is what somebody else than the worker has to say.
type suspicion struct{ check, doubt bool }

// of returns what is remembered of an object, with what others have said since.
func (b *memories) of(req ctrl.Request, uid types.UID) *memory {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.all[req]
	if m == nil || m.uid != uid {
		m = &memory{uid: uid}
		if b.all == nil {
			b.all = map[ctrl.Request]*memory{}
		}
		b.all[req] = m
	}
	if s, ok := b.asked[req]; ok {
		delete(b.asked, req)
		if b.begun == nil {
			b.begun = map[ctrl.Request]bool{}
		}
		b.begun[req] = true
		m.check, m.doubt = m.check || s.check, m.doubt || s.doubt
		m.forgetTrees()
		if s.doubt {
			m.forgetCloud()
		}
	}
	return m
}

// suspect has the next round look at the cloud; with doubt it also looks for what
// the status does not name.
func (b *memories) suspect(req ctrl.Request, doubt bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked == nil {
		b.asked = map[ctrl.Request]suspicion{}
	}
	b.asked[req] = suspicion{check: true, doubt: doubt || b.asked[req].doubt}
}

// looking reports whether what somebody else has said has not led to a look yet.
func (b *memories) looking(req ctrl.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, asked := b.asked[req]
	return asked || b.begun[req]
}

// looked notes that a worker is done with an object, for now.
func (b *memories) looked(req ctrl.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.begun, req)
}

func (b *memories) forget(req ctrl.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, req)
	delete(b.asked, req)
	delete(b.begun, req)
}

// features returns what the provider of a KuryrLoadBalancer can do, as far as is known
// and as trees, what it has in the cloud, show.
func (r *Reconciler) features(ctx context.Context, klb *v1.KuryrLoadBalancer, trees []sdn.LoadBalancer) (sdn.Features, error) {
	provider := balancer.Provider(klb, trees, balancer.Named(klb))
	if provider == "" && trees == nil && len(klb.Status.LoadBalancers) > 0 {
		provider = klb.Status.LoadBalancers[0].Provider
	}
	f, err := r.cloud.Features(ctx, provider)
	if err != nil {
		return f, fmt.Errorf("asking what load balancers of provider %q can do: %w", provider, err)
	}
	return balancer.Proven(f, trees), nil
}

// blank reports whether nothing has ever been said of a KuryrLoadBalancer.
func blank(klb *v1.KuryrLoadBalancer) bool {
	s := &klb.Status
	return len(s.LoadBalancers)+len(s.Listeners)+len(s.Pools)+len(s.Members)+len(s.Conditions) == 0 && s.PublicIP == nil
}

func ownerOf(klb *v1.KuryrLoadBalancer) sdn.Owner {
	return sdn.Owner{Kind: sdn.KindLoadBalancer, Namespace: klb.Namespace, Name: klb.Name}
}

// learned reports whether more or less is held to be possible than when the cloud was
// found to be as wanted: then what differs is no one's doing. A process that has just
// started has only the status to tell by.
func learned(klb *v1.KuryrLoadBalancer, m *memory, o *round) bool {
	if m.features != nil {
		return !equality.Semantic.DeepEqual(*m.features, o.features)
	}
	said := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionSupported)
	return o.asked && said != nil && said.Message != supported(o.problems)
}

// checked says that the cloud was found to differ although nobody has changed the
// KuryrLoadBalancer, before anything is done about it.
func (r *Reconciler) checked(ctx context.Context, klb *v1.KuryrLoadBalancer, m *memory, plan *balancer.Plan, o *round) error {
	if !m.check {
		return nil
	}
	m.check = false
	ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.ObservedGeneration != klb.Generation || ready.Reason != v1.ReasonReady || learned(klb, m, o) {
		return nil
	}
	o.checking = true
	var drift []string
	for _, steps := range [][]balancer.Step{plan.Steps, plan.Mend, plan.Last} {
		for _, s := range steps {
			if !m.stubborn.HasFailed(s) { // else it was told
				drift = append(drift, s.String())
			}
		}
	}
	if len(drift) == 0 {
		return nil
	}
	return r.tellDrift(ctx, klb, m, drift)
}
