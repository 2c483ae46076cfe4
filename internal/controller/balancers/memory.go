// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

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
	unfit      unfit
	fence      fenceMemory
	public     publicity

	lax time.Time // since when others may come in than are to; zero: they may not

	features *sdn.Features // when the cloud was found to be as wanted; nil: not by this process

	noFailOver bool            // the provider says that it can, and cannot
	inVain     map[string]bool // load balancers that failovers have not got out of ERROR, by ID
	tries      int             // to get something out of ERROR
	tryAt      time.Time
	unfinished int                 // tries, in a row, that a busy load balancer has stopped
	broken     int                 // how many things were in ERROR at the last try
	beaten     int                 // how often in a row a step was refused as its load balancer was busy
	beatenBy   string              // that step
	refusals   int                 // how often in a row something was not supported
	stubborn   map[string]*attempt // steps that the next look did not show

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

// attempt is a step that was carried out without effect, or could not be.
type attempt struct {
	times  int
	next   time.Time
	failed string // why, if it is no more than to be told
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
	for key := range m.stubborn {
		if strings.HasPrefix(key, replacing) {
			delete(m.stubborn, key)
		}
	}
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

// shared lets those who ask at the same time share an answer: one that began when
// they had asked, so that it shows all that was so then. The zero value is ready.
type shared[T any] struct {
	mu      sync.Mutex
	current *question[T] // has begun
	next    *question[T] // has not
}

type question[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// get asks, or waits for who asks next. What it returns is not to be changed.
func (s *shared[T]) get(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	q, before := s.next, s.current
	mine := q == nil
	if mine {
		q = &question[T]{done: make(chan struct{})}
		s.next = q
	}
	s.mu.Unlock()
	if !mine {
		select {
		case <-q.done:
			return q.value, q.err
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
	if before != nil {
		<-before.done
	}
	s.mu.Lock()
	s.current, s.next = q, nil
	s.mu.Unlock()
	defer close(q.done)
	q.value, q.err = ask(ctx)
	return q.value, q.err
}

// sharedByProject shares the lists of floating IPs of each project.
type sharedByProject struct {
	mu  sync.Mutex
	all map[string]*shared[[]sdn.FloatingIP]
}

func (s *sharedByProject) get(ctx context.Context, project string, ask func(context.Context, string) ([]sdn.FloatingIP, error)) ([]sdn.FloatingIP, error) {
	s.mu.Lock()
	if s.all == nil {
		s.all = map[string]*shared[[]sdn.FloatingIP]{}
	}
	if s.all[project] == nil {
		s.all[project] = &shared[[]sdn.FloatingIP]{}
	}
	one := s.all[project]
	s.mu.Unlock()
	return one.get(ctx, func(ctx context.Context) ([]sdn.FloatingIP, error) { return ask(ctx, project) })
}
