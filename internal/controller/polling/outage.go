// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Outage knows whether a service of the cloud does not answer. An outage begins once a request has
// met sdn.ErrUnavailable and a probe has met it, too. A single object that the service answers with
// 500 is no outage.
//
// During an outage requests are parked, and only the probe is sent. When the probe is answered, the
// parked requests are woken one after the other. Requests whose load balancer serves nothing come
// first.
//
// A service that answers reads and can change nothing has no outage here: it answers the probe. Who
// sees it change something again calls Retry. Its methods are safe for concurrent use.
type Outage struct {
	service string
	probe   func(context.Context) error
	now     func() time.Time
	wake    func(ctrl.Request)
	others  func(context.Context) []ctrl.Request
	doubted kube.Signal // a request has met ErrUnavailable

	mu sync.Mutex
	// failed is when the first request since the last answer met ErrUnavailable; zero: none has.
	failed   time.Time
	since    time.Time // the beginning of the outage; zero: no outage
	parked   []parkedRequest
	patience time.Duration // deadline of the next probe
	probed   time.Time     // end of the last probe
	retried  time.Time     // when the requests of others were last woken
}

type parkedRequest struct {
	ctrl.Request
	urgent bool
}

// The time between two probes on average, and between two woken requests. A probe has its own
// deadline, as a probe without an answer means the same as one that fails. The deadline doubles
// after each timeout. So a service that is merely slow is recognised in the end.
const (
	probeGap      = 2 * time.Second
	probeSoonest  = 5 * time.Second
	probePatience = time.Minute
	wakeGap       = 50 * time.Millisecond
)

// NewOutage returns an Outage of a service. It sends no probe before Run. probe is one cheap
// request to that service. wake requeues a parked request. others is called when an outage ends,
// and returns further requests to wake; nil: none.
func NewOutage(service string, probe func(context.Context) error, now func() time.Time, wake func(ctrl.Request), others func(context.Context) []ctrl.Request) *Outage {
	cloudOutage.WithLabelValues(service).Set(0)
	return &Outage{service: service, probe: probe, now: now, wake: wake, others: others, doubted: kube.NewSignal(), patience: probeSoonest}
}

// Err returns an ErrOutage that says since when the service has not answered. It returns
// nil if no outage is known.
func (o *Outage) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return nil
	}
	return fmt.Errorf("%s has not answered since %s; Kuryr sends one probe every %s: %w",
		o.service, o.since.UTC().Format(time.RFC3339), probeGap, ErrOutage)
}

// ErrOutage is the sdn.ErrUnavailable of a known outage: no request was sent.
var ErrOutage = fmt.Errorf("%w", sdn.ErrUnavailable)

// Park records that a request has met sdn.ErrUnavailable, and reports whether the service has an
// outage. During an outage the request is woken once the service answers, urgent ones first. The
// caller need not try before. Without a known outage a probe is sent soon.
func (o *Outage) Park(req ctrl.Request, urgent bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		if o.failed.IsZero() {
			o.failed = o.now()
		}
		o.doubted.Send()
		return false
	}
	o.park(req, urgent)
	return true
}

// park is called with the lock held.
func (o *Outage) park(req ctrl.Request, urgent bool) {
	if i := o.place(req); i < 0 {
		o.parked = append(o.parked, parkedRequest{req, urgent})
	} else {
		o.parked[i].urgent = urgent
	}
}

// place returns where a request is parked, -1 if it is not. It is called with the lock held.
func (o *Outage) place(req ctrl.Request) int {
	return slices.IndexFunc(o.parked, func(p parkedRequest) bool { return p.Request == req })
}

// Run probes the service after a request has met ErrUnavailable and during an outage. It wakes
// parked requests. It runs until ctx ends.
func (o *Outage) Run(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("outage").WithValues("service", o.service))
	var probe, wake <-chan time.Time // when the next one is due; nil: none is planned
	for {
		away, waiting := o.state()
		if probe == nil && away {
			probe = time.After(probeGap/2 + rand.N(probeGap))
		}
		if wake == nil && waiting && !away {
			wake = time.After(wakeGap)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.doubted:
			if probe == nil {
				probe = time.After(o.rest())
			}
		case <-probe:
			probe = nil
			o.ask(ctx)
		case <-wake: // also while other requests fail, which may last
			wake = nil
			o.wakeNext()
		}
	}
}

func (o *Outage) state() (away, waiting bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero(), len(o.parked) > 0
}

// rest is the time until the next probe may be sent. A single object that always fails would
// otherwise cause a probe with each of its tries.
func (o *Outage) rest() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.probed.Add(probeGap).Sub(o.now())
}

// ask sends one probe and records the result.
func (o *Outage) ask(ctx context.Context) {
	o.mu.Lock()
	patience := o.patience
	o.mu.Unlock()
	probing, cancel := context.WithTimeout(ctx, patience)
	err := o.probe(probing)
	cancel()
	if ctx.Err() != nil {
		return
	}
	answered := !errors.Is(err, sdn.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded)
	var others []ctrl.Request
	if away, _ := o.state(); away && answered && o.others != nil {
		others = o.others(ctx)
	}
	log := ctrl.LoggerFrom(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probed = o.now()
	switch {
	case !answered && o.since.IsZero():
		if o.since = o.failed; o.since.IsZero() {
			o.since = o.probed
		}
		cloudOutage.WithLabelValues(o.service).Set(1)
		log.Info("the cloud does not answer: load balancers wait, and only a probe is sent", "since", o.since, "error", err.Error())
	case answered && !o.since.IsZero():
		o.parkAll(others)
		log.Info("the cloud answers again", "since", o.since, "after", o.probed.Sub(o.since).String(), "waiting", len(o.parked))
		o.since, o.retried = time.Time{}, o.probed
		cloudOutage.WithLabelValues(o.service).Set(0)
	}
	if o.since.IsZero() {
		o.failed, o.patience = time.Time{}, probeSoonest
	} else if errors.Is(probing.Err(), context.DeadlineExceeded) {
		o.patience = min(2*o.patience, probePatience)
	}
}

// parkAll parks further requests as urgent ones, and puts all in order. It is called with the lock
// held.
func (o *Outage) parkAll(others []ctrl.Request) {
	for _, req := range others {
		if o.place(req) < 0 { // else it is known how urgent it is
			o.park(req, true)
		}
	}
	slices.SortStableFunc(o.parked, func(a, b parkedRequest) int { return order(b.urgent) - order(a.urgent) })
}

// retryGap is the time between two calls of Retry that have an effect. A service that is slow now
// and then would otherwise make all repairs begin anew with each of its slow answers.
const retryGap = 2 * time.Minute

// Retry wakes the requests of others, as the end of an outage does. It does nothing in an outage,
// while earlier requests are still being woken, and within retryGap after either.
func (o *Outage) Retry(ctx context.Context) {
	o.mu.Lock()
	early := !o.retried.IsZero() && o.now().Sub(o.retried) < retryGap
	o.mu.Unlock()
	if away, waiting := o.state(); away || waiting || early || o.others == nil {
		return
	}
	others := o.others(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.retried = o.now()
	o.parkAll(others)
	o.doubted.Send() // Run sees that they wait
}

func order(urgent bool) int {
	if urgent {
		return 1
	}
	return 0
}

// wakeNext wakes the first parked request.
func (o *Outage) wakeNext() {
	o.mu.Lock()
	if len(o.parked) == 0 || !o.since.IsZero() {
		o.mu.Unlock()
		return
	}
	next := o.parked[0].Request
	o.parked = o.parked[1:]
	o.mu.Unlock()
	o.wake(next)
}

var cloudOutage = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kuryr_cloud_outage",
	Help: "1 while a service of the cloud (Octavia, Neutron) answers nothing, and load balancers wait for it: only a probe is sent.",
}, []string{"service"})

func init() { metrics.Registry.MustRegister(cloudOutage) }
