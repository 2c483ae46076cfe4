// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

const (
	vipSubnet = "5f1c5aac-0000-4000-8000-0000000000a1" // of apitest.ClusterIPs
	external  = "5f1c5aac-0000-4000-8000-0000000000a2"
)

// serviceBed is a cluster with the planner of Services. Only the test applies the plans.
type serviceBed struct {
	*bed
	whole bool // the controller applies the plans, too
	wrote writes
	book  *subnets
	as    *rest.Config       // of the controller; nil: that of the tests
	clock clock.PassiveClock // of the controller; nil: the real one
	tell  func(context.Context, error)
}

// subnets counts the requests for subnets, and can fail.
type subnets struct {
	sdn.Subnets
	mu    sync.Mutex
	calls int
	err   error
	gone  string        // ID of a deleted subnet
	gate  chan struct{} // not nil: calls wait until it is closed
}

func (s *subnets) Subnet(ctx context.Context, id string) (sdn.Subnet, error) {
	s.mu.Lock()
	s.calls++
	err, gate := s.err, s.gate
	if id == s.gone {
		err = sdn.ErrNotFound
	}
	s.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	if err != nil {
		return sdn.Subnet{}, err
	}
	return s.Subnets.Subnet(ctx, id)
}

// block blocks all calls until release is called.
func (s *subnets) block() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (s *subnets) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// lose deletes one subnet.
func (s *subnets) lose(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = id
}

func (s *subnets) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// writes counts the controller's writes.
type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) note(verb string, o any, sub string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, fmt.Sprintf("%s %T%s", verb, o, sub))
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

func (w *writes) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			w.note("apply", o, "")
			return c.Apply(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.note("patch", o, "")
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.note("delete", o, "")
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.note("patch", o, "/"+sub)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
}

func newServiceBed(t testing.TB) *serviceBed {
	t.Helper()
	b := &serviceBed{bed: idleBed(t)}
	b.cloud.AddSubnet(memory.Subnet{ID: vipSubnet, NetworkID: network, Prefix: netip.MustParsePrefix(apitest.ClusterIPs), MTU: 1442})
	b.current.Services.SubnetIDs = []string{vipSubnet}
	b.current.Services.ExternalNetworkID = external
	b.current.Services.Allowed = config.Allowed{Providers: []string{"amphora", "ovn", "nobody"}, FlavorIDs: []string{nobody}, ExternalSubnetIDs: []string{nobody}}
	b.settings.Set(b.current)
	b.book = &subnets{Subnets: b.cloud.Backend("cluster")}
	t.Cleanup(b.clear)
	return b
}

// launch starts a controller without the part that applies load balancers.
func (b *serviceBed) launch() {
	b.t.Helper()
	scheme, err := controller.Scheme()
	if err != nil {
		b.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(cmp.Or(b.as, serverOf(b.t)), ctrl.Options{
		Scheme: scheme, Cache: kube.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"}, NewClient: through(b.wrote.funcs()),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	backend := b.cloud.Backend("cluster")
	o := controller.Options{Ports: backend, Visibility: backend, Subnets: b.book, Settings: b.settings, Tell: b.tell, Backoff: hurried, Mend: 100 * time.Millisecond, Stuck: b.stuck, Namespace: holderNamespace, Preflight: b.preflight, Shards: b.shards, Clock: b.clock}
	if b.whole {
		o.LoadBalancers, o.FloatingIPs, o.SecurityGroups = backend, backend, backend
	}
	if err := controller.Setup(ctx, mgr, o); err != nil {
		b.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the controller ended with: %v", err)
		}
	})
}

// clear leaves no Service but default/kubernetes, in its initial state.
func (b *serviceBed) clear() {
	if b.stop != nil {
		b.stop()
	}
	ctx := context.Background()
	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	var klbs v1.KuryrLoadBalancerList
	_ = b.client.List(ctx, &klbs)
	for i := range klbs.Items {
		_ = b.client.Patch(ctx, &klbs.Items[i], free)
		_ = b.client.Delete(ctx, &klbs.Items[i])
	}
	var list corev1.ServiceList
	_ = b.client.List(ctx, &list)
	for i := range list.Items {
		svc := &list.Items[i]
		_ = b.client.Patch(ctx, svc, free)
		if svc.Name != "kubernetes" {
			_ = b.client.Delete(ctx, svc)
			continue
		}
		_ = b.client.Status().Patch(ctx, svc, client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":null}}`)))
	}
	_ = b.client.DeleteAllOf(ctx, &discoveryv1.EndpointSlice{}, client.InNamespace("default"), client.MatchingLabels{"test": "services"})
}

// service creates a Service with port 80 and no selector.
func (b *serviceBed) service(name string, change ...func(*corev1.Service)) *corev1.Service {
	b.t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	for _, f := range change {
		f(svc)
	}
	b.create(svc)
	return svc
}

func balanced(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeLoadBalancer }

// slice creates an EndpointSlice of a Service.
func (b *serviceBed) slice(svc, name string, ips ...string) *discoveryv1.EndpointSlice {
	b.t.Helper()
	s := newSlice(svc, name, ips...)
	b.create(s)
	return s
}

func newSlice(svc, name string, ips ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: svc, "test": "services"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
		Endpoints:   endpointsAt(ips...),
	}
}

func endpointsAt(ips ...string) []discoveryv1.Endpoint {
	endpoints := []discoveryv1.Endpoint{}
	for _, ip := range ips {
		endpoints = append(endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return endpoints
}

// balancerOf returns the KuryrLoadBalancer of that name; nil if it does not exist.
func (b *serviceBed) balancerOf(name string) *v1.KuryrLoadBalancer {
	b.t.Helper()
	var klb v1.KuryrLoadBalancer
	err := b.client.Get(b.t.Context(), types.NamespacedName{Namespace: "default", Name: name}, &klb)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		b.t.Fatal(err)
	}
	return &klb
}

// members waits until a KuryrLoadBalancer has these members and returns it.
func (b *serviceBed) members(name string, want ...string) *v1.KuryrLoadBalancer {
	b.t.Helper()
	var klb *v1.KuryrLoadBalancer
	var got []string
	b.eventually(fmt.Sprintf("KuryrLoadBalancer %s has members %v", name, want), func() bool {
		got = nil
		if klb = b.balancerOf(name); klb == nil {
			return false
		}
		for _, l := range klb.Spec.Listeners {
			for _, m := range l.Members {
				got = append(got, m.IP)
			}
		}
		return slices.Equal(got, want)
	})
	return klb
}

// applied does what package balancers does: it adds the finalizer to the KuryrLoadBalancer and
// writes the status.
func (b *serviceBed) applied(klb *v1.KuryrLoadBalancer, publicIP string) {
	b.t.Helper()
	hold := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, v1.LoadBalancerFinalizer))
	if err := b.client.Patch(b.t.Context(), klb, hold); err != nil {
		b.t.Fatal(err)
	}
	status := map[string]any{"loadBalancers": []any{map[string]any{
		"id": "l", "name": "n", "ip": klb.Spec.VIPs[0].IP, "subnetID": vipSubnet, "provider": "ovn", "provisioningStatus": "ACTIVE", "operatingStatus": "ONLINE",
	}}}
	if publicIP != "" {
		status["publicIP"] = map[string]any{"id": "f", "ip": publicIP, "made": true}
	} else {
		status["publicIP"] = nil
	}
	b.patchStatus(klb, status)
}

func (b *serviceBed) patchStatus(o client.Object, status map[string]any) {
	b.t.Helper()
	if err := b.client.Status().Patch(b.t.Context(), o, mergePatch(b.t, map[string]any{"status": status})); err != nil {
		b.t.Fatal(err)
	}
}

func mergePatch(t testing.TB, change map[string]any) client.Patch {
	t.Helper()
	data, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	return client.RawPatch(types.MergePatchType, data)
}

func (b *serviceBed) letGo(name string) {
	b.t.Helper()
	klb := b.balancerOf(name)
	if err := b.client.Patch(b.t.Context(), klb, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		b.t.Fatal(err)
	}
}

func (b *serviceBed) patch(o client.Object, change map[string]any) {
	b.t.Helper()
	if err := b.client.Patch(b.t.Context(), o, mergePatch(b.t, change)); err != nil {
		b.t.Fatal(err)
	}
}

// now reads a Service again; nil if it is gone.
func (b *serviceBed) now(svc *corev1.Service) *corev1.Service {
	b.t.Helper()
	var out corev1.Service
	err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(svc), &out)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		b.t.Fatal(err)
	}
	return &out
}

func (b *serviceBed) ingress(svc *corev1.Service) string {
	b.t.Helper()
	var all []string
	for _, i := range b.now(svc).Status.LoadBalancer.Ingress {
		all = append(all, i.IP+i.Hostname)
	}
	return strings.Join(all, " ")
}

// quiet waits until the controller stops writing. It returns the number of writes.
func (b *serviceBed) quiet() int {
	b.t.Helper()
	n := -1
	b.eventually("the controller writes nothing any more", func() bool {
		before := b.wrote.count()
		time.Sleep(300 * time.Millisecond)
		n = b.wrote.count()
		return n == before
	})
	return n
}

// eventsOn returns the reasons of the Events on a Service, each with its count.
func (b *serviceBed) eventsOn(svc *corev1.Service) []string {
	b.t.Helper()
	var got []string
	for _, e := range b.eventList(svc) {
		n := int32(1)
		if e.Series != nil {
			n = e.Series.Count
		}
		got = append(got, fmt.Sprintf("%s %s %d", e.Type, e.Reason, n))
	}
	slices.Sort(got)
	return got
}

// notesOn returns the texts of the Events on a Service.
func (b *serviceBed) notesOn(svc *corev1.Service) []string {
	b.t.Helper()
	var got []string
	for _, e := range b.eventList(svc) {
		got = append(got, e.Note)
	}
	return got
}

func (b *serviceBed) eventList(svc *corev1.Service) []eventsv1.Event {
	b.t.Helper()
	var list eventsv1.EventList
	if err := b.client.List(b.t.Context(), &list, client.InNamespace("default")); err != nil {
		b.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.UID != svc.UID || e.ReportingController != "kuryr-controller" // the API server sends Events, too
	})
}

func (b *serviceBed) planned(svc *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(b.now(svc).Status.Conditions, "kuryr.openstack.org/Planned")
}
