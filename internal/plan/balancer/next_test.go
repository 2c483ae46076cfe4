// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var update = flag.Bool("update", false, "rewrite the plans in testdata")

// TestNext reads cases from testdata. Each is a name that says what is to be seen, what is wanted and
// what the cloud has, and the plan for it with the conditions that result. A case that begins with
// "then" continues the one before: what was tried is remembered.
//
//	vip 10.2.0.10          an address; without this line there is that one
//	port TCP:80 1 2        a port with endpoints 1 and 2
//	ranges 192.0.2.0/24    source ranges
//	provider amphora       of the spec
//	lb a as wanted         load balancer a is at the first address, with all that is wanted; "lb a" has nothing
//	at 10.2.0.11           the address of the load balancer
//	ERROR ONLINE           its provisioning and operating status
//	TCP:80 pool ERROR      the state of a part of it: listener, pool, or the number of a member; or gone, or disabled
//	named a                the status names it
//	noport, nolb           take one away again
//	of amphora             the provider of the load balancer
//	tried                  what the last plan repairs was accepted
//	refused                likewise, and the cloud refuses it
//	did                    the steps of the last plan were accepted
//	after 10s              since the last plan
func TestNext(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("reading testdata: %v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var h history
			for i := 0; i+1 < len(archive.Files); i += 2 {
				state, want := archive.Files[i], &archive.Files[i+1]
				got := h.next(t, state.Name, string(state.Data))
				if *update {
					want.Data = []byte(got)
				}
				if diff := cmp.Diff(string(want.Data), got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", state.Name, diff)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// history is a case and those that it continues.
type history struct {
	t        *testing.T
	klb      *v1.KuryrLoadBalancer
	vips     bool // the addresses are not the usual one
	trees    []sdn.LoadBalancer
	features sdn.Features
	attempts balancer.Attempts
	now      time.Time
	last     balancer.Actions
}

const moment = time.Second // the first pause of the queue

func (h *history) next(t *testing.T, name, text string) string {
	t.Helper()
	if !strings.HasPrefix(name, "then") {
		*h = history{klb: newWorld(t).klb, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	}
	h.t = t
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			h.line(f)
		}
	}
	h.learn()
	h.last = balancer.Next(balancer.Input{LoadBalancer: h.klb, Trees: h.trees, Features: h.features, Attempts: h.attempts, Now: h.now, Pause: pause})
	h.attempts = h.last.Attempts
	return h.say()
}

// learn reads what the provider can do.
func (h *history) learn() {
	f, err := cloud().Backend("cluster").Features(h.t.Context(), balancer.Provider(h.klb, h.trees, nil))
	if err != nil {
		h.t.Fatal(err)
	}
	h.features = f
}

// line reads one line of a state.
func (h *history) line(f []string) {
	h.t.Helper()
	spec := &h.klb.Spec
	switch f[0] {
	case "vip":
		subnet := vips4
		if strings.Contains(f[1], ":") {
			subnet = vips6
		}
		vip := v1.VIPAddress{IP: f[1], SubnetID: subnet}
		if !h.vips {
			h.vips, spec.VIPs = true, nil
		}
		spec.VIPs = append(spec.VIPs, vip)
	case "port":
		protocol, number := listener(h.t, f[1])
		spec.Listeners = slices.DeleteFunc(spec.Listeners, func(l v1.ListenerSpec) bool { return l.Protocol == protocol && l.Port == number })
		l := port(protocol, number)
		for _, text := range f[2:] {
			l.Members = append(l.Members, member(h.number(text)))
		}
		spec.Listeners = append(spec.Listeners, l)
	case "noport":
		protocol, number := listener(h.t, f[1])
		spec.Listeners = slices.DeleteFunc(spec.Listeners, func(l v1.ListenerSpec) bool { return l.Protocol == protocol && l.Port == number })
	case "ranges":
		spec.SourceRanges = f[1:]
	case "provider":
		spec.Provider = f[1]
	case "floatingip":
		spec.PublicIP = &v1.PublicIPSpec{NetworkID: outsideNet}
	case "named":
		h.klb.Status.LoadBalancers = append(h.klb.Status.LoadBalancers, v1.LoadBalancerStatus{ID: f[1]})
	case "lb":
		h.add(f[1], len(f) > 2)
	case "nolb":
		h.trees = slices.DeleteFunc(h.trees, func(lb sdn.LoadBalancer) bool { return lb.ID == f[1] })
	case "after":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			h.t.Fatal(err)
		}
		h.now = h.now.Add(d)
	case "did":
		for _, s := range h.last.Steps {
			h.attempts.Did(s, h.now, moment, "")
			h.attempts.Removed(s, h.now, moment, "")
		}
	case "tried", "refused":
		why := map[string]string{"refused": "Octavia refuses it"}[f[0]]
		for i := range h.last.Remedies {
			h.attempts.Tried(&h.last.Remedies[i], h.now, why)
		}
		for _, s := range h.last.Steps {
			h.attempts.Removed(s, h.now, moment, why)
		}
	default:
		h.tree(f)
	}
}

func (h *history) number(text string) int {
	h.t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

func listener(t *testing.T, text string) (protocol string, number int32) {
	t.Helper()
	protocol, after, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(after)
	if err != nil {
		t.Fatalf("%q is neither a port nor anything else that is known", text)
	}
	return protocol, int32(n)
}

// add adds a load balancer.
func (h *history) add(id string, whole bool) {
	h.learn()
	want, _ := balancer.Want(h.klb, h.features)
	lb := want[min(len(h.trees), len(want)-1)]
	lb.ID, lb.Provider, lb.Provisioning, lb.Operating = id, h.features.Provider, sdn.ProvisioningActive, "ONLINE"
	if !whole {
		lb.Listeners = nil
	}
	for i := range lb.Listeners {
		l := &lb.Listeners[i]
		l.ID, l.Provisioning = fmt.Sprintf("%s:%d", l.Protocol, l.Port), sdn.ProvisioningActive
		l.Pool.ID, l.Pool.Provisioning = "pool of "+l.ID, sdn.ProvisioningActive
		for j := range l.Pool.Members {
			m := &l.Pool.Members[j]
			m.ID, m.Provisioning = m.IP, sdn.ProvisioningActive
		}
	}
	h.trees = append(h.trees, lb)
}

// tree changes the load balancer that was added last.
func (h *history) tree(f []string) {
	h.t.Helper()
	if len(h.trees) == 0 {
		h.t.Fatalf("%q is about no load balancer", f)
	}
	lb := &h.trees[len(h.trees)-1]
	switch f[0] {
	case "at":
		lb.VIP.IP = f[1]
		return
	case "of":
		lb.Provider = f[1]
		return
	case "ACTIVE", "ERROR", "PENDING_UPDATE", "PENDING_CREATE", "PENDING_DELETE":
		if lb.Provisioning = sdn.Provisioning(f[0]); len(f) > 1 {
			lb.Operating = f[1]
		}
		return
	case "disabled":
		lb.Disabled = true
		return
	case "unmarked":
		lb.Unmarked = true
		return
	}
	protocol, number := listener(h.t, f[0])
	i := slices.IndexFunc(lb.Listeners, func(l sdn.Listener) bool { return l.Protocol == protocol && l.Port == number })
	if i < 0 {
		h.t.Fatalf("load balancer %s has no listener %s", lb.ID, f[0])
	}
	l := &lb.Listeners[i]
	switch part, state := f[1], f[2]; {
	case part == "listener" && state == "gone":
		lb.Listeners = slices.Delete(lb.Listeners, i, i+1)
	case part == "listener" && state == "disabled":
		l.Disabled = true
	case part == "listener":
		l.Provisioning = sdn.Provisioning(state)
	case part == "pool" && state == "gone":
		l.Pool = nil
	case part == "pool" && state == "disabled":
		l.Pool.Disabled = true
	case part == "pool":
		l.Pool.Provisioning = sdn.Provisioning(state)
	default:
		ip := member(h.number(part)).IP
		for j := range l.Pool.Members {
			if m := &l.Pool.Members[j]; m.IP == ip && state == "gone" {
				l.Pool.Members = slices.Delete(l.Pool.Members, j, j+1)
				return
			} else if m.IP == ip && state == "disabled" {
				m.Disabled = true
			} else if m.IP == ip {
				m.Provisioning = sdn.Provisioning(state)
			}
		}
	}
}

// say describes the last plan: steps in their order, then what waits, then the conditions after it, but
// for those that say nothing else.
func (h *history) say() string {
	var b strings.Builder
	for _, s := range h.last.Steps {
		fmt.Fprintln(&b, s)
	}
	for i := range h.last.Remedies {
		r := &h.last.Remedies[i]
		fmt.Fprintf(&b, "repair: %s (try %d of %d)", r, r.Try, r.Of)
		if r.Replaces {
			fmt.Fprint(&b, ", once a trial shows that another can be created")
		}
		fmt.Fprintln(&b)
	}
	for _, s := range h.last.Last {
		fmt.Fprintln(&b, "last:", s)
	}
	for _, id := range slices.Concat(h.last.Busy, h.last.Unfinished) {
		fmt.Fprintln(&b, "wait for", id)
	}
	if h.last.Wake > 0 {
		fmt.Fprintln(&b, "plan again in", h.last.Wake)
	}
	if h.last.Withholds {
		fmt.Fprintln(&b, "no floating IP")
	}
	if h.last.Open {
		fmt.Fprintln(&b, "other clients may still come in")
	}
	r := balancer.Result{
		Report: h.last.Report, Changed: len(h.last.Steps)+len(h.last.Remedies)+len(h.last.Last) > 0,
		Found:   balancer.Found{Trees: h.trees, Seen: true, Features: h.features, Asked: true},
		Address: balancer.PlacedAddress{Placed: true, Withheld: h.last.Withholds},
	}
	if waits := slices.Concat(h.last.Busy, h.last.Unfinished); len(waits) > 0 {
		r.Waiting.ID = waits[0]
	}
	for _, c := range balancer.Describe(&v1.KuryrLoadBalancerStatus{}, h.klb, &r) {
		if !(c.Type == v1.ConditionSupported && c.Is || c.Reason == v1.ReasonPending || c.Reason == "Working" || c.Type == v1.ConditionInSync) {
			fmt.Fprintf(&b, "%s %s %s: %s\n", c.Type, map[bool]metav1.ConditionStatus{true: "True", false: "False"}[c.Is], c.Reason, c.Text)
		}
	}
	return b.String()
}
