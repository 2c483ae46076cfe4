// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// quotas knows the quotas that have refused a request. Of all requests for the same quota one is sent
// in a pause, until one succeeds. So the number of requests does not depend on the number of
// KuryrLoadBalancers that wait. A request for less than every refused size need not wait. The zero
// value is ready for use. Its methods are safe for concurrent use.
type quotas struct {
	mu   sync.Mutex
	full map[quota]shortage
}

// quota names a quota of a project.
type quota struct{ what, project string }

// shortage is what is known of an exhausted quota.
type shortage struct {
	until time.Time // no request is sent before
	least int       // the smallest refused size
	err   error     // the cloud's answer
}

// errTurn says that a request was not sent.
var errTurn = errors.New("the quota refused another request, and Kuryr repeats one request at a time")

// take returns why a request must not be sent now. If it may be sent, all other requests wait until next.
func (q *quotas) take(of quota, size int, now, next time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, short := q.full[of]
	switch {
	case !short || size < s.least:
		return nil
	case now.Before(s.until):
		return fmt.Errorf("%w: %w", errTurn, s.err)
	}
	s.until = next
	q.full[of] = s
	return nil
}

// note records the answer to a request. If it says that the quota has no room, all requests wait until
// next.
func (q *quotas) note(of quota, size int, err error, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, short := q.full[of]
	switch {
	case errors.Is(err, sdn.ErrQuota):
		if !short || size < s.least {
			s.least = size
		}
		if q.full == nil {
			q.full = map[quota]shortage{}
		}
		q.full[of] = shortage{next, s.least, err}
	case err == nil && size >= s.least:
		delete(q.full, of)
	}
}

// freed records that a resource was deleted, which may make room: one request may be sent at once for
// each exhausted quota.
func (q *quotas) freed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for of, s := range q.full {
		s.until = time.Time{}
		q.full[of] = s
	}
}

// lose forgets all quotas.
func (q *quotas) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = nil
}

// retryRefused applies the KuryrLoadBalancers that wait for a quota or for a VIP, now that a load
// balancer is deleted. When a Service becomes an ExternalName, Kubernetes gives its cluster IP to a new
// Service before the old load balancer is deleted. The status of a new one that was refused moments ago
// may not say so yet.
func (r *Reconciler) retryRefused(ctx context.Context) {
	r.quotas.freed()
	r.wakeAll(ctx, func(klb *v1.KuryrLoadBalancer) bool {
		ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
		return ready == nil || ready.Reason == v1.ReasonOverQuota || ready.Reason == v1.ReasonConflict
	})
}

// needs returns the quota that a step takes from, and how much of it; 0 if it takes none.
func needs(klb *v1.KuryrLoadBalancer, step balancer.Step) (quota, int) {
	of := func(l *sdn.Listener) int {
		if l.Pool == nil {
			return 1
		}
		return 1 + len(l.Pool.Members)
	}
	size := 0
	switch s := step.(type) {
	case balancer.CreateLoadBalancer:
		size = 1
		for i := range s.LoadBalancer.Listeners {
			size += of(&s.LoadBalancer.Listeners[i])
		}
	case balancer.CreateListener:
		size = of(&s.Listener)
	case balancer.CreatePool:
		size = 1 + len(s.Pool.Members)
	case balancer.ChangeMembers:
		size = max(0, len(s.Add)-len(s.Remove))
	case balancer.CreateFloatingIP:
		return addressQuota(klb), 1
	}
	return quota{fmt.Sprintf("%T", step), klb.Spec.ProjectID}, size
}

// addressQuota is the quota of the floating IPs that a KuryrLoadBalancer may have.
func addressQuota(klb *v1.KuryrLoadBalancer) quota {
	what := "floating IP"
	if klb.Spec.PublicIP != nil {
		what += " of " + klb.Spec.PublicIP.NetworkID + "/" + klb.Spec.PublicIP.SubnetID
	}
	return quota{what, klb.Spec.ProjectID}
}

// request sends the request of a step once its quota may have room, and counts it.
func (v *reconciliation) request(step balancer.Step, send func() error) error {
	of, size := needs(v.klb, step)
	if size > 0 {
		if err := v.quotas.take(of, size, v.Now(), v.Now().Add(v.Backoff.Quota)); err != nil {
			return err
		}
	}
	err := count(reflect.TypeOf(step).Name(), send())
	if size > 0 {
		v.quotas.note(of, size, err, v.Now().Add(v.Backoff.Quota))
	}
	return err
}
