// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
)

// errAsked: the SDN has been asked and has not answered yet. Then the namespace is planned again.
var errAsked = errors.New("the cloud has not answered yet")

// refusedError is an answer without a value. The SDN is asked again at a later time, whoever needs
// the answer.
type refusedError struct {
	error
	until time.Time
}

func (e *refusedError) Unwrap() error { return e.error }

// asker sends requests to the SDN apart from the planner's only worker. A slow answer holds up the
// namespaces whose plan needs it, and no others. It is safe for concurrent use.
type asker struct {
	signal kube.Signal

	mu    sync.Mutex
	calls []func(context.Context)
}

// asked is the number of requests at once.
const asked = 16

func (a *asker) send(call func(context.Context)) {
	a.mu.Lock()
	a.calls = append(a.calls, call)
	a.mu.Unlock()
	a.signal.Send()
}

// run sends requests until ctx ends. Those that are not sent then are lost: nothing waits any more.
func (a *asker) run(ctx context.Context) error {
	var at errgroup.Group
	at.SetLimit(asked)
	for {
		select {
		case <-ctx.Done():
			return at.Wait()
		case <-a.signal:
		}
		a.mu.Lock()
		calls := a.calls
		a.calls = nil
		a.mu.Unlock()
		for _, call := range calls {
			at.Go(func() error { call(ctx); return nil })
		}
	}
}

// answers are what the SDN says of resources. One request serves all namespaces that need its
// answer, also if it fails. It is safe for concurrent use.
type answers[A any] struct {
	asker   *asker
	backoff outcome.Backoff           // until the SDN is asked again after a failure
	queue   *kube.Queue[ctrl.Request] // of namespaces to plan

	mu    sync.Mutex // not held during requests
	known map[string]*answer[A]
}

type answer[A any] struct {
	value    A
	err      error
	failures int                   // without a success between
	until    time.Time             // when it ends; zero: never
	waiting  map[ctrl.Request]bool // for the answer to a request in progress; nil: there is none
}

func (k *answer[A]) counts(now time.Time) bool { return k.until.IsZero() || now.Before(k.until) }

// of returns the answer about a resource, and does not wait. It returns errAsked if there is none
// yet: then the namespace of req is planned again with the answer. A failure is a refusedError. ask
// asks the SDN; it returns an answer, and how long it counts; 0 is forever.
func (a *answers[A]) of(id string, req ctrl.Request, ask func(ctx context.Context, id string) (A, time.Duration, error)) (value A, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.known[id]
	switch {
	case k == nil:
		k = &answer[A]{}
	case k.waiting != nil:
		k.waiting[req] = true
		return value, errAsked
	case k.counts(time.Now()) && k.err != nil:
		return value, &refusedError{k.err, k.until}
	case k.counts(time.Now()):
		return k.value, nil
	}
	k.waiting = map[ctrl.Request]bool{req: true}
	if a.known == nil {
		a.known = map[string]*answer[A]{}
	}
	a.known[id] = k
	a.asker.send(func(ctx context.Context) {
		value, good, err := ask(ctx, id)
		a.answered(id, value, good, err)
	})
	return value, errAsked
}

// last returns the last answer about a resource, and asks nothing. It is zero if there was none.
func (a *answers[A]) last(id string) (value A) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.known[id]; k != nil {
		return k.value
	}
	return value
}

// answered keeps an answer, and has the namespaces that wait for it planned.
func (a *answers[A]) answered(id string, value A, good time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.known[id]
	k.value, k.err, k.until = value, err, time.Time{}
	if err == nil {
		k.failures = 0
	} else {
		k.failures++
		good = a.backoff.Delay(err, k.failures)
	}
	if good > 0 {
		k.until = time.Now().Add(good)
	}
	waiting := k.waiting
	k.waiting = nil
	// Those of resources that no plan needs any more are forgotten.
	maps.DeleteFunc(a.known, func(_ string, k *answer[A]) bool {
		return k.waiting == nil && !k.counts(time.Now().Add(-forgotten))
	})
	for req := range waiting {
		a.queue.Add(req)
	}
}

// forgotten is how long an answer that counts no more is kept, with the number of failures.
const forgotten = 10 * time.Minute

// forgive lets the SDN be asked again for what does not count for ever.
func (a *answers[A]) forgive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.known, func(_ string, k *answer[A]) bool { return k.waiting == nil && !k.until.IsZero() })
}
