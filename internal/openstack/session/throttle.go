// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

const (
	// Congestion is answered once in this time: the answers to all requests
	// that were on their way say the same thing.
	congestionWindow = time.Second
	// From the floor back to the ceiling takes this long.
	recoveryTime = time.Minute
	// The floor is this part of the ceiling.
	floorPart = 50
	// After so many requests without an answer, one after the other, the service is away.
	awayAfter = 5
	// One request is sent in this time to a service that is away.
	probeGap = 2 * time.Second
	// Who is refused while a service is away comes back after a quarter of the time that it has
	// been away for, up to this.
	latestReturn = 30 * time.Second
)

// throttle is the one place that decides whether a request may be sent to a service. It is closed
// while the service is well: only the number of concurrent requests and of requests a second is
// limited. It is slow when the service is overloaded or slow: it halves the rate, and raises it
// step by step while the service is well (additive increase, multiplicative decrease, as TCP does).
// It is open when the service answers nothing, or asks to be left alone: requests fail at once, but
// for one probe every probeGap.
//
// Not all requests may use all places. With Neutron, requests that are not for new ports use half
// of the places at most: new pods do not wait for ended pods. With Octavia a quarter is reserved
// for reading, and naturally slow requests, such as a pool with many members, use half at most: a
// large Service delays neither small ones nor reads.
//
// The process may have a share of all this only: see setShare.
type throttle struct {
	slots    *places
	others   *places // of slots, the places for requests that are not prompt
	long     *places // of others, the places for slow requests
	tokens   *rate.Limiter
	most     float64       // the ceiling of a process without others
	patience time.Duration // how long to wait for leave
	slow     time.Duration // an answer later than this is a sign of overload
	service  string
	gauges   gauges

	mu        sync.Mutex
	ceiling   float64
	congested time.Time // last time the rate was halved
	raised    time.Time // up to when the increase has been given
	pause     time.Time // the cloud asked to be left alone until then
	failed    int       // requests without an answer since the last one that was answered
	since     time.Time // when the first of them failed
	open      bool      // the service is away
	probe     time.Time // when the next probe may be sent
}

// notSent is in place of a status, if leave was not used: nothing is learnt from it.
const notSent = -1

// pace is which places a request may take.
type pace int

const (
	prompt pace = iota // any place
	other
	long
)

// places is how many requests may be sent at once. The number may be lowered meanwhile, and raised again
// to what it was at first.
type places struct {
	taken chan struct{} // by requests, or held back

	mu     sync.Mutex
	held   int // are held back
	toHold int // are to be held back, as soon as requests leave them
}

func newPlaces(n int) *places { return &places{taken: make(chan struct{}, n)} }

// resize sets the number of places.
func (p *places) resize(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.toHold = cap(p.taken) - n; p.held > p.toHold; p.held-- {
		<-p.taken
	}
	for p.held < p.toHold {
		select {
		case p.taken <- struct{}{}:
			p.held++
		default:
			return // all are taken: leave holds them back
		}
	}
}

// leave gives back a place.
func (p *places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held < p.toHold {
		p.held++
		return
	}
	<-p.taken
}

// newThrottle returns a closed throttle.
func newThrottle(service string, c Config) *throttle {
	perSecond := c.RequestsPerSecond
	slots, others, long := sizes(service, c.MaxConcurrent)
	l := &throttle{
		slots:    newPlaces(slots),
		others:   newPlaces(others),
		long:     newPlaces(long),
		tokens:   rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond))),
		most:     perSecond,
		ceiling:  perSecond,
		service:  service,
		gauges:   newGauges(c.Metrics, service),
		patience: c.RequestTimeout,
		slow:     c.RequestTimeout / 2,
	}
	l.gauges.rate.Set(perSecond)
	return l
}

// sizes returns how many of concurrent places requests of each pace may take.
func sizes(service string, concurrent int) (slots, others, long int) {
	others = concurrent / 2
	if service == Octavia {
		others = min(concurrent-1, concurrent*3/4)
	}
	return concurrent, max(1, others), max(1, concurrent/2)
}

// setShare limits the process to a part of places, rate and burst, because other processes send
// requests, too. Requests that are on their way keep their places. The rate keeps its proportion to
// the ceiling. A process without a share may still send a few requests.
func (l *throttle) setShare(share float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.ceiling
	l.ceiling = l.most * min(1, max(share, 1./floorPart))
	limit := min(l.ceiling, float64(l.tokens.Limit())*l.ceiling/before)
	l.tokens.SetLimit(rate.Limit(limit))
	l.tokens.SetBurst(max(1, int(l.ceiling)))
	l.gauges.rate.Set(limit)
	slots, others, long := sizes(l.service, min(cap(l.slots.taken), max(1, int(share*float64(cap(l.slots.taken))))))
	l.slots.resize(slots)
	l.others.resize(others)
	l.long.resize(long)
}

// acquire waits for leave to send one request and returns what gives it back, with
// the status of the answer (0: none; notSent: it was not sent). It fails rather than wait longer than a request
// may take, and at once while the cloud wants to be left alone. The duration of a change of load
// balancers depends on its provider and size: of Octavia's, only slow reads show an overload.
func (l *throttle) acquire(ctx context.Context, p pace) (release func(status int, retryAfter time.Duration), err error) {
	if err := ctx.Err(); err != nil {
		return nil, Unanswered(ctx, err)
	}
	if err := l.refuses(time.Now()); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	leave, err := l.enter(waiting, p)
	if err != nil {
		return nil, l.tired(ctx, fmt.Sprintf("the limit of concurrent requests is reached, and the turn of this one has not come within %s. The cloud is slower than the requests that wait for it", l.patience))
	}
	if err := l.tokens.Wait(waiting); err != nil { // at once, if its turn would come too late
		leave()
		return nil, l.tired(ctx, fmt.Sprintf("the rate limit would delay this request by more than %s", l.patience))
	}
	sent := time.Now()
	return func(status int, after time.Duration) {
		leave()
		if status == notSent {
			return
		}
		took := time.Since(sent)
		if l.service == Octavia && p != prompt {
			took = 0
		}
		l.observe(status, took, after)
	}, nil
}

// refuses returns why no request may be sent now; nil if one may be. Of a service that is away, one
// caller at a time gets leave, for the probe.
func (l *throttle) refuses(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch pause := l.pause.Sub(now); {
	case pause > 0:
		return &sdn.BusyError{After: pause, Err: errors.New("the cloud asked Kuryr to send no requests for a while")}
	case !l.open:
		return nil
	case !now.Before(l.probe):
		l.probe = now.Add(probeGap)
		return nil
	}
	after := min(latestReturn, max(probeGap, now.Sub(l.since)/4))
	return &sdn.BusyError{After: after/2 + rand.N(after), Err: fmt.Errorf("%s has not answered since %s; Kuryr sends one probe every %s",
		l.service, l.since.UTC().Format(time.RFC3339), probeGap)}
}

// enter takes a place and returns how to leave it.
func (l *throttle) enter(ctx context.Context, p pace) (leave func(), err error) {
	all := []*places{l.slots, l.others, l.long}[:p+1]
	leave = func() {}
	for _, place := range slices.Backward(all) {
		select {
		case place.taken <- struct{}{}:
			before := leave
			leave = func() { place.leave(); before() }
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}

// tired explains why the wait for leave is over. The words are the same each time: they
// end in conditions.
func (l *throttle) tired(ctx context.Context, why string) error {
	if ctx.Err() != nil {
		return Unanswered(ctx, ctx.Err())
	}
	return &sdn.BusyError{After: l.patience / 2, Err: errors.New(why)}
}

// observe learns from an answer.
func (l *throttle) observe(status int, took, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if after > 0 && now.Add(after).After(l.pause) {
		l.pause = now.Add(after)
	}
	l.count(status, now)
	limit := float64(l.tokens.Limit())
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || took > l.slow:
		if now.Sub(l.congested) < congestionWindow {
			return
		}
		l.congested, l.raised = now, now
		limit = max(limit/2, l.ceiling/floorPart)
	case status == 0 || limit >= l.ceiling:
		l.raised = now
		return
	default:
		limit = min(l.ceiling, limit+l.ceiling*float64(now.Sub(l.raised))/float64(recoveryTime))
		l.raised = now
	}
	l.tokens.SetLimit(rate.Limit(limit))
	l.gauges.rate.Set(limit)
}

// count notes whether a request was answered. A gateway that answers for a service that is away
// counts as no answer; an error of the service itself is one, as it may be about a single object.
func (l *throttle) count(status int, now time.Time) {
	switch status {
	case 0, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if l.failed++; l.failed == 1 {
			l.since = now
		}
		if l.failed == awayAfter {
			l.open, l.probe = true, now.Add(probeGap)
			l.gauges.away.Set(1)
		}
	default:
		if l.failed = 0; l.open {
			l.open = false
			l.gauges.away.Set(0)
		}
	}
}
