// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

const (
	common, red, blue = "0000000000000000000000000000000c", "0000000000000000000000000000000d", "0000000000000000000000000000000e"
	redExternal       = "5f1c5aac-0000-4000-8000-0000000000e1"
)

// tenantBed is a whole bed with three projects: the common one; red, which namespaces name, and
// which has an external network of its own; and blue, which a label selects.
func tenantBed(t testing.TB) *serviceBed {
	t.Helper()
	b := newWholeBed(t)
	b.cloud.AddSubnet(memory.Subnet{ID: redExternal, NetworkID: redExternal, Prefix: netip.MustParsePrefix("198.51.100.0/24"), External: true})
	b.current.Services.ProjectID, b.current.Pods.ProjectID = common, common
	b.current.Projects = []config.Project{{ProjectID: red, ExternalNetworkID: redExternal}, {ProjectID: blue, NamespaceSelector: labelled("tenant", "blue")}}
	b.settings.Set(b.current)
	b.launch()
	return b
}

// tenant creates a namespace, or puts an earlier one of this name into that state: an API server
// without other controllers never deletes a namespace. project is what its annotation names.
func (b *serviceBed) tenant(name, project string, labels ...string) {
	b.t.Helper()
	b.namespace(name)
	b.t.Cleanup(func() { b.inProject(name, "") })
	b.inProject(name, project)
	if len(labels) > 0 {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, labels[0], labels[1])
		if err := b.client.Patch(b.t.Context(), namespaceOf(name), client.RawPatch(types.MergePatchType, patch)); err != nil {
			b.t.Fatal(err)
		}
	}
}

func namespaceOf(name string) *corev1.Namespace {
	ns := &corev1.Namespace{}
	ns.Name = name
	return ns
}

// inProject sets or removes the annotation of a namespace that names its project.
func (b *serviceBed) inProject(name, project string) {
	b.t.Helper()
	value := "null"
	if project != "" {
		value = fmt.Sprintf("%q", project)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, v1.ProjectAnnotation, value)
	if err := b.client.Patch(context.WithoutCancel(b.t.Context()), namespaceOf(name), client.RawPatch(types.MergePatchType, patch)); err != nil {
		b.t.Fatal(err)
	}
}

// serviceIn creates a Service of a namespace with an endpoint on the host network.
func (b *serviceBed) serviceIn(namespace, name string, change ...func(*corev1.Service)) *corev1.Service {
	b.t.Helper()
	svc := b.service(name, append(change, func(svc *corev1.Service) { svc.Namespace = namespace })...)
	s := newSlice(name, name+"-1", "10.1.200.5")
	s.Namespace = namespace
	b.create(s)
	b.t.Cleanup(func() {
		_ = b.client.DeleteAllOf(context.Background(), &discoveryv1.EndpointSlice{}, client.InNamespace(namespace), client.MatchingLabels{"test": "services"})
	})
	return svc
}

// klbOf returns the KuryrLoadBalancer of a Service; nil if there is none.
func (b *serviceBed) klbOf(svc *corev1.Service) *v1.KuryrLoadBalancer {
	b.t.Helper()
	var klb v1.KuryrLoadBalancer
	if err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(svc), &klb); client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return &klb
}

// served waits until a Service has all that it asks for.
func (b *serviceBed) served(svc *corev1.Service) *v1.KuryrLoadBalancer {
	b.t.Helper()
	var klb *v1.KuryrLoadBalancer
	b.eventually("Service "+svc.Namespace+"/"+svc.Name+" is served", func() bool {
		klb = b.klbOf(svc)
		if klb == nil {
			return false
		}
		ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
		return ready != nil && ready.Status == "True" && ready.ObservedGeneration == klb.Generation
	})
	return klb
}

// inProjects returns what the cloud has for Services, sorted: kind, owner, project. A floating IP
// has the start of its address, which shows its network.
func (b *serviceBed) inProjects() (all []string) {
	add := func(kind string, o sdn.Owner, project, more string) {
		if o.Name != "kubernetes" {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s/%s %s %s", kind, o.Namespace, o.Name, project[len(project)-1:], more)))
		}
	}
	for _, i := range b.cloud.LoadBalancers() {
		add("balancer", i.LoadBalancer.Owner, i.LoadBalancer.ProjectID, "")
	}
	for _, i := range b.cloud.FloatingIPs() {
		first, _, _ := strings.Cut(i.FloatingIP.Address, ".")
		add("address", i.FloatingIP.Owner, i.ProjectID, first)
	}
	for _, i := range b.cloud.SecurityGroups() {
		add("group", i.Group.Owner, i.Group.ProjectID, "")
	}
	slices.Sort(all)
	return all
}

// TestServicesOfTenants: what Kuryr makes for a Service is in the project of its namespace, and
// nothing is in another. What exists stays when the namespace changes its project, and is made in
// the new one when it has to be made again.
func TestServicesOfTenants(t *testing.T) {
	b := tenantBed(t)
	b.tenant("svc-red", red)
	b.tenant("svc-blue", "", "tenant", "blue")
	var all []*corev1.Service
	for _, ns := range []string{"svc-red", "svc-blue", "default"} {
		all = append(all, b.serviceIn(ns, "web", balanced))
	}
	for _, svc := range all {
		b.served(svc)
	}
	want := []string{
		"address default/web c 203", "address svc-blue/web e 203", "address svc-red/web d 198",
		"balancer default/web c", "balancer svc-blue/web e", "balancer svc-red/web d",
	}
	if got := b.inProjects(); !slices.Equal(got, want) {
		t.Fatalf("the cloud has %q, want %q", got, want)
	}
	before := b.served(all[0])
	b.inProject("svc-red", "")
	b.eventually("the Service says that its load balancer stays", func() bool {
		c := b.planned(all[0])
		return c != nil && c.Reason == "NotChanged" && strings.Contains(c.Message, red) && strings.Contains(c.Message, common)
	})
	later := b.serviceIn("svc-red", "later")
	b.served(later)
	if after := b.served(all[0]); after.Spec.ProjectID != red || after.Status.LoadBalancers[0].ID != before.Status.LoadBalancers[0].ID || after.Spec.PublicIP.NetworkID != redExternal {
		t.Errorf("after the change the spec has project %s and network %s, load balancer %v; want all as before: %v",
			after.Spec.ProjectID, after.Spec.PublicIP.NetworkID, after.Status.LoadBalancers, before.Status.LoadBalancers)
	}
	if want = append(want, "balancer svc-red/later c"); !slices.Equal(b.inProjects(), slices.Sorted(slices.Values(want))) {
		t.Errorf("the cloud has %q, want %q", b.inProjects(), want)
	}
	b.delete(b.klbOf(all[0]))
	b.eventually("it is made again in the project of the namespace", func() bool {
		klb := b.klbOf(all[0])
		return klb != nil && klb.UID != before.UID && klb.Spec.ProjectID == common && len(klb.Status.LoadBalancers) == 1 && b.planned(all[0]) == nil
	})
	b.served(all[0])
	if got := b.inProjects(); !slices.Contains(got, "balancer svc-red/web c") || slices.Contains(got, "balancer svc-red/web d") || !slices.Contains(got, "address svc-red/web c 203") {
		t.Errorf("the cloud has %q", got)
	}
}

// TestServicesOfAWrongProject: a namespace that names a project that is not listed gets no load
// balancer, and its Services say what to do. Others are served, and it is once it is corrected.
func TestServicesOfAWrongProject(t *testing.T) {
	b := tenantBed(t)
	b.tenant("svc-wrong", "00000000000000000000000000000bad")
	wrong, right := b.serviceIn("svc-wrong", "web"), b.serviceIn("default", "web")
	b.eventually("the Service says that the namespace names a wrong project", func() bool {
		c := b.planned(wrong)
		return c != nil && c.Reason == "NotAllowed" && c.Status == "False" && hasWords(c.Message, v1.ProjectAnnotation, "00bad", "projects in Kuryr's configuration")
	})
	b.served(right)
	if klb := b.klbOf(wrong); klb != nil || slices.ContainsFunc(b.inProjects(), func(s string) bool { return strings.Contains(s, "svc-wrong") }) {
		t.Errorf("there is KuryrLoadBalancer %v and in the cloud %q, want nothing", klb, b.inProjects())
	}
	b.inProject("svc-wrong", red)
	b.served(wrong)
	b.eventually("the Service has nothing to say any more", func() bool { return b.planned(wrong) == nil })
	b.inProject("svc-wrong", "00000000000000000000000000000bad")
	b.eventually("the Service says so again", func() bool { return b.planned(wrong) != nil })
	s := newSlice("web", "web-2", "10.1.200.6")
	s.Namespace = "svc-wrong"
	b.create(s)
	b.eventually("its load balancer is kept up to date nevertheless", func() bool {
		klb := b.klbOf(wrong)
		return klb.Spec.ProjectID == red && len(klb.Spec.Listeners[0].Members) == 2
	})
}

// TestQuotaOfOneTenant: Services whose project is full make those of other projects not wait.
func TestQuotaOfOneTenant(t *testing.T) {
	b := tenantBed(t)
	b.tenant("svc-red", red)
	b.tenant("svc-blue", blue)
	b.cloud.SetLoadBalancerQuota(2)
	for i := range 8 {
		b.serviceIn("svc-red", fmt.Sprint("web-", i))
	}
	full := func() (n int) {
		var list v1.KuryrLoadBalancerList
		if err := b.client.List(t.Context(), &list, client.InNamespace("svc-red")); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if c := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1.ConditionReady); c != nil && c.Reason == "OverQuota" {
				n++
			}
		}
		return n
	}
	b.eventually("six Services say that the quota is full", func() bool { return full() == 6 })
	began := time.Now()
	b.served(b.serviceIn("svc-blue", "web"))
	// In one queue with the others, it would be their turn first, one in each pause.
	if took := time.Since(began); took > 6*hurried.Quota {
		t.Errorf("the Service of another project took %s", took)
	}
	for _, s := range b.inProjects() {
		if strings.Contains(s, "svc-red") && !strings.HasSuffix(s, " d") || strings.Contains(s, "svc-blue") && !strings.HasSuffix(s, " e") {
			t.Errorf("%q is in the wrong project", s)
		}
	}
}
