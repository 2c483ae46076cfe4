// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package outcome gives the meaning of an error of the SDN: the reason of a condition, the time of
// the next try, and what a person can do. It has no effects.
package outcome

import (
	"errors"
	"strings"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ErrNotPermitted: the API server does not let Kuryr hold a cluster IP.
var ErrNotPermitted = errors.New("the API server does not permit Kuryr to hold the cluster IP")

// Outcome is the meaning of an error of the SDN.
type Outcome struct {
	Reason string // of a condition
	Retry  Retry
	// Lasting reports that the SDN would answer the same until a person acts.
	Lasting bool

	err    error
	advice string
}

// Of returns the meaning of an error of a request about a subject. The error may be nil.
func Of(s Subject, err error) Outcome {
	for i := range table {
		if r := &table[i]; r.fits(s, err) {
			return Outcome{Reason: r.reason, Retry: r.retry, Lasting: r.lasting, err: err, advice: r.advice[s] + r.always}
		}
	}
	panic("outcome: the last row fits every error")
}

// Explain describes the error for a person: what happened, and what to do about it. places are the
// placeholders of the subject's advice, each followed by its value.
func (o Outcome) Explain(places ...string) string {
	text := o.err.Error() + strings.NewReplacer(append(places, "{fields}", placesOf(fields, o.err), "{networkFields}", placesOf(networkFields, o.err))...).Replace(o.advice)
	if len(text) > maxNote {
		text = text[:maxNote-3] + "..."
	}
	return text
}

// Backoff says when to ask the SDN again after an error.
type Backoff struct {
	Min      time.Duration // doubled with each consecutive failure; 1s
	Max      time.Duration // the longest pause after most errors; 10s
	Quota    time.Duration // until a quota is raised, or something deleted; 30s
	Rejected time.Duration // until the configuration or the cloud is changed; 1m
}

// Options returns the options of a controller with so many workers. Its queue has a limiter for objects
// whose last reconcile failed: the library's own doubles up to 1000 s, and after an outage of some
// minutes pods would wait for as long again. Names of controllers need not be unique in a process.
func Options[request comparable](workers int, b Backoff) controller.TypedOptions[request] {
	return controller.TypedOptions[request]{
		MaxConcurrentReconciles: workers, SkipNameValidation: new(true),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[request](5*time.Millisecond, b.Max),
	}
}

// Delay returns the pause after err. n counts consecutive failures, from 1.
func (b Backoff) Delay(err error, n int) time.Duration {
	return b.delay(Of(Port, err), n)
}

func (b Backoff) delay(o Outcome, n int) time.Duration {
	if after, ok := sdn.RetryAfter(o.err); ok {
		return after
	}
	doubled := min(n-1, 16)
	switch o.Retry {
	case Told:
		var pending *sdn.PendingError
		errors.As(o.err, &pending)
		return pending.Retry
	case Late:
		return b.Quota
	case RetryAfterConfigChange:
		return b.Rejected
	case Slower:
		return min(b.Rejected, b.Min<<doubled)
	case Quick:
		return min(b.Max, min(b.Min, 100*time.Millisecond)<<doubled)
	case Soon, Never:
	}
	return min(b.Max, b.Min<<doubled)
}

// Result returns the result of a reconcile with this outcome. A returned error makes the queue try
// again, with a growing pause.
func (b Backoff) Result(o Outcome) (ctrl.Result, error) {
	switch o.Retry {
	case Never:
		return ctrl.Result{}, nil
	case Told, Late, RetryAfterConfigChange:
		return ctrl.Result{RequeueAfter: b.delay(o, 1)}, nil
	case Soon, Slower, Quick:
	}
	return b.Again(o.err)
}

// Again is the Result of an error that may be over at any time.
func (Backoff) Again(err error) (ctrl.Result, error) {
	if after, ok := sdn.RetryAfter(err); ok {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	return ctrl.Result{}, err
}

// maxNote is the longest note of an Event that the API server accepts.
const maxNote = 1024

// Cut shortens an explanation, so that an Event's note has room for text before it.
func Cut(text string) string {
	const room = 64
	if len(text) > maxNote-room {
		return strings.ToValidUTF8(text[:maxNote-room-3], "") + "..."
	}
	return text
}

// Earlier returns the earlier of two times. A zero time is no time.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Sooner returns the time until the earlier of two times; zero if both are zero.
func Sooner(a, b, now time.Time) time.Duration {
	if a = Earlier(a, b); a.IsZero() {
		return 0
	}
	return max(a.Sub(now), time.Millisecond)
}
