// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestPauses: a request that is not supported is retried soon, as the backend may have learned
// that, and rarely if it has not. No Service stays open to clients for longer than necessary.
func TestPauses(t *testing.T) {
	now := time.Now()
	r := &Reconciler{now: func() time.Time { return now }, stuck: 90 * time.Second, backoff: outcome.Backoff{Min: time.Second, Max: 10 * time.Second, Quota: 30 * time.Second, Rejected: time.Minute}}
	refused := fmt.Errorf("updating: %w", sdn.ErrUnsupported)
	for _, tc := range []struct {
		name string
		o    round
		want time.Duration
	}{
		{"not supported", round{err: refused, refusals: 1}, time.Second},
		{"not supported, again and again", round{err: refused, refusals: learning + 1}, time.Minute},
		{"no such service", round{err: fmt.Errorf("%w: %w", sdn.ErrNoService, sdn.ErrUnsupported), refusals: 1}, time.Minute},
		{"busy", round{waiting: "lb", since: now.Add(-time.Second)}, 89 * time.Second},
		{"busy for long", round{waiting: "lb", since: now.Add(-time.Hour)}, stillStuck},
		{"busy, and open", round{waiting: "lb", since: now, within: 7 * time.Second}, 7 * time.Second},
		{"rejected", round{err: sdn.ErrInvalid}, time.Minute},
		{"rejected for members that the next plan leaves out", round{err: sdn.ErrInvalid, withoutRefused: true}, time.Second},
		{"rejected, and open", round{err: sdn.ErrInvalid, within: 7 * time.Second}, 7 * time.Second},
	} {
		v := visit{Reconciler: r, round: tc.o}
		res, err := v.next()
		if err != nil || res.RequeueAfter != tc.want {
			t.Errorf("%s: next = %v, %v, want %v", tc.name, res.RequeueAfter, err, tc.want)
		}
	}
}

// TestReadyMessage: the message of a ready load balancer has what the provider always does otherwise.
// A status that lacks nothing else stays as an older version wrote it.
func TestReadyMessage(t *testing.T) {
	const wanted = "The cloud has the load balancer as wanted."
	const stay = "With provider ovn, a UDP client that keeps sending from one source port stays with its endpoint, even after that has gone. " +
		"It gets another one when it pauses or changes its port: see docs/services.md, \"Limits\"."
	ready := func(provider, protocol string, noted ...string) round {
		return round{
			seen: true, located: true, asked: true, noted: noted, features: sdn.Features{Provider: provider, KeepsUDPClients: provider == "ovn"},
			trees: []sdn.LoadBalancer{{ID: "lb", Provider: provider, Listeners: []sdn.Listener{{ID: "l", Protocol: protocol, Port: 53}}}},
		}
	}
	for name, tc := range map[string]struct {
		round round
		want  string
	}{
		"UDP, ovn":                {ready("ovn", "UDP"), wanted + " " + stay},
		"UDP, ovn, and a failure": {ready("ovn", "UDP", "cannot mark it"), wanted + " A step failed. Nothing is to be done: the load balancer serves, and Kuryr tries the step again: cannot mark it. " + stay},
		"TCP, ovn":                {ready("ovn", "TCP"), wanted},
		"UDP, amphora":            {ready("amphora", "UDP"), wanted},
	} {
		v := visit{Reconciler: &Reconciler{now: time.Now}, klb: &v1.KuryrLoadBalancer{}, round: tc.round}
		var s v1.KuryrLoadBalancerStatus
		v.describe(&s)
		c := meta.FindStatusCondition(s.Conditions, v1.ConditionReady)
		if c == nil || c.Status != "True" || c.Message != kube.Reword(tc.want) {
			t.Errorf("%s: Ready is %+v, want it True and to say %q", name, c, tc.want)
		}
		older := s.DeepCopy()
		v.round.noted = nil
		v.describeWith(older, "")
		v.klb.Status = *older.DeepCopy()
		again := older.DeepCopy()
		if v.describe(again); !cmp.Equal(older, again) {
			t.Errorf("%s: the status of an older version is written again:\n%s", name, cmp.Diff(older, again))
		}
	}
}

// TestOperatorsWords: a person who must act in Octavia gets commands with the IDs. The statement for
// Octavia's database is the one that the document explains.
func TestOperatorsWords(t *testing.T) {
	spent := visit{Reconciler: &Reconciler{now: time.Now}, klb: &v1.KuryrLoadBalancer{}, round: round{
		trees: []sdn.LoadBalancer{{ID: "lb-4"}, {ID: "lb-6"}}, mending: balancer.Mending{Spent: true, Tried: []string{"pool p: tried"}},
	}}
	reason, message := spent.unready()
	const want = "openstack loadbalancer status show lb-4; openstack loadbalancer status show lb-6"
	if reason != v1.ReasonLoadBalancerInError || !strings.Contains(message, want) || !strings.HasSuffix(message, "pool p: tried") {
		t.Errorf("after all repairs: %s, %q, want it to have %q, and what was tried", reason, message, want)
	}
	doc, err := os.ReadFile("../../../docs/services.md")
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(string(doc)), " "); !strings.Contains(text, fmt.Sprintf(setError, "ID")+";") {
		t.Errorf("docs/services.md lacks %q", fmt.Sprintf(setError, "ID"))
	}
	var s settings.Settings
	s.Services.ReleaseAfter.Duration = 5 * time.Minute
	now := metav1.Now()
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}
	busy := visit{Reconciler: &Reconciler{now: time.Now, settings: settings.NewLive(s)}, klb: klb, round: round{waiting: strings.Repeat("i", 36)}}
	if text := busy.wedged(); outcome.Cut(text) != text || !strings.Contains(text, fmt.Sprintf(setError, busy.round.waiting)) {
		t.Errorf("a busy load balancer: %d characters %q, want all of them in an Event, with the statement", len(text), text)
	}
}
