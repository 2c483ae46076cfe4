// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/preflight"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// hurried is a short backoff, for tests that wait for what follows it.
var hurried = outcome.Backoff{
	Min: 50 * time.Millisecond, Max: 200 * time.Millisecond, Quota: 300 * time.Millisecond, Rejected: 300 * time.Millisecond,
}

const (
	subnet  = "5f1c5aac-0000-4000-8000-000000000001"
	network = "5f1c5aac-0000-4000-8000-0000000000ff"
	group   = "5f1c5aac-0000-4000-8000-00000000000a"
	node    = "node-1"
)

// bed is a cluster, a cloud, and a controller between them.
type bed struct {
	born     time.Time // Events of before are those of other tests
	t        testing.TB
	client   client.Client
	cloud    *memory.Cloud
	settings *settings.Live
	current  settings.Settings
	stop     func()

	unhurried bool                                        // keep all delays as in production
	gap       time.Duration                               // StatusGap; 0: a short one
	balancing bool                                        // load balancers are applied, not planned
	networked bool                                        // namespaces may have networks of their own
	newClient client.NewClientFunc                        // of the manager; nil: the usual one
	cache     cache.Options                               // of the manager, as in production
	mend      time.Duration                               // Options.Mend; 0: a short one
	stuck     time.Duration                               // Options.Stuck; 0: as in production
	looking   time.Duration                               // Options.Look; 0: never
	backend   sdn.Backend                                 // of the controller; nil: that of cloud
	whole     controller.Cloud                            // in all roles, in place of cloud; nil: cloud
	around    func(sdn.LoadBalancers) sdn.LoadBalancers   // wraps the cloud; nil: nothing does
	guarding  func(sdn.SecurityGroups) sdn.SecurityGroups // wraps security groups
	preflight preflight.Checks                            // Options.Preflight; nil: no checks
	shards    kube.Shards                                 // Options.Shards; nil: all keys
	manager   ctrl.Manager                                // the last one started
	probes    string                                      // address of the manager's probes; empty: none

	mu     sync.Mutex
	before memory.Hook
	after  memory.Hook
}

// newBed returns a bed with one node and a running controller.
func newBed(t testing.TB) *bed {
	t.Helper()
	b := idleBed(t)
	b.start()
	return b
}

// idleBed is newBed without a controller.
func idleBed(t testing.TB) *bed {
	t.Helper()
	turn(t)
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(serverOf(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, client: c, born: time.Now(), cloud: memory.New(memory.Subnet{
		ID: subnet, NetworkID: network, Prefix: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.1.0.1"), MTU: 1442,
	})}
	b.cloud.Before = func(ctx context.Context, call string, n int) error { return b.hook(&b.before)(ctx, call, n) }
	b.cloud.After = func(ctx context.Context, call string, n int) error { return b.hook(&b.after)(ctx, call, n) }
	b.current = settings.Settings{
		Pods:  config.Pods{SubnetIDs: []string{subnet}, SecurityGroupIDs: []string{group}},
		Pools: config.Pools{Batch: 1},
		Orphans: config.Orphans{
			Interval: metav1.Duration{Duration: 200 * time.Millisecond}, Grace: metav1.Duration{Duration: time.Second},
		},
	}
	b.settings, b.cache = settings.NewLive(b.current), kube.CacheOptions()
	t.Cleanup(b.sweep)
	b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	return b
}

func (b *bed) hook(h *memory.Hook) memory.Hook {
	b.mu.Lock()
	defer b.mu.Unlock()
	if *h == nil {
		return func(context.Context, string, int) error { return nil }
	}
	return *h
}

// fail makes a call to the cloud return err; nil ends that.
func (b *bed) fail(call string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = func(_ context.Context, c string, _ int) error {
		if c == call {
			return err
		}
		return nil
	}
}

// block makes the cloud block a call until release is called.
func (b *bed) block(call string) (release func()) {
	gate := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = func(ctx context.Context, c string, _ int) error {
		if c == call {
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
		return nil
	}
	return sync.OnceFunc(func() { close(gate) })
}

// start starts a controller, as after a restart.
func (b *bed) start() {
	b.t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		b.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(serverOf(b.t), ctrl.Options{
		Scheme: scheme, Cache: lateKind.apply(b.cache), Metrics: metricsserver.Options{BindAddress: "0"}, NewClient: b.newClient, HealthProbeBindAddress: b.probes,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if b.backend == nil {
		b.backend = b.cloud.Backend("cluster")
	}
	options := controller.Options{Ports: b.backend, Visibility: b.backend, Capacity: b.backend, Hosts: b.backend, Settings: b.settings}
	options.Stuck, options.Namespace, options.Preflight = b.stuck, holderNamespace, b.preflight
	options.Shards, options.Late = b.shards, 2*time.Second
	if b.looking > 0 {
		options.Details, options.Look = b.backend, b.looking
	}
	if b.balancing {
		cloud := b.cloud.Backend("cluster")
		if options.SecurityGroups = cloud; b.guarding != nil {
			options.SecurityGroups = b.guarding(cloud)
		}
		if options.LoadBalancers, options.FloatingIPs = cloud, cloud; b.around != nil {
			options.LoadBalancers = b.around(cloud)
		}
		b.set(func(s *settings.Settings) { s.Services.SubnetIDs = []string{vipSubnet} })
	}
	if b.networked {
		cloud := b.backend.(netCloud)
		options.Networks, options.SubnetPools, options.Subnets, options.SlowDeletion = cloud, cloud, cloud, 500*time.Millisecond
	}
	if !b.unhurried {
		options.Backoff, options.Mend = hurried, cmp.Or(b.mend, 100*time.Millisecond)
		options.PoolIdle, options.StatusGap = 2*time.Second, max(b.gap, 50*time.Millisecond)
	}
	if b.whole != nil {
		options = options.With(b.whole)
	}
	if err := controller.Setup(ctx, mgr, options); err != nil {
		b.t.Fatal(err)
	}
	b.manager = mgr
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	b.stop = sync.OnceFunc(func() {
		b.manager = nil // its cache follows nothing any more
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the controller ended with: %v", err)
		}
	})
}

// sweep restores the initial state of the API server.
func (b *bed) sweep() {
	if b.stop != nil {
		b.stop()
	}
	ctx := context.Background()
	zero := client.GracePeriodSeconds(0)
	_ = b.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("default"), zero)
	_ = b.client.DeleteAllOf(ctx, &eventsv1.Event{}, client.InNamespace("default"))
	_ = b.client.DeleteAllOf(ctx, &corev1.Node{})
	_ = b.client.DeleteAllOf(ctx, &v1.KuryrPortPool{})
	_ = b.client.DeleteAllOf(ctx, &v1.KuryrCluster{})
	var list v1.KuryrPortList
	_ = b.client.List(ctx, &list)
	for i := range list.Items {
		port := &list.Items[i]
		_ = b.client.Patch(ctx, port, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		_ = b.client.Delete(ctx, port)
	}
}

func (b *bed) create(obj client.Object) {
	b.t.Helper()
	if err := b.client.Create(b.t.Context(), obj); err != nil {
		b.t.Fatal(err)
	}
}

// pod creates a pod on the node.
func (b *bed) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	b.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, f := range change {
		f(pod)
	}
	b.create(pod)
	return pod
}

func (b *bed) delete(obj client.Object) {
	b.t.Helper()
	if err := b.client.Delete(b.t.Context(), obj, client.GracePeriodSeconds(0)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) setPhase(pod *corev1.Pod, phase corev1.PodPhase) {
	b.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase))
	if err := b.client.Status().Patch(b.t.Context(), pod, patch); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) ports() []v1.KuryrPort {
	b.t.Helper()
	var list v1.KuryrPortList
	if err := b.client.List(b.t.Context(), &list); err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

func (b *bed) pools() []v1.KuryrPortPool {
	b.t.Helper()
	var list v1.KuryrPortPoolList
	if err := b.client.List(b.t.Context(), &list); err != nil {
		b.t.Fatal(err)
	}
	return list.Items
}

// portOf returns the KuryrPort of a pod; nil if the pod has none.
func (b *bed) portOf(pod *corev1.Pod) *v1.KuryrPort {
	b.t.Helper()
	var found *v1.KuryrPort
	for _, port := range b.ports() {
		if port.Spec.PodRef == nil || port.Spec.PodRef.UID != pod.UID {
			continue
		}
		if found != nil {
			b.t.Errorf("pod %s has two KuryrPorts: %s and %s", pod.Name, found.Name, port.Name)
		}
		found = &port
	}
	return found
}

// bound waits until a pod has its port, in the status, too.
func (b *bed) bound(pod *corev1.Pod) *v1.KuryrPort {
	b.t.Helper()
	var port *v1.KuryrPort
	b.eventually("pod "+pod.Name+" has a bound KuryrPort", func() bool {
		port = b.portOf(pod)
		return port != nil && port.Status.Phase == v1.PortBound
	})
	return port
}

// knows waits until the controller's cache shows a KuryrPort for which ok is true. The API server
// may show it before: a plan that must find it, because of an event of another kind, may then be made
// without it.
func (b *bed) knows(what string, ok func(*v1.KuryrPort) bool) {
	b.t.Helper()
	b.eventually("the controller knows that "+what, func() bool {
		var list v1.KuryrPortList
		if err := b.manager.GetCache().List(b.t.Context(), &list); err != nil {
			b.t.Fatal(err)
		}
		return slices.ContainsFunc(list.Items, func(p v1.KuryrPort) bool { return ok(&p) })
	})
}

// free returns a KuryrPort without a pod; nil if none exists.
func (b *bed) free() *v1.KuryrPort {
	b.t.Helper()
	for _, port := range b.ports() {
		if port.Spec.PodRef == nil {
			return &port
		}
	}
	return nil
}

// settled waits until there are n ports in the cloud and n KuryrPorts.
func (b *bed) settled(n int) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("there are %d ports and as many objects", n), func() bool {
		return b.cloud.Ports() == n && len(b.ports()) == n
	})
}

// attach reports, as the node's daemon does, whether a port is plugged.
func (b *bed) attach(port *v1.KuryrPort, plugged bool) {
	b.t.Helper()
	at := "null"
	if plugged {
		at = `{"containerID":"c","interface":"eth0","since":"` + time.Now().UTC().Format(time.RFC3339) + `"}`
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"attachment":`+at+`}}`))
	if err := b.client.Status().Patch(b.t.Context(), &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: port.Name}}, patch, client.FieldOwner("kuryr-daemon")); err != nil {
		b.t.Fatal(err)
	}
}

// eventOn waits for an Event with this reason on an object, and returns its note.
func (b *bed) eventOn(name, reason string) string {
	b.t.Helper()
	var note string
	b.eventually("there is an Event "+reason+" on "+name, func() bool {
		var list eventsv1.EventList
		if err := b.client.List(b.t.Context(), &list); err != nil {
			b.t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Regarding.Name == name && e.Reason == reason && !e.EventTime.Time.Before(b.born) {
				note = e.Note
			}
		}
		return note != ""
	})
	return note
}

func (b *bed) mentions(what, text string, words ...string) {
	b.t.Helper()
	for _, w := range words {
		if !hasWords(text, w) {
			b.t.Errorf("%s = %q, want it to mention %q", what, text, w)
		}
	}
}

// eventually waits for a condition. How long that takes is not part of the test.
func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	b.eventuallyIn(30*time.Second, what, ok)
}

func (b *bed) eventuallyIn(patience time.Duration, what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("not so after %s: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// never checks for a while that a condition does not become true.
func (b *bed) never(what string, bad func() bool) {
	b.t.Helper()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if bad() {
			b.t.Fatalf("it came: %s", what)
		}
	}
}

// set changes the settings of the running controller.
func (b *bed) set(change func(*settings.Settings)) {
	change(&b.current)
	b.settings.Set(b.current)
}
