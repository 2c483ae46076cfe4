// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestPauses: a request that is not supported is retried soon, as the backend may have learned
// that, and rarely if it has not. No Service stays open to clients for longer than necessary.
func TestPauses(t *testing.T) {
	now := time.Now()
	r := &Reconciler{Options: Options{
		Shards: kube.Alone{},
		Now:    func() time.Time { return now }, Stuck: 90 * time.Second,
		Backoff: outcome.Backoff{Min: time.Second, Max: 10 * time.Second, Quota: 30 * time.Second, Rejected: time.Minute},
	}}
	refused := fmt.Errorf("updating: %w", sdn.ErrUnsupported)
	busy := func(since time.Time, within time.Duration) round {
		return round{Result: balancer.Result{Waiting: balancer.Waiting{ID: "lb", Since: since}}, within: within}
	}
	for _, tc := range []struct {
		name string
		o    round
		// refused is how many rounds in a row have requested something that is not supported.
		refused int
		want    time.Duration
	}{
		{"not supported", round{err: refused}, 1, time.Second},
		{"not supported, again and again", round{err: refused}, learning + 1, time.Minute},
		{"no such service", round{err: fmt.Errorf("%w: %w", sdn.ErrNoService, sdn.ErrUnsupported)}, 1, time.Minute},
		{"busy", busy(now.Add(-time.Second), 0), 0, 89 * time.Second},
		{"busy for long", busy(now.Add(-time.Hour), 0), 0, 0},
		{"busy, and open", busy(now, 7*time.Second), 0, 7 * time.Second},
		{"rejected", round{err: sdn.ErrInvalid}, 0, time.Minute},
		{"rejected for members that the next plan leaves out", round{err: sdn.ErrInvalid, withoutRefused: true}, 0, time.Second},
		{"rejected, and open", round{err: sdn.ErrInvalid, within: 7 * time.Second}, 0, 7 * time.Second},
	} {
		v := reconciliation{Reconciler: r, klb: &v1.KuryrLoadBalancer{}, memory: &memory{}, round: tc.o}
		for range tc.refused {
			v.memory.attempts.Note(unsupported, now, balancer.Pauses{}, "")
		}
		res, err := v.next()
		if err != nil || res.RequeueAfter != tc.want {
			t.Errorf("%s: next = %v, %v, want %v", tc.name, res.RequeueAfter, err, tc.want)
		}
	}
}

// TestCloudIsBack: changes that work after the cloud was away for a sixth of Mend show that it is back.
// A shorter failure does not begin repairs anew, nor does a round that has changed nothing.
func TestCloudIsBack(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after time.Duration
		did   []string
		want  bool
	}{
		{"a change after a short failure", 5*time.Second - 1, []string{"create"}, false},
		{"a change after an outage", 5 * time.Second, []string{"create"}, true},
		{"no change after an outage", time.Hour, nil, false},
	} {
		now := time.Now()
		r := &Reconciler{Options: Options{Shards: kube.Alone{}, Now: func() time.Time { return now }, Mend: 30 * time.Second}, shared: shared{back: kube.NewSignal()}}
		v := reconciliation{Reconciler: r, klb: &v1.KuryrLoadBalancer{}, memory: &memory{}}
		round := func(after time.Duration, did []string, err error) (back bool) {
			now = now.Add(after)
			v.round.did, v.round.err = did, err
			v.noteAway(t.Context())
			select {
			case <-v.back:
				return true
			default:
				return false
			}
		}
		away := fmt.Errorf("creating: %w", sdn.ErrUnavailable)
		if round(0, []string{"create"}, nil) || round(0, nil, away) || round(tc.after/2, nil, away) {
			t.Errorf("%s: back before the end", tc.name)
		}
		if got := round(tc.after-tc.after/2, tc.did, nil); got != tc.want {
			t.Errorf("%s: back is %v, want %v", tc.name, got, tc.want)
		}
		if got, want := round(time.Hour, []string{"create"}, nil), tc.did == nil; got != want {
			t.Errorf("%s: back with a change an hour later is %v, want %v", tc.name, got, want)
		}
	}
}

// TestReadyMessage: the message of a ready load balancer has what the provider always does otherwise.
func TestReadyMessage(t *testing.T) {
	const wanted = "The cloud has the load balancer as wanted."
	const stay = "With provider ovn, a UDP client that keeps sending from one source port stays with its endpoint, even after that has gone. " +
		"It gets another one when it pauses or changes its port: see docs/services.md, \"Limits\"."
	ready := func(provider, protocol string, noted ...string) round {
		return round{Result: balancer.Result{
			Report: balancer.Report{Failed: noted}, Address: balancer.PlacedAddress{Placed: true},
			Found: balancer.Found{
				Seen: true, Asked: true, Features: sdn.Features{Provider: provider, KeepsUDPClients: provider == "ovn"},
				Trees: []sdn.LoadBalancer{{ID: "lb", Provider: provider, Listeners: []sdn.Listener{{ID: "l", Protocol: protocol, Port: 53}}}},
			},
		}}
	}
	for name, tc := range map[string]struct {
		round round
		want  string
	}{
		"UDP, ovn":                {ready("ovn", "UDP"), wanted + " " + stay},
		"UDP, ovn, and a failure": {ready("ovn", "UDP", "cannot mark it"), wanted + " A step failed. No action needed: the load balancer serves, and Kuryr tries the step again: cannot mark it. " + stay},
		"TCP, ovn":                {ready("ovn", "TCP"), wanted},
		"SCTP, ovn":               {ready("ovn", "SCTP"), wanted},
		"UDP, amphora":            {ready("amphora", "UDP"), wanted},
	} {
		v := reconciliation{Reconciler: &Reconciler{Options: Options{Shards: kube.Alone{}, Now: time.Now}}, klb: &v1.KuryrLoadBalancer{}, round: tc.round}
		var s v1.KuryrLoadBalancerStatus
		v.describe(&s)
		c := meta.FindStatusCondition(s.Conditions, v1.ConditionReady)
		if c == nil || c.Status != "True" || c.Message != kube.Reword(tc.want) {
			t.Errorf("%s: Ready is %+v, want it True and to say %q", name, c, tc.want)
		}
	}
}
