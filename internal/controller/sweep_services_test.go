// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/crashtest"
)

// TestServiceWhileWritesMeetTheirFate runs the life of a Service. The Service is created, its
// endpoints change, it becomes a LoadBalancer and ceases to be one, and it is deleted.
//
// The collector and the periodic checks are off: each part must find what it has left over, or what
// differs. A life takes seconds, so only an even sample of the writes is disturbed. KURYR_SWEEP=all
// disturbs each write.
func TestServiceWhileWritesMeetTheirFate(t *testing.T) {
	s := sweepOf(t)
	s.Kinds = []client.ObjectList{&v1.KuryrLoadBalancerList{}}
	if os.Getenv("KURYR_SWEEP") != "all" {
		s.Sample = servicesSample
		if testing.Short() {
			s.Sample = 1
		}
	}
	t.Run("on OpenStack", func(t *testing.T) {
		s.Begin = func(w *crashtest.World) crashtest.Life { return newServiceLife(w, newBalancing(w)).life() }
		s.Run(t, crashtest.StoppedBefore, crashtest.StoppedAfter, crashtest.StoppedTwice, crashtest.Refused, crashtest.AnswerLost, crashtest.AnswerLostAndViewLate)
	})
	t.Run("its load balancer is gone", func(t *testing.T) {
		s.Begin = func(w *crashtest.World) crashtest.Life { return newGoneLife(w, newBalancing(w)).life() }
		s.Run(t, crashtest.StoppedBefore, crashtest.StoppedAfter)
	})
	t.Run("its load balancer breaks", func(t *testing.T) {
		s.Begin = func(w *crashtest.World) crashtest.Life { return newRepairLife(w).life() }
		s.Run(t, crashtest.StoppedBefore, crashtest.StoppedAfter)
	})
	t.Run("in memory", func(t *testing.T) {
		s.Begin = func(w *crashtest.World) crashtest.Life { return newServiceLife(w, newMemoryBalancing(w)).life() }
		s.Run(t, crashtest.StoppedBefore, crashtest.StoppedAfter)
	})
}

// servicesSample is how many writes meet each fate: together they take less than a minute.
const servicesSample = 3

// serviceLife is the life of one Service in one world.
type serviceLife struct {
	w        *crashtest.World
	cloud    balancing
	settings settings.Settings
	later    []string // the endpoints after their change
	mend     time.Duration
}

func newServiceLife(w *crashtest.World, cloud balancing) *serviceLife {
	l := &serviceLife{w: w, cloud: cloud, later: []string{"10.1.0.12", "10.1.0.13", "10.1.0.14"}, mend: 100 * time.Millisecond}
	never := metav1.Duration{Duration: time.Hour}
	l.settings = settings.Settings{
		Pods: cloud.pods(), Pools: config.Pools{Batch: 1}, Services: cloud.services(),
		Orphans: config.Orphans{Interval: never, Grace: never},
	}
	l.settings.Services.CheckInterval = never
	l.proxy("kubernetes", `"nobody"`) // it always exists, and is no part of the scenario
	w.T.Cleanup(l.clean)
	return l
}

// proxy sets the name of the proxy that serves a Service.
func (l *serviceLife) proxy(name, who string) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":%s},"finalizers":null}}`, who)
	l.try(l.w.Client.Patch(l.ctx(), svc, client.RawPatch(types.MergePatchType, patch)))
}

// clean deletes every Service, whatever has happened to its controller.
func (l *serviceLife) clean() {
	ctx := l.ctx()
	l.proxy("kubernetes", "null")
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	_ = l.w.Client.Patch(ctx, svc, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	_ = l.w.Client.Delete(ctx, svc)
	_ = l.w.Client.DeleteAllOf(ctx, &discoveryv1.EndpointSlice{}, client.InNamespace("default"), client.MatchingLabels{discoveryv1.LabelServiceName: "web"})
}

func (l *serviceLife) life() crashtest.Life {
	return crashtest.Life{
		Cloud: l.cloud, Cluster: l.cloud.mark(), Start: l.start, Steps: l.steps, Uneven: l.uneven, InUse: l.inUse,
		// The scenario requests three floating IPs, one after the other. A stopped process does not
		// know its last request, and the next process must find the result. Nothing is created
		// twice.
		Limits: map[string]int{"loadbalancer": 1, "floatingip": 3},
	}
}

// start runs a controller with planner and applier.
func (l *serviceLife) start(ctx context.Context, cluster *rest.Config) error {
	return startOn(ctx, cluster, l.w, l.cloud, controller.Options{Settings: settings.NewLive(l.settings), Mend: l.mend})
}

// startOn runs a controller with all its parts on a cloud until ctx ends.
func startOn(ctx context.Context, cluster *rest.Config, w *crashtest.World, cloud swept, o controller.Options) error {
	p := newPart(ctx, cluster, w, cloud, nil)
	o.Backoff, o.Namespace = hurried, holderNamespace
	if p.err == nil {
		o = o.With(p.backend.(controller.Cloud))
	}
	return p.run(ctx, o)
}

func (l *serviceLife) ctx() context.Context { return context.WithoutCancel(l.w.T.Context()) }

func (l *serviceLife) steps() {
	w := l.w
	w.Say("the Service comes, and its endpoints")
	l.come(corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
	}}, "10.1.0.11", "10.1.0.12")
	w.Settled()
	w.Say("endpoints change")
	l.try(w.Client.Patch(l.ctx(), endpoints(l.later...), client.Merge))
	w.Settled()
	w.Say("it becomes a LoadBalancer, with another port")
	l.service(`{"spec":{"type":"LoadBalancer","ports":[{"name":"http","port":80},{"name":"https","port":443}]}}`)
	w.Settled()
	w.Say("it is a LoadBalancer no longer")
	l.service(`{"spec":{"type":"ClusterIP"}}`)
	w.Settled()
	w.Say("it becomes one, and is none any more before that is known")
	l.service(`{"spec":{"type":"LoadBalancer"}}`)
	w.Eventually("it has a floating IP", func() bool { return len(w.Ours("floatingip")) == 1 })
	l.service(`{"spec":{"type":"ClusterIP"}}`)
	w.Settled()
	w.Say("and again, and is deleted")
	l.service(`{"spec":{"type":"LoadBalancer"}}`)
	w.Eventually("it has a floating IP", func() bool { return len(w.Ours("floatingip")) == 1 })
	l.leave()
	w.Settled()
}

// come creates the Service, with endpoints.
func (l *serviceLife) come(spec corev1.ServiceSpec, ips ...string) {
	l.w.T.Helper()
	l.try(l.w.Client.Create(l.ctx(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: spec}))
	l.try(l.w.Client.Create(l.ctx(), endpoints(ips...)))
}

// leave deletes the Service.
func (l *serviceLife) leave() {
	l.w.T.Helper()
	l.try(l.w.Client.Delete(l.ctx(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}))
}

func (l *serviceLife) try(err error) {
	l.w.T.Helper()
	if err != nil {
		l.w.T.Fatal(err)
	}
}

// service changes the Service as its author does.
func (l *serviceLife) service(patch string) {
	l.w.T.Helper()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	l.try(l.w.Client.Patch(l.ctx(), svc, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
}

func endpoints(ips ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: "web",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for name, p := range map[string]corev1.Protocol{"http": corev1.ProtocolTCP, "dns": corev1.ProtocolUDP, "https": corev1.ProtocolTCP} {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(name), Protocol: new(p), Port: new(int32(8080))})
	}
	slices.SortFunc(s.Ports, func(a, b discoveryv1.EndpointPort) int { return strings.Compare(*a.Name, *b.Name) })
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
	}
	return s
}

// world returns the Service, its endpoints and its KuryrLoadBalancer; nil if they are gone.
func (l *serviceLife) world() (*corev1.Service, *discoveryv1.EndpointSlice, *v1.KuryrLoadBalancer) {
	key := client.ObjectKey{Namespace: "default", Name: "web"}
	svc, slice, klb := &corev1.Service{}, &discoveryv1.EndpointSlice{}, &v1.KuryrLoadBalancer{}
	if l.w.Client.Get(l.ctx(), key, svc) != nil {
		svc = nil
	}
	if l.w.Client.Get(l.ctx(), key, klb) != nil {
		klb = nil
	}
	_ = l.w.Client.Get(l.ctx(), client.ObjectKey{Namespace: "default", Name: "web-1"}, slice)
	return svc, slice, klb
}

// uneven compares the cloud and the statuses with the Service.
func (l *serviceLife) uneven() (faults []string) {
	svc, slice, klb := l.world()
	var want []string
	if svc != nil {
		want = append(want, "at "+svc.Spec.ClusterIP)
		for _, p := range svc.Spec.Ports {
			for _, e := range slice.Endpoints {
				want = append(want, fmt.Sprintf("%s:%d > %s:8080", p.Protocol, p.Port, e.Addresses[0]))
			}
		}
		faults = append(faults, l.untold(svc, klb)...)
		if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
			if len(svc.Status.LoadBalancer.Ingress) == 1 {
				want = append(want, "public "+svc.Status.LoadBalancer.Ingress[0].IP)
			} else {
				want = append(want, "public somewhere")
			}
		} else if len(svc.Status.LoadBalancer.Ingress) > 0 {
			faults = append(faults, "its ingress is still told")
		}
	} else if klb != nil {
		faults = append(faults, "its KuryrLoadBalancer is still there")
	}
	if len(faults) > 0 { // the requests to the cloud take more time
		return faults
	}
	slices.Sort(want)
	if got := l.cloud.served(); !slices.Equal(got, want) {
		faults = append(faults, fmt.Sprintf("the cloud serves %q, want %q", got, want))
	}
	if again, _, klb := l.world(); again != nil && svc != nil { // it was ready before and after the requests to the cloud
		faults = append(faults, l.untold(again, klb)...)
	}
	return faults
}

// untold returns the differences between the statuses and the cloud.
func (l *serviceLife) untold(svc *corev1.Service, klb *v1.KuryrLoadBalancer) []string {
	if !svc.DeletionTimestamp.IsZero() {
		return []string{"the Service is still going"}
	}
	if klb == nil {
		return []string{"there is no KuryrLoadBalancer"}
	}
	ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != klb.Generation {
		return []string{fmt.Sprintf("its KuryrLoadBalancer is not ready: %+v", ready)}
	}
	return nil
}

// inUse protects the resources that serve a living Service.
func (l *serviceLife) inUse(r crashtest.Resource) string {
	svc, _, _ := l.world()
	if svc == nil || !svc.DeletionTimestamp.IsZero() {
		return ""
	}
	if r.Kind == "loadbalancer" || r.Kind == "floatingip" && svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return "the Service lives"
	}
	return ""
}
