// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestOperatorsWords: a person who must act in Octavia gets commands with the IDs. The statement for
// Octavia's database is the one that the document explains.
func TestOperatorsWords(t *testing.T) {
	spent := &Result{Report: Report{Spent: true, Tried: []string{"pool p: tried"}}, Found: Found{Trees: []sdn.LoadBalancer{{ID: "lb-4"}, {ID: "lb-6"}}}}
	reason, message := Unready(&v1.KuryrLoadBalancer{}, spent)
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
	now := metav1.Now()
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}
	busy := Waiting{ID: strings.Repeat("i", 36), Since: now.Time, Stuck: true, Release: now.Add(5 * time.Minute)}
	const most = 1024 - 64 // an Event's note, and the text before it
	if _, text := Unready(klb, &Result{Waiting: busy}); len(text) > most || !strings.Contains(text, fmt.Sprintf(setError, busy.ID)) {
		t.Errorf("a busy load balancer: %d characters %q, want all of them in an Event, with the statement", len(text), text)
	}
}

// deviations are what keeps a load balancer from being settled, each with what Ready says then.
var deviations = []struct {
	name         string
	of           func(*Result)
	reason, text string // of Ready; reason empty: as long as it is pending
}{
	{"a failure", func(r *Result) { r.Failure = &Failure{v1.ReasonOverQuota, "the quota is full"} }, v1.ReasonOverQuota, "the quota is full"},
	{"repairs are spent", func(r *Result) { r.Spent, r.Broken, r.Tried = true, []string{"lb"}, []string{"twice"} }, v1.ReasonLoadBalancerInError, "did not help. To see the objects: openstack loadbalancer status show lb-1. Tried: twice"},
	{"what serves waits for its turn", func(r *Result) { r.Broken, r.Replacement.Waits = []string{"listener l"}, "others first" }, v1.ReasonLoadBalancerInError, "clients are served: listener l. Kuryr replaces it later: others first"},
	{"a repair is tried", func(r *Result) { r.Broken, r.Tried = []string{"pool p"}, []string{"members again"} }, v1.ReasonLoadBalancerInError, "Kuryr repairs it: members again"},
	{"an object in ERROR", func(r *Result) { r.Broken = []string{"pool p", "pool q"} }, v1.ReasonLoadBalancerInError, "ERROR in Octavia: pool p, pool q"},
	{"refused members", func(r *Result) { r.RefusedMembers = []string{"10.1.0.5", "10.1.0.6"} }, v1.ReasonRejected, "refuses members: 10.1.0.5; 10.1.0.6. The other"},
	{"disabled", func(r *Result) { r.Disabled = []string{"listener l"} }, v1.ReasonDisabled, "disabled in Octavia: listener l. Kuryr does not change that; the commands enable it again"},
	{"disabled, and nothing may change", func(r *Result) {
		r.Disabled, r.Features = []string{"listener l"}, sdn.Features{DisabledBlocks: true, Provider: "ovn"}
	}, v1.ReasonDisabled, "enable it again. Until then Kuryr does not change endpoints, nor add ports: with provider ovn"},
	{"a floating IP is refused", func(r *Result) { r.Address.Problem, r.Address.Refused = "no route", true }, v1.ReasonFloatingIPRefused, "no route"},
	{"a floating IP is another's", func(r *Result) { r.Address.Problem = "it is taken" }, v1.ReasonFloatingIPNotUsable, "it is taken"},
	{"without effect", func(r *Result) { r.NotApplied = []Step{DeletePool{ID: "p"}, DeletePool{ID: "q"}} }, v1.ReasonNotApplied, DeletePool{ID: "p"}.String() + "; " + DeletePool{ID: "q"}.String() + ". Kuryr tries again by itself"},
	{"refused as busy", func(r *Result) { r.Blocked = "lb-1" }, v1.ReasonLoadBalancerBusy, "Load balancer lb-1 refuses each change as busy"},
	{"busy for long", func(r *Result) { r.Waiting = Waiting{ID: "lb-1", Stuck: true} }, v1.ReasonLoadBalancerBusy, "Load balancer lb-1 has been busy in Octavia since"},
	{"no endpoint has the group", func(r *Result) { r.Changed, r.Group.Waits, r.Group.ID = true, true, "g" }, "", "once an endpoint has its security group, g"},
	{"busy", func(r *Result) { r.Waiting = Waiting{ID: "lb-1"} }, "", "still changing"},
	{"changed", func(r *Result) { r.Changed = true }, "", "still changing"},
	{"not read", func(r *Result) { r.Seen = false }, "", "still changing"},
	{"not all objects were found", func(r *Result) { r.Lost = true }, "", "still changing"},
	{"some members are left out", func(r *Result) { r.Partial = true }, "", "still changing"},
	{"the floating IP is not placed", func(r *Result) { r.Address.Placed = false }, "", "still changing"},
	{"the provider is to change", func(r *Result) { r.Replacement.Deferred = "ovn" }, "", "still changing"},
}

func settledResult() *Result {
	return &Result{Found: Found{Seen: true, Trees: []sdn.LoadBalancer{{ID: "lb-1"}}}, Address: PlacedAddress{Placed: true}}
}

// TestReadyTells: what keeps a load balancer from being as wanted, alone or with something else,
// makes it not ready, or says that it is in work if it has served before.
func TestReadyTells(t *testing.T) {
	klb := &v1.KuryrLoadBalancer{Spec: v1.KuryrLoadBalancerSpec{PublicIP: &v1.PublicIPSpec{}}}
	served := klb.DeepCopy()
	served.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}
	if all := Describe(&v1.KuryrLoadBalancerStatus{}, klb, settledResult()); len(all) != 3 || !all[0].Is || all[0].Text != "The cloud has the load balancer as wanted." || all[1].Is || !all[2].Is {
		t.Errorf("settled: %+v", all)
	}
	for i, d := range deviations {
		for _, other := range deviations[i:] {
			r := settledResult()
			d.of(r)
			other.of(r)
			if r.IsSettled() {
				t.Errorf("%s, and %s: settled", d.name, other.name)
			}
		}
		r := settledResult()
		d.of(r)
		reason := d.reason
		if reason == "" {
			reason = v1.ReasonPending
		}
		if got, text := Unready(klb, r); got != reason || !strings.Contains(text, d.text) {
			t.Errorf("%s: %s, %q, want %s, %q", d.name, got, text, reason, d.text)
		}
		for _, is := range []*v1.KuryrLoadBalancer{klb, served} {
			all := Describe(&v1.KuryrLoadBalancerStatus{}, is, r)
			if says := all[0].Type == v1.ConditionReady && !all[0].Is; says != (is == klb || d.reason != "") {
				t.Errorf("%s, served before %t: %+v", d.name, is == served, all)
			}
			if last := all[len(all)-1]; last.Type != v1.ConditionProgressing || last.Is == r.Spent {
				t.Errorf("%s: %+v", d.name, last)
			}
		}
	}
}

// TestReadyWithExceptions: a ready load balancer tells what differs and stays so.
func TestReadyWithExceptions(t *testing.T) {
	for want, of := range map[string]func(*Result){
		"as wanted. These fields apply to new load balancers only: lb-1 keeps its flavor": func(r *Result) { r.Kept = []v1.UnchangedField{{Field: "flavorID", Of: "lb-1"}} },
		"as wanted. Octavia accepted these changes and kept its own values":               func(r *Result) { r.AcceptedAsIs = []Step{UpdatePool{}} },
		"tries the step again: one; two.":                                                 func(r *Result) { r.Failed = []string{"one", "two"} },
		"as wanted. Somebody disabled in Octavia: member m":                               func(r *Result) { r.DisabledMembers = []string{"member m"} },
		"as wanted. With provider ovn, a UDP client": func(r *Result) {
			r.Trees[0].Listeners = []sdn.Listener{{Protocol: "TCP"}, {Protocol: "UDP"}}
			r.Features = sdn.Features{KeepsUDPClients: true, Provider: "ovn"}
		},
	} {
		r := settledResult()
		of(r)
		if all := Describe(&v1.KuryrLoadBalancerStatus{}, &v1.KuryrLoadBalancer{}, r); !all[0].Is || !strings.Contains(all[0].Text, want) {
			t.Errorf("%+v, want %q", all, want)
		}
	}
	r := settledResult()
	if r.Features = (sdn.Features{KeepsUDPClients: true}); strings.Contains(r.ready(), "UDP") {
		t.Errorf("without UDP: %s", r.ready())
	}
	r.Trees[0].Listeners = []sdn.Listener{{Protocol: "UDP"}}
	if r.Features = (sdn.Features{}); strings.Contains(r.ready(), "UDP") {
		t.Errorf("the provider keeps no UDP client: %s", r.ready())
	}
}

// TestDescribeKeeps: the status says what was last known of the cloud, until more is known.
func TestDescribeKeeps(t *testing.T) {
	public, group := &v1.PublicIPStatus{IP: "198.51.100.7"}, v1.SecurityGroupState("applied")
	before := v1.KuryrLoadBalancerStatus{
		LoadBalancers: []v1.LoadBalancerStatus{{ID: "old"}}, SecurityGroupID: "old", PublicIP: public,
		UnreachedMembers: []v1.UnreachedMember{{IP: "10.1.0.5"}}, Unsupported: []v1.UnsupportedField{{Field: "timeouts"}},
	}
	two := []sdn.LoadBalancer{{ID: "lb-1"}, {ID: "lb-2"}}
	for _, tc := range []struct {
		name string
		of   Result
		want string
	}{
		{"nothing is known", Result{}, "old, group old, 1 unreached, public true, 1 unsupported"},
		{"trees of another time", Result{Found: Found{Trees: two}}, "old, group old, 1 unreached, public true, 1 unsupported"},
		{"trees", Result{Found: Found{Seen: true, Trees: two[:1]}}, "lb-1, group old, 1 unreached, public true, 1 unsupported"},
		{"trees, changed since", Result{Found: Found{Seen: true, Trees: two[:1]}, Changed: true}, "old, group old, 1 unreached, public true, 1 unsupported"},
		{"more trees, changed since", Result{Found: Found{Seen: true, Trees: two}, Changed: true}, "lb-1 lb-2, group old, 1 unreached, public true, 1 unsupported"},
		{"the group", Result{Group: Group{Known: true, ID: "new", State: group}}, "old, group new, 0 unreached, public true, 1 unsupported"},
		{"the group, until the floating IP is taken off", Result{Group: Group{Known: true}, Address: PlacedAddress{Withheld: true}}, "old, group old, 0 unreached, public true, 1 unsupported"},
		{"the group, once it is", Result{Group: Group{Known: true}, Address: PlacedAddress{Withheld: true, Placed: true}}, "old, group , 0 unreached, public false, 1 unsupported"},
		{"what the provider does", Result{Found: Found{Asked: true}}, "old, group old, 1 unreached, public true, 0 unsupported"},
	} {
		s := before
		all := Describe(&s, &v1.KuryrLoadBalancer{}, &tc.of)
		var ids []string
		for _, lb := range s.LoadBalancers {
			ids = append(ids, lb.ID)
		}
		got := fmt.Sprintf("%s, group %s, %d unreached, public %t, %d unsupported", strings.Join(ids, " "), s.SecurityGroupID, len(s.UnreachedMembers), s.PublicIP != nil, len(s.Unsupported))
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		if supported := all[0].Type == v1.ConditionSupported; supported != tc.of.Asked {
			t.Errorf("%s: %+v", tc.name, all)
		}
	}
}

// TestHoldsTurn: who replaces what serves keeps the turn until all is complete again, unless what
// fails concerns itself only.
func TestHoldsTurn(t *testing.T) {
	replaced := &v1.KuryrLoadBalancer{Status: v1.KuryrLoadBalancerStatus{Conditions: []metav1.Condition{{Type: v1.ConditionProgressing, Reason: v1.ReasonReplacing}}}}
	for _, tc := range []struct {
		name string
		klb  *v1.KuryrLoadBalancer
		of   func(*Result)
		want bool
	}{
		{"nothing is replaced", &v1.KuryrLoadBalancer{}, func(*Result) {}, false},
		{"it begins", &v1.KuryrLoadBalancer{}, func(r *Result) { r.Replacement.Begun = true }, true},
		{"it goes on", replaced, func(*Result) {}, true},
		{"it is complete", replaced, func(r *Result) { r.Complete = true }, false},
		{"it waits", replaced, func(r *Result) { r.Replacement.Waits = "others first" }, false},
		{"it is spent", replaced, func(r *Result) { r.Spent = true }, false},
		{"the quota is full", replaced, func(r *Result) { r.Failure = &Failure{Reason: v1.ReasonOverQuota} }, true},
		{"the flavor is wrong", replaced, func(r *Result) { r.Failure = &Failure{Reason: v1.ReasonRejected} }, false},
	} {
		r := settledResult()
		tc.of(r)
		if got := HoldsTurn(tc.klb, r); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
		if c := Progress(tc.klb, r); (c.Reason == v1.ReasonReplacing) != tc.want {
			t.Errorf("%s: %+v", tc.name, c)
		}
	}
	waits := &Result{Replacement: Replacement{Waits: "others first", Deferred: "ovn"}}
	if c := Progress(replaced, waits); !strings.Contains(c.Text, "provider ovn still serves: others first") {
		t.Errorf("a provider that waits: %+v", c)
	}
	if c := Progress(replaced, &Result{Replacement: Replacement{Begun: true}}); !strings.Contains(c.Text, "as a trial") {
		t.Errorf("begun: %+v", c)
	}
}

// TestFirst: a text names four of many.
func TestFirst(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "a", 4: "a, b, c, d", 5: "a, b, c, d and 1 others"} {
		if got := first(strings.Split("abcde", "")[:n]); got != want {
			t.Errorf("of %d: %q, want %q", n, got, want)
		}
	}
}

// TestSameAddress: Octavia may write an address of the spec in another way.
func TestSameAddress(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"10.1.0.5", "10.1.0.5", true}, {"10.1.0.5", "10.1.0.6", false},
		{"FD00:0:0::5", "fd00::5", true}, {"fd00::5", "fd00::6", false},
		{"no address", "no address", true}, {"no address", "nor this", false},
	} {
		if got := sameAddress(tc.a, tc.b); got != tc.want {
			t.Errorf("sameAddress(%q, %q) = %t", tc.a, tc.b, got)
		}
	}
}

// TestSorted: of several load balancers at one address the first is kept: the one that the status names,
// else one that is not in ERROR.
func TestSorted(t *testing.T) {
	all := []sdn.LoadBalancer{
		{ID: "a", Provisioning: sdn.ProvisioningError}, {ID: "d", Provisioning: sdn.ProvisioningActive},
		{ID: "b", Provisioning: sdn.ProvisioningDeleted}, {ID: "c", Provisioning: sdn.ProvisioningActive},
	}
	for keep, want := range map[string]string{"": "c d a", "a": "a c d", "b": "c d a", "d": "d c a"} {
		var ids []string
		for _, lb := range sorted(all, []string{keep}) {
			ids = append(ids, lb.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("keep %q: %s, want %s", keep, got, want)
		}
	}
}
