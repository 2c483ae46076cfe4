// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// octaviaCalls are the calls that Octavia answers.
var octaviaCalls = []string{
	memory.GetFeatures, memory.CreateLoadBalancer, memory.GetLoadBalancer, memory.ListLoadBalancers, memory.DeleteLoadBalancer,
	memory.FailOver, memory.CreateListener, memory.UpdateListener, memory.DeleteListener, memory.CreatePool, memory.UpdatePool, memory.ChangeMembers,
}

// outage makes Octavia answer nothing until end is called.
func (b *bed) outage() (end func()) {
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if !slices.Contains(octaviaCalls, call) {
			return nil
		}
		return fmt.Errorf("connection refused: %w", sdn.ErrUnavailable)
	})
	return func() { b.onBefore(nil) }
}

// otherMembers replaces the endpoints.
func otherMembers(s *v1.KuryrLoadBalancerSpec) {
	s.Listeners = []v1.ListenerSpec{balancerPort(80, 3, 4), balancerPort(443, 3, 4)}
}

// TestOutageOfOctavia: during an outage Octavia gets only probes, whatever changes. After the
// outage all changes of the meantime are made.
func TestOutageOfOctavia(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it waits for pauses of production; 'make long' runs it")
	}
	alone(t)
	const n, lasts = 20, 8 * time.Second
	b := newSimBed(t)
	b.launch(1000)
	before, after := addresses(0, 2), addresses(1, 2)
	name := func(i int) string { return fmt.Sprint("web-", i) }
	all, members := map[string]*oneService{}, map[string][]string{"new": after}
	for i := range n {
		b.service(name(i), ports(1), by("ovn"))
		all[name(i)], members[name(i)] = &oneService{slice: b.sliceWith(1, name(i), before)}, after
	}
	for i := range n {
		b.eventuallyIn(time.Minute, name(i)+" is in the cloud", func() bool { return b.atRest(name(i), 1, before) })
	}
	b.slow(`{calls: [{on: "load-balancer * /**", fault: 503}]}`)
	for _, s := range all {
		b.moveTo(s, after)
	}
	b.service("new", ports(1), by("ovn"))
	b.sliceWith(1, "new", after)
	for _, what := range slices.Sorted(maps.Keys(members)) {
		b.eventuallyIn(time.Minute, "it is told of "+what, func() bool { return hasWords(b.readyOf(what).Message, "Octavia has not answered since ") })
	}
	b.api.Reset()
	time.Sleep(lasts)
	asked := 0
	for _, c := range b.api.Counts() {
		if c.Service == "load-balancer" {
			asked += c.Calls
		}
	}
	if most := int(lasts/(2*time.Second)) + 1; asked == 0 || asked > most {
		t.Errorf("Octavia was asked %d times in %s while it was away, want a probe each two seconds", asked, lasts)
	}
	b.slow("{}")
	b.follow(members)
}

func (b *bed) readyMessage(name string) string {
	for _, c := range b.klb(name).Status.Conditions {
		if c.Type == v1.ConditionReady {
			return c.Message
		}
	}
	return ""
}

// TestRetriedAfterAnOutage: a load balancer that is still in ERROR after all tries is tried again
// when an outage ends, also if it was read during the outage. It does not wait for the end of the
// pause after the last try.
func TestRetriedAfterAnOutage(t *testing.T) {
	b := balancerBed(t)
	b.mend = 3 * time.Second // the pause is 30 times as long
	b.balancer("web")
	b.start()
	b.realised("web")
	b.breaking(true)
	b.respec("web", otherMembers)
	b.eventually("all was tried", func() bool {
		all := b.klb("web").Status.Conditions
		ready := meta.FindStatusCondition(all, v1.ConditionReady)
		return ready.Reason == v1.ReasonLoadBalancerInError && meta.IsStatusConditionFalse(all, v1.ConditionProgressing)
	})
	end := b.outage()
	b.balancer("other", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.11" })
	b.eventually("it is an outage", func() bool { return hasWords(b.readyMessage("other"), "connection refused") })
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) {
		s.Listeners = []v1.ListenerSpec{balancerPort(80, 3, 5), balancerPort(443, 3, 5)}
	})
	b.eventually("its condition names the outage", func() bool { return hasWords(b.readyMessage("web"), "connection refused") })
	time.Sleep(b.mend / 3) // it is no slow answer
	b.breaking(false)
	end()
	back := time.Now()
	b.realised("web")
	b.realised("other")
	if took := time.Since(back); took > 15*time.Second {
		t.Errorf("it was tried anew %s after the outage, want it at once", took)
	}
}

// breaking makes each change of a load balancer end in ERROR, or stops that.
func (b *bed) breaking(broken bool) {
	b.t.Helper()
	f, err := memory.New().Backend("another").Features(b.t.Context(), "ovn")
	if err != nil {
		b.t.Fatal(err)
	}
	b.cloud.SetProvider(memory.Provider{Features: f, Near: true, Broken: broken})
}

// TestOutageOfNeutron: during an outage of Neutron load balancers follow their endpoints. Floating
// IPs follow after the outage.
func TestOutageOfNeutron(t *testing.T) {
	b := balancerBed(t)
	b.balancer("web", public)
	b.start()
	b.realised("web")
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if slices.Contains([]string{memory.ListFloatingIPs, memory.CreateFloatingIP, memory.Associate, memory.Dissociate, memory.DeleteFloatingIP}, call) {
			return fmt.Errorf("connection refused: %w", sdn.ErrUnavailable)
		}
		return nil
	})
	b.balancer("new", public, func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.11" })
	b.eventually("its load balancer is there without a floating IP", func() bool { return len(b.serves("new")) == 4 })
	asked := func() int { return b.cloud.Calls(memory.ListFloatingIPs) + b.cloud.Calls(memory.CreateFloatingIP) }
	b.eventually("it has asked for one", func() bool { return asked() > 2 })
	b.respec("web", otherMembers)
	b.eventually("the other one follows its endpoints", func() bool { return slices.Contains(b.serves("web"), "TCP:80>10.1.0.3") })
	b.onBefore(nil)
	b.realised("new")
	b.realised("web")
	if n := len(b.publicOnes()); n != 2 {
		t.Errorf("there are %d floating IPs, want 2: %q", n, b.publicOnes())
	}
}

// TestFailingLoadBalancerIsNoOutage: errors of Octavia for one load balancer's requests do not
// delay other load balancers.
func TestFailingLoadBalancerIsNoOutage(t *testing.T) {
	b := balancerBed(t)
	b.balancer("web")
	b.start()
	b.realised("web")
	b.fail(memory.CreateLoadBalancer, fmt.Errorf("Octavia answered 500: %w", sdn.ErrUnavailable))
	b.balancer("sick", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.11" })
	b.eventually("it has been tried some times", func() bool { return b.cloud.Calls(memory.CreateLoadBalancer) > 5 })
	b.respec("web", otherMembers)
	b.realised("web")
	if text := b.readyMessage("sick"); !hashed && strings.Contains(text, "has not answered") || !hasWords(text, "answered 500") {
		t.Errorf("it is said: %s", text)
	}
}

// stubborn makes load balancers stay busy after each change.
func (b *bed) stubborn() {
	b.t.Helper()
	f, err := b.cloud.Backend("cluster").Features(b.t.Context(), "ovn")
	if err != nil {
		b.t.Fatal(err)
	}
	b.cloud.SetProvider(memory.Provider{Features: f, Near: true, Busy: memory.UntilSettled})
}

// TestWedgedIsTold: a load balancer that stays busy is reported, with the time since when and what
// to do. A new process knows the time, too.
func TestWedgedIsTold(t *testing.T) {
	b := balancerBed(t)
	b.stuck = time.Second
	b.balancer("web")
	b.start()
	b.realised("web")
	b.stubborn()
	b.respec("web", otherMembers)
	note := b.eventOn("web", "LoadBalancerBusy")
	b.mentions("Event", note, "openstack loadbalancer status show "+b.tree("web").ID, "octavia-driver-agent", "octavia-worker", "provisioning_status = 'ERROR'", "endpoints wait")
	klb := b.klb("web")
	if klb.Status.WaitingFor == nil || !hasWords(b.readyMessage("web"), klb.Status.WaitingFor.Since.UTC().Format(time.RFC3339)) {
		t.Fatalf("status = %+v, with message %q, want the same time in both", klb.Status.WaitingFor, b.readyMessage("web"))
	}
	since := klb.Status.WaitingFor.Since
	b.stop()
	time.Sleep(1100 * time.Millisecond)
	b.start()
	b.Delete("web")
	b.eventually("it is told that the Service waits", func() bool { return hasWords(b.readyMessage("web"), "the Service and its namespace stay") })
	if got := b.klb("web").Status.WaitingFor; got == nil || !got.Since.Equal(&since) {
		t.Errorf("after a restart it waits since %v, want %v", got, since)
	}
	b.cloud.Settle(b.tree("web").ID)
	b.eventually("it is being deleted", func() bool { return b.tree("web") != nil && b.tree("web").Provisioning == "PENDING_DELETE" })
	b.cloud.Settle(b.tree("web").ID)
	b.removed("web")
}

// Delete deletes a KuryrLoadBalancer.
func (b *bed) Delete(name string) {
	b.t.Helper()
	if err := b.client.Delete(b.t.Context(), b.klb(name)); err != nil {
		b.t.Fatal(err)
	}
}

// releasing is a bed with a Service that has a floating IP. Its load balancer then stays in
// PENDING_DELETE.
func releasing(t *testing.T) (*serviceBed, *corev1.Service) {
	t.Helper()
	b := newWholeBed(t)
	b.current.Services.ReleaseAfter = metav1.Duration{Duration: 2 * time.Second}
	b.settings.Set(b.current)
	b.launch()
	svc := b.service("web", balanced)
	b.slice("web", "web-1", "10.1.0.5")
	b.members("web", "10.1.0.5")
	b.realised("web")
	b.stubborn()
	return b, b.now(svc)
}

// holders returns the Services that hold cluster IPs.
func (b *serviceBed) holders() []corev1.Service {
	b.t.Helper()
	var list corev1.ServiceList
	if err := b.client.List(b.t.Context(), &list, client.InNamespace(holderNamespace), client.HasLabels{v1.ClusterIPHolderLabel}); err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

// TestReleaseAfter: Octavia does not delete a Service's load balancer. After a while the Service is
// released, without its floating IP. No other Service gets its cluster IP until Octavia has deleted
// the load balancer.
func TestReleaseAfter(t *testing.T) {
	b, svc := releasing(t)
	b.delete(svc)
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	b.removed("web")
	if left := b.publicOnes(); len(left) > 0 {
		t.Errorf("floating IPs are left: %q", left)
	}
	b.eventually("its cluster IP is held", func() bool {
		h := b.holders()
		return len(h) == 1 && h[0].Spec.Type == corev1.ServiceTypeClusterIP && h[0].Spec.ClusterIP == svc.Spec.ClusterIP
	})
	if h := b.holders()[0]; len(h.Spec.Selector) > 0 || h.Labels["service.kubernetes.io/service-proxy-name"] == "" || b.balancerOf(h.Name) != nil {
		t.Errorf("the holder is %+v, want one that nothing serves", h)
	}
	b.eventSaying("web", "ClusterIPHeld", svc.Spec.ClusterIP)
	other := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"},
		Spec:       corev1.ServiceSpec{ClusterIP: svc.Spec.ClusterIP, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := b.client.Create(t.Context(), other); !apierrors.IsInvalid(err) {
		t.Fatalf("creating a Service with its cluster IP: %v, want it refused", err)
	}
	b.restart()
	if n := len(b.holders()); n != 1 {
		t.Errorf("%d holders after a restart, want 1", n)
	}
	for _, item := range b.cloud.LoadBalancers() {
		b.cloud.Settle(item.LoadBalancer.ID)
	}
	b.eventually("Octavia is done, and the cluster IP is free", func() bool { return b.tree("web") == nil && len(b.holders()) == 0 })
	b.eventually("another Service gets it", func() bool { return b.client.Create(t.Context(), other) == nil })
}

// TestReleasedAndMadeAnew: a new Service with the name of a released one is served at another
// cluster IP, while the old load balancer still exists.
func TestReleasedAndMadeAnew(t *testing.T) {
	b, svc := releasing(t)
	old := b.tree("web").ID
	b.delete(svc)
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	b.eventually("its cluster IP is held", func() bool { h := b.holders(); return len(h) == 1 && h[0].Spec.ClusterIP == svc.Spec.ClusterIP })
	b.unbusy()
	again := b.service("web", balanced)
	b.eventually("the new one is served", func() bool {
		for _, item := range b.cloud.LoadBalancers() {
			if lb := item.LoadBalancer; lb.ID != old && lb.VIP.IP == again.Spec.ClusterIP {
				return len(lb.Listeners) == 1 && lb.Listeners[0].Pool != nil && len(lb.Listeners[0].Pool.Members) == 1
			}
		}
		return false
	})
	b.eventually("it has a floating IP", func() bool { return b.ingress(again) != "" })
	b.cloud.Settle(old)
	b.realised("web")
	b.eventually("the old cluster IP is free", func() bool { return len(b.holders()) == 0 })
}

// TestReleaseInAnOutage: a deleted Service does not wait long for an Octavia that does not answer.
// Its cluster IP is held until Octavia is known to have deleted the load balancer.
func TestReleaseInAnOutage(t *testing.T) {
	b, svc := releasing(t)
	b.unbusy()
	end := b.outage()
	b.delete(svc)
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	b.eventually("its cluster IP is held", func() bool { h := b.holders(); return len(h) == 1 && h[0].Spec.ClusterIP == svc.Spec.ClusterIP })
	if left := b.publicOnes(); len(left) > 0 {
		t.Errorf("floating IPs are left: %q", left)
	}
	time.Sleep(2 * time.Second)
	if len(b.holders()) != 1 || b.tree("web") == nil {
		t.Errorf("%d holders in the outage, want 1", len(b.holders()))
	}
	end()
	b.eventually("the load balancer is gone, and the cluster IP free", func() bool { return b.tree("web") == nil && len(b.holders()) == 0 })
}

// TestReleaseWithoutTheRole: a controller with the Role of an earlier version may not create
// Services. It reports that, and the Service waits for Octavia as before.
func TestReleaseWithoutTheRole(t *testing.T) {
	o := newOlder(t)
	o.install()
	o.grant(everything)
	o.whole, o.stuck = true, time.Second
	o.current.Services.ReleaseAfter = metav1.Duration{Duration: time.Second}
	o.settings.Set(o.current)
	o.launch()
	svc := o.service("web")
	o.slice("web", "web-1", "10.1.0.5")
	o.members("web", "10.1.0.5")
	o.realised("web")
	o.stubborn()
	o.delete(svc)
	var ready *metav1.Condition // after a while it says something else
	o.eventually("it says what it may not do", func() bool {
		klb := o.balancerOf("web")
		if klb == nil {
			return false
		}
		ready = meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
		return ready != nil && ready.Reason == v1.ReasonForbidden && hasWords(ready.Message, "holding cluster IP "+klb.Spec.VIPs[0].IP)
	})
	if !hasWords(ready.Message, "Apply the Role kuryr-controller") || !hashed && strings.Contains(ready.Message, "nothing is to be done") {
		t.Errorf("it says %s: %s", ready.Reason, ready.Message)
	}
	o.eventually("it says what does not end", func() bool {
		return hasWords(o.readyMessage("web"), "Load balancer "+o.tree("web").ID+" has been busy")
	})
	if o.now(svc) == nil || len(o.holders()) > 0 {
		t.Error("the Service is gone although nothing holds its cluster IP")
	}
	o.cloud.Settle(o.tree("web").ID)
	o.eventually("the Service is gone", func() bool { return o.now(svc) == nil })
}

// TestReleaseOfBothFamilies: each cluster IP of a dual-stack Service is held as long as its own
// load balancer exists.
func TestReleaseOfBothFamilies(t *testing.T) {
	b := newWholeBed(t)
	b.cloud.AddSubnet(memory.Subnet{ID: service6Subnet, NetworkID: network, Prefix: netip.MustParsePrefix(apitest.ClusterIPs6), MTU: 1442})
	b.current.Services.SubnetIDs = []string{vipSubnet, service6Subnet}
	b.current.Services.ReleaseAfter = metav1.Duration{Duration: time.Second}
	b.settings.Set(b.current)
	b.launch()
	svc := b.service("web", func(s *corev1.Service) { s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack) })
	b.slice("web", "web-1", "10.1.0.5")
	b.members("web", "10.1.0.5")
	b.realised("web")
	svc = b.now(svc)
	b.stubborn()
	b.delete(svc)
	held := func() (ips []string) {
		for _, h := range b.holders() {
			ips = append(ips, h.Spec.ClusterIPs...)
		}
		slices.Sort(ips)
		return ips
	}
	both := slices.Sorted(slices.Values(svc.Spec.ClusterIPs))
	b.eventually("both cluster IPs are held", func() bool { return slices.Equal(held(), both) && len(both) == 2 })
	for _, item := range b.cloud.LoadBalancers() {
		if strings.Contains(item.LoadBalancer.VIP.IP, ":") {
			b.cloud.Settle(item.LoadBalancer.ID)
		}
	}
	b.eventually("the IPv6 one is free", func() bool { return slices.Equal(held(), []string{svc.Spec.ClusterIP}) })
}

// unbusy lets load balancers finish new changes at once.
func (b *bed) unbusy() {
	b.t.Helper()
	f, err := b.cloud.Backend("cluster").Features(b.t.Context(), "ovn")
	if err != nil {
		b.t.Fatal(err)
	}
	b.cloud.SetProvider(memory.Provider{Features: f, Near: true})
}

// TestReleaseNever: with releaseAfter 0 a Service waits for Octavia.
func TestReleaseNever(t *testing.T) {
	b, svc := releasing(t)
	b.current.Services.ReleaseAfter = metav1.Duration{}
	b.settings.Set(b.current)
	b.delete(svc)
	b.eventually("it is being deleted", func() bool { return b.tree("web") != nil && b.tree("web").Provisioning == "PENDING_DELETE" })
	time.Sleep(2500 * time.Millisecond)
	if b.now(svc) == nil || b.balancerOf("web") == nil || len(b.holders()) > 0 {
		t.Errorf("the Service is %v, with %d holders, want it to wait", b.now(svc), len(b.holders()))
	}
	b.cloud.Settle(b.tree("web").ID)
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
}

// TestReleaseWaitsForTheFloatingIP: a Service is not released before its floating IP is withdrawn.
func TestReleaseWaitsForTheFloatingIP(t *testing.T) {
	b, svc := releasing(t)
	b.onBefore(func(_ context.Context, call string, _ int) error {
		if call == memory.Dissociate || call == memory.DeleteFloatingIP {
			return fmt.Errorf("not now: %w", sdn.ErrConflict)
		}
		return nil
	})
	b.delete(svc)
	b.eventually("the deletion is under way", func() bool { return b.balancerOf("web") != nil && !b.balancerOf("web").DeletionTimestamp.IsZero() })
	time.Sleep(3 * time.Second)
	if b.now(svc) == nil || len(b.holders()) > 0 {
		t.Error("the Service is gone although its floating IP is there")
	}
	b.onBefore(nil)
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	if left := b.publicOnes(); len(left) > 0 {
		t.Errorf("floating IPs are left: %q", left)
	}
}

// TestClusterIPTakenFirst: a Service that got the cluster IP before it could be held gets one
// Event. When that Service is deleted, the cluster IP is held.
func TestClusterIPTakenFirst(t *testing.T) {
	b, _ := releasing(t)
	svc := b.service("taker", func(s *corev1.Service) { s.Labels = map[string]string{v1.LeaveAloneLabel: ""} })
	ip := svc.Spec.ClusterIP
	id := b.tree("web").ID
	b.holder("cluster-ip-1", ip, id)
	b.eventSaying("taker", "ClusterIPInUse", id, ip)
	if got := b.holders()[0]; got.Spec.Type != corev1.ServiceTypeExternalName || got.Annotations[v1.ClusterIPTakenAnnotation] != string(svc.UID) {
		t.Errorf("the holder is %+v", got)
	}
	b.restart()
	time.Sleep(500 * time.Millisecond)
	if got := slices.DeleteFunc(b.eventsOn(svc), func(e string) bool { return !strings.Contains(e, "ClusterIPInUse") }); !slices.Equal(got, []string{"Warning ClusterIPInUse 1"}) {
		t.Errorf("Events: %q, want it told once", got)
	}
	b.delete(svc)
	b.eventually("it is held", func() bool { h := b.holders(); return len(h) > 0 && h[0].Spec.ClusterIP == ip })
}

// restart stops the controller and starts another one.
func (b *serviceBed) restart() {
	b.t.Helper()
	b.stop()
	b.launch()
}

const holderNamespace = "kube-public"
