// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// did notes a step, to know it again if the next look finds it needed still. It
// returns how often that was so.
func (m *memory) did(key string, now time.Time, b outcome.Backoff) int {
	if m.stubborn == nil {
		m.stubborn = map[string]*attempt{}
	}
	a := m.stubborn[key]
	if a == nil {
		a = &attempt{}
		m.stubborn[key] = a
	}
	a.times++
	a.next = now.Add(b.Min << min(a.times, 10))
	return a.times
}

// replacing begins the fingerprint of a step that makes room for another load
// balancer. It is known by what it is done for: each that is made has another ID.
const replacing = "replace "

// fingerprint knows a step again. It is short: a step may have thousands of members.
func fingerprint(s balancer.Step) string {
	if d, is := s.(balancer.DeleteLoadBalancer); is && d.Instead != "" {
		return replacing + d.Instead + ": " + d.Because
	}
	content, err := json.Marshal(s)
	if err != nil { // they are plain data
		return s.String()
	}
	return fmt.Sprintf("%T %x", s, sha256.Sum256(content))
}

// leaves reports whether a step that the cloud does not do is left at that.
func leaves(s balancer.Step) bool {
	switch s := s.(type) {
	case balancer.UpdateListener:
		return !s.Ranges
	case balancer.UpdatePool:
		return true
	}
	return false
}

// stubbornAfter is how often a step is carried out before it is held that the
// cloud does not do it.
const stubbornAfter = 2

// leaveStubborn takes out of a plan what the cloud has accepted and not done: an
// update for good, as it is most likely a default of the cloud that differs, all
// else, and who may come in, for a while. Endless updates would keep a load balancer
// busy for ever.
func (r *Reconciler) leaveStubborn(ctx context.Context, m *memory, plan *balancer.Plan, o *round) {
	if len(m.stubborn) == 0 {
		return
	}
	still := map[string]*attempt{}
	for key, a := range m.stubborn {
		if strings.HasPrefix(key, replacing) { // what comes of it is there two looks later
			still[key] = a
		}
	}
	stubborn := func(s balancer.Step) bool {
		key := fingerprint(s)
		a := m.stubborn[key]
		if a == nil {
			return false
		}
		still[key] = a
		if a.failed != "" && a.next.After(r.now()) {
			o.noted = append(o.noted, a.failed)
			return true
		}
		if a.failed != "" || a.times < stubbornAfter {
			return false
		}
		o.open(s)
		if leaves(s) {
			ctrl.LoggerFrom(ctx).V(1).Info("leaving a load balancer as the cloud keeps it", "step", s.String())
			o.left = append(o.left, s.String())
			return true
		}
		if wait := a.next.Sub(r.now()); wait > 0 {
			o.refused = append(o.refused, s.String())
			o.again = wait
			return true
		}
		return false
	}
	plan.Steps, plan.Last = slices.DeleteFunc(plan.Steps, stubborn), slices.DeleteFunc(plan.Last, stubborn)
	m.stubborn = still
}

// unmarked notes that a mark could not be written, if that is the step: nobody who is
// served by the load balancer is to wait for it.
func (r *Reconciler) unmarked(m *memory, s balancer.Step, err error, o *round) bool {
	if _, is := s.(balancer.MarkLoadBalancer); !is {
		return false
	}
	m.did(fingerprint(s), r.now(), r.backoff)
	m.stubborn[fingerprint(s)].failed = err.Error()
	o.noted = append(o.noted, err.Error())
	return true
}

// hasFailed reports whether a step is to be done still as it could not be.
func (m *memory) hasFailed(s balancer.Step) bool {
	a := m.stubborn[fingerprint(s)]
	return a != nil && a.failed != ""
}
