// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestBrake: what serves is not deleted while another load balancer of the project is being replaced, or
// cannot be created for a reason that all share.
func TestBrake(t *testing.T) {
	condition := func(kind string, is metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: is, Reason: reason}
	}
	one := func(name, project string, made bool, conditions ...metav1.Condition) *v1.KuryrLoadBalancer {
		vip := v1.VIPAddress{IP: "10.2.0.1", SubnetID: vips4}
		klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1.KuryrLoadBalancerSpec{ProjectID: project, VIPs: []v1.VIPAddress{vip}}}
		if made {
			klb.Status.LoadBalancers = []v1.LoadBalancerStatus{{ID: name, IP: vip.IP, SubnetID: vip.SubnetID}}
		}
		klb.Status.Conditions = conditions
		return klb
	}
	ready := condition(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonReady)
	unready := func(reason string) metav1.Condition {
		return condition(v1.ConditionReady, metav1.ConditionFalse, reason)
	}
	replacing := condition(v1.ConditionProgressing, metav1.ConditionTrue, v1.ReasonReplacing)
	leaving := one("z", "red", false, unready(v1.ReasonOverQuota), replacing)
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for _, tc := range []struct {
		name  string
		other *v1.KuryrLoadBalancer
		want  string // a part of the text; empty: no brake
	}{
		{"another one serves", one("z", "red", true, ready), ""},
		{"another one is in ERROR", one("z", "red", true, unready(v1.ReasonLoadBalancerInError)), ""},
		{"another one is new, and is being created", one("z", "red", false, unready(v1.ReasonPending)), ""},
		{"another one is new, and says nothing yet", one("z", "red", false), ""},
		{"another one is being replaced", one("z", "red", true, ready, replacing), "now that of shop/z"},
		{"another one has been deleted to be created again", one("z", "red", false, unready(v1.ReasonPending), replacing), "now that of shop/z"},
		{"the quota is full", one("z", "red", false, unready(v1.ReasonOverQuota)), "shop/z (OverQuota)"},
		{"Octavia does not answer a creation", one("z", "red", false, unready(v1.ReasonUnavailable)), "shop/z (Unavailable)"},
		{"Octavia answers with something unknown", one("z", "red", false, unready(v1.ReasonBackendError)), "shop/z (BackendError)"},
		{"Octavia forbids it", one("z", "red", false, unready(v1.ReasonForbidden)), "shop/z (Forbidden)"},
		{"a floating IP is over quota", one("z", "red", true, unready(v1.ReasonOverQuota)), ""},
		{"another one has a wrong flavor", one("z", "red", false, unready(v1.ReasonRejected)), ""},
		{"another one's address is taken", one("z", "red", false, unready(v1.ReasonConflict)), ""},
		{"another project", one("z", "blue", false, unready(v1.ReasonOverQuota), replacing), ""},
		{"a Service that is deleted", leaving, ""},
		{"itself", one("web", "red", false, unready(v1.ReasonOverQuota), replacing), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			klb := one("web", "red", true, unready(v1.ReasonLoadBalancerInError))
			got := balancer.Brake(klb, []*v1.KuryrLoadBalancer{one("a", "red", true, ready), tc.other, klb})
			if (got != "") != (tc.want != "") || !strings.Contains(got, tc.want) {
				t.Errorf("Brake() = %q, want %q", got, tc.want)
			}
		})
	}
}

// TestBrakeOfTwo: of two that are being replaced in one project, one goes on.
func TestBrakeOfTwo(t *testing.T) {
	replacing := metav1.Condition{Type: v1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: v1.ReasonReplacing}
	var all []*v1.KuryrLoadBalancer
	for _, name := range []string{"b", "a"} {
		all = append(all, &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: v1.KuryrLoadBalancerStatus{Conditions: []metav1.Condition{replacing}}})
	}
	if got := balancer.Brake(all[0], all); !strings.Contains(got, "shop/a") {
		t.Errorf("Brake(b) = %q, want that b waits for a", got)
	}
	if got := balancer.Brake(all[1], all); got != "" {
		t.Errorf("Brake(a) = %q, want that a goes on", got)
	}
}

// TestTrial: a trial is the load balancer without its address and its listeners.
func TestTrial(t *testing.T) {
	want := sdn.LoadBalancer{Name: strings.Repeat("n", 255), Provider: "ovn", ProjectID: "red", FlavorID: "big", VIP: v1.VIPAddress{IP: "10.2.0.1", SubnetID: vips4},
		Listeners: []sdn.Listener{{Name: "shop/web:TCP:80", Protocol: "TCP", Port: 80, Pool: &sdn.Pool{Name: "p", Members: []sdn.Member{{IP: "10.1.0.1", Port: 80}}}}}}
	got := balancer.Trial(want)
	if got.VIP.IP != "" || got.VIP.SubnetID != vips4 || got.Provider != "ovn" || got.ProjectID != "red" || got.FlavorID != "big" || len(got.Listeners) > 0 {
		t.Errorf("Trial() = %+v", got)
	}
	if len(got.Name) > 255 || got.Name == want.Name || !strings.HasSuffix(got.Name, "/trial") {
		t.Errorf("the trial has the name %q", got.Name)
	}
	if want.VIP.IP == "" || len(want.Listeners) != 1 || strings.HasSuffix(want.Name, "/trial") {
		t.Errorf("Trial() has changed its argument: %+v", want)
	}
}

// TestTrialStaysUntilTheAddressIsFree: the load balancer of the former provider is deleted for long, or its
// deletion ends in ERROR. Its trial stays until then: without one, the next round would create another.
func TestTrialStaysUntilTheAddressIsFree(t *testing.T) {
	klb := newWorld(t).klb
	klb.Spec.Provider = "amphora"
	f := sdn.Features{Provider: "amphora"}
	want, _ := balancer.Want(klb, f)
	old, trial := sdn.LoadBalancer{ID: "old", Provider: "ovn", VIP: klb.Spec.VIPs[0]}, balancer.Trial(want[0])
	trial.ID, trial.Provisioning, trial.VIP.IP = "trial", sdn.ProvisioningActive, "10.2.0.99"
	for _, tc := range []struct {
		old       sdn.Provisioning // empty: it is gone
		operating string
		deleted   bool
	}{
		{sdn.ProvisioningActive, "ONLINE", false}, {sdn.ProvisioningDeleting, "ONLINE", false},
		{sdn.ProvisioningError, "ONLINE", false}, {sdn.ProvisioningError, "ERROR", false}, {"", "", true},
	} {
		trees := []sdn.LoadBalancer{trial}
		if old.Provisioning, old.Operating = tc.old, tc.operating; tc.old != "" {
			trees = append(trees, old)
		}
		p := balancer.Next(balancer.Input{LoadBalancer: klb, Trees: trees, Features: f, Now: time.Unix(1800000000, 0), Pause: time.Minute})
		deleted := slices.ContainsFunc(slices.Concat(p.Steps, p.Last), func(s balancer.Step) bool { return balancer.Target(s) == "trial" })
		if deleted != tc.deleted {
			t.Errorf("the former load balancer is %q, %q: steps %v, last %v; deletes the trial: want %t", tc.old, tc.operating, p.Steps, p.Last, tc.deleted)
		}
	}
}

// TestFlappingCloudReplacesOnce: a load balancer that serves was replaced, and is in ERROR again. That the
// cloud was away since is no reason to replace it again at once. If it died inside the deletion, and the load
// balancer is still there, nothing was replaced. One that serves nobody is tried at once.
func TestFlappingCloudReplacesOnce(t *testing.T) {
	for _, tc := range []struct{ serves, deleted, again bool }{{true, true, false}, {true, false, true}, {false, true, true}, {false, false, true}} {
		spoil := func(_ *memory.Cloud, lb *sdn.LoadBalancer) {
			if lb != nil {
				lb.Provisioning, lb.Operating = sdn.ProvisioningError, map[bool]string{true: "ONLINE", false: "ERROR"}[tc.serves]
			}
		}
		w := brokenWorld(t, "ovn", spoil)
		var last balancer.Actions
		remedies := func() []balancer.Fault {
			_, _, p, err := w.plan()
			if err != nil {
				t.Fatal(err)
			}
			last = p
			return p.Remedies
		}
		first := remedies()
		if len(first) != 1 || first[0].Replaces != tc.serves {
			t.Fatalf("%+v: remedies %+v, want one", tc, first)
		}
		begin := w.now
		if d, is := first[0].Step.(balancer.DeleteLoadBalancer); is { // the reason may be another one afterwards
			d.Because = "its listener cannot be deleted"
			first[0].Step = d
		}
		w.attempts.Tried(&first[0], begin, "")
		if tc.deleted {
			w.cloud.RemoveLoadBalancer(w.id)
			attempts := maps.Clone(w.attempts) // those of the new one in ERROR
			w.settle()
			w.id, w.attempts = w.cloud.LoadBalancers()[0].LoadBalancer.ID, attempts
			w.spoil(w.id, spoil)
		}
		w.now = begin.Add(time.Millisecond)
		if got := remedies(); len(got) > 0 {
			t.Errorf("%+v: remedies a moment later: %+v", tc, got)
		}
		w.attempts.Forgive()
		_ = remedies() // to look changes nothing
		again := remedies()
		if (len(again) > 0) != tc.again {
			t.Errorf("%+v: remedies after the cloud was away: %+v", tc, again)
		}
		if !tc.again {
			w.now = w.now.Add(time.Hour)
			again = remedies()
		}
		w.attempts.Tried(&again[0], w.now, "")
		if got := remedies(); len(got) > 0 || again[0].Try != map[bool]int{true: 1, false: 2}[tc.again] {
			t.Errorf("%+v: remedies after that, try %d: %+v", tc, again[0].Try, got)
		}
		if !tc.again && last.Wake < 30*time.Minute {
			t.Errorf("%+v: the next attempt is in %s, want in half an hour, as before the cloud was away", tc, last.Wake)
		}
	}
}

// TestTrialIn: a trial has failed once it is in ERROR, or is done at another provider.
func TestTrialIn(t *testing.T) {
	want := sdn.LoadBalancer{Name: "web", Provider: "ovn"}
	lb := func(name, provider string, state sdn.Provisioning) sdn.LoadBalancer {
		return sdn.LoadBalancer{Name: name, Provider: provider, Provisioning: state}
	}
	for _, tc := range []struct {
		name          string
		have          []sdn.LoadBalancer
		found, failed bool
	}{
		{"there is none", nil, false, false},
		{"only the load balancer itself", []sdn.LoadBalancer{lb("web", "ovn", sdn.ProvisioningError)}, false, false},
		{"it was deleted", []sdn.LoadBalancer{lb("web/trial", "ovn", sdn.ProvisioningDeleted)}, false, false},
		{"it is created, after another one", []sdn.LoadBalancer{lb("web", "ovn", sdn.ProvisioningActive), lb("web/trial", "ovn", sdn.ProvisioningActive)}, true, false},
		{"it is being created", []sdn.LoadBalancer{lb("web/trial", "ovn", sdn.ProvisioningCreating)}, true, false},
		{"it is in ERROR", []sdn.LoadBalancer{lb("web/trial", "ovn", sdn.ProvisioningError)}, true, true},
		{"it has another provider", []sdn.LoadBalancer{lb("web/trial", "amphora", sdn.ProvisioningActive)}, true, true},
		{"it is being created at another provider", []sdn.LoadBalancer{lb("web/trial", "amphora", sdn.ProvisioningCreating)}, true, false},
	} {
		trial, failed := balancer.TrialIn(tc.have, want)
		if (trial != nil) != tc.found || failed != tc.failed || trial != nil && trial.Name != "web/trial" {
			t.Errorf("%s: %+v, %v", tc.name, trial, failed)
		}
	}
	want.Provider = ""
	if _, failed := balancer.TrialIn([]sdn.LoadBalancer{lb("web/trial", "amphora", sdn.ProvisioningActive)}, want); failed {
		t.Error("any provider does, and the trial has failed")
	}
}
