// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// namespacesLife is the life of a few namespaces in one world.
type namespacesLife struct {
	w        *crashtest.World
	cloud    *tenancy
	settings settings.Settings
	common   string // the common network
	steps    func()
	limits   map[string]int // of an undisturbed life

	want   map[string]v1.NetworkMode // of the namespaces that exist; shared: no KuryrNetwork
	serves map[string]string         // the endpoint of the Service of a namespace
}

func newNamespacesLife(w *crashtest.World, cloud *tenancy) *namespacesLife {
	l := &namespacesLife{w: w, cloud: cloud, want: map[string]v1.NetworkMode{}, serves: map[string]string{}}
	never := metav1.Duration{Duration: time.Hour}
	l.settings = settings.Settings{
		Pods: cloud.pods(), Pools: config.Pools{Batch: 1, Max: 1, TTL: never}, Services: cloud.services(),
	}
	l.settings.Orphans = orphans(w, config.Orphans{Interval: metav1.Duration{Duration: 200 * time.Millisecond}, Grace: metav1.Duration{Duration: 300 * time.Millisecond}})
	l.settings.Services.CheckInterval = never
	l.settings.Networks.AllowedModes = []string{string(v1.NetworkNamespace), string(v1.NetworkFlat)}
	l.settings.Networks.Ranges, l.settings.Networks.PrefixLength = []string{"10.128.0.0/12"}, 26
	l.settings.Networks.RouterID, l.settings.Networks.SubnetPoolIDs = cloud.router, []string{cloud.subnetPool}
	for _, s := range cloud.all("subnet") {
		if s["id"] == cloud.subnet {
			l.common = s["network_id"].(string)
		}
	}
	w.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Node}})
	(&serviceLife{w: w}).proxy("kubernetes", `"nobody"`) // it always exists, and is no part of the scenario
	w.T.Cleanup(l.clean)
	return l
}

func (l *namespacesLife) life() crashtest.Life {
	limits := maps.Clone(l.limits)
	limits["port"] += 2 * max(1, l.w.Stopped()) // a stopped process loses its last requests; only networks are found by their names
	return crashtest.Life{
		Cloud: l.cloud, Cluster: l.cloud.mark(), Start: l.start, Steps: l.steps, Uneven: l.uneven, InUse: l.inUse, Wrong: l.cloud.wrong,
		Limits: limits, Rules: []crashtest.Rule{networkStays},
	}
}

func (l *namespacesLife) start(ctx context.Context, cluster *rest.Config) error {
	return startOn(ctx, cluster, l.w, l.cloud, controller.Options{
		Settings: settings.NewLive(l.settings), Mend: 100 * time.Millisecond, PoolIdle: 2 * time.Second, StatusGap: 50 * time.Millisecond,
	})
}

func (l *namespacesLife) ctx() context.Context { return context.WithoutCancel(l.w.T.Context()) }

func (l *namespacesLife) try(err error) {
	l.w.T.Helper()
	if err != nil {
		l.w.T.Fatal(err)
	}
}

// come creates a namespace that chooses a mode.
func (l *namespacesLife) come(namespace string, mode v1.NetworkMode, more map[string]string) {
	annotations := map[string]string{v1.NetworkModeAnnotation: string(mode)}
	maps.Copy(annotations, more)
	l.want[namespace] = mode
	l.w.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: annotations, Labels: map[string]string{"tenant": namespace}}})
}

// choose has the red namespace choose another mode.
func (l *namespacesLife) choose(mode v1.NetworkMode) {
	l.w.Say("namespace %s chooses mode %s", redNamespace, mode)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1.NetworkModeAnnotation, mode)
	l.try(l.w.Client.Patch(l.ctx(), namespaceOf(redNamespace), client.RawPatch(types.MergePatchType, patch)))
}

// schedule creates a pod.
func (l *namespacesLife) schedule(namespace, name string) *corev1.Pod {
	return l.w.Pod(name, func(p *corev1.Pod) { p.Namespace = namespace })
}

// plug waits for the port of a pod, and plugs it.
func (l *namespacesLife) plug(pod *corev1.Pod) *v1.KuryrPort {
	port := l.w.Bound(pod)
	l.w.Plug(port)
	return port
}

// end deletes a pod.
func (l *namespacesLife) end(namespace, name string) {
	for _, pod := range l.w.Pods() {
		if pod.Namespace != namespace || pod.Name != name {
			continue
		}
		port := l.w.PortOf(pod)
		l.w.Delete(pod)
		if port != nil {
			l.w.Unplug(port)
		}
	}
}

// service creates a LoadBalancer, web, with a pod as its endpoint.
func (l *namespacesLife) service(namespace string, port *v1.KuryrPort) {
	l.serves[namespace] = port.Spec.VIF.Addresses[0].IP
	l.try(l.w.Client.Create(l.ctx(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}))
	slice := endpoints(l.serves[namespace])
	slice.Namespace = namespace
	slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: port.Spec.PodRef.Name, UID: port.Spec.PodRef.UID}
	l.try(l.w.Client.Create(l.ctx(), slice))
}

// leave deletes namespaces, and does what Kubernetes does about that: it deletes all that is in them,
// and them once they are empty.
func (l *namespacesLife) leave(namespaces ...string) {
	for _, namespace := range namespaces {
		l.w.Delete(namespaceOf(namespace))
		delete(l.want, namespace)
		delete(l.serves, namespace)
		for _, pod := range l.w.Pods() {
			if pod.Namespace == namespace {
				l.end(namespace, pod.Name)
			}
		}
	}
	for _, namespace := range namespaces {
		l.w.Eventually("namespace "+namespace+" is gone", func() bool { return l.emptied(namespace) })
	}
}

// emptied deletes what is in a namespace in deletion, and the namespace if nothing is. It reports
// whether the namespace is gone.
func (l *namespacesLife) emptied(namespace string) bool {
	in := client.InNamespace(namespace)
	left := 0
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &v1.KuryrLoadBalancerList{}, &v1.KuryrNetworkList{}, &eventsv1.EventList{}} {
		l.try(l.w.Client.List(l.ctx(), list, in))
		objects, err := meta.ExtractList(list)
		l.try(err)
		for _, o := range objects {
			left++
			if o := o.(client.Object); o.GetDeletionTimestamp().IsZero() {
				l.try(client.IgnoreNotFound(l.w.Client.Delete(l.ctx(), o)))
			}
		}
	}
	return left == 0 && l.finalize(namespace)
}

// finalize lets a namespace in deletion go.
func (l *namespacesLife) finalize(namespace string) (gone bool) {
	ns := namespaceOf(namespace)
	err := l.w.Client.Get(l.ctx(), client.ObjectKeyFromObject(ns), ns)
	if err == nil {
		ns.Spec.Finalizers = nil
		err = l.w.Client.SubResource("finalize").Update(l.ctx(), ns)
	}
	if err != nil && !apierrors.IsConflict(err) {
		l.try(client.IgnoreNotFound(err))
	}
	return apierrors.IsNotFound(err)
}

// clean removes the namespaces with all that is in them, whatever has happened.
func (l *namespacesLife) clean() {
	(&serviceLife{w: l.w}).proxy("kubernetes", "null")
	for _, namespace := range []string{redNamespace, blueNamespace} {
		ns := namespaceOf(namespace)
		if l.w.Client.Get(l.ctx(), client.ObjectKeyFromObject(ns), ns) != nil {
			continue
		}
		_ = l.w.Client.Delete(l.ctx(), ns)
		in := client.InNamespace(namespace)
		now := client.GracePeriodSeconds(0)
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &v1.KuryrLoadBalancerList{}, &v1.KuryrNetworkList{}, &eventsv1.EventList{}} {
			_ = l.w.Client.List(l.ctx(), list, in)
			objects, _ := meta.ExtractList(list)
			for _, o := range objects {
				_ = l.w.Client.Patch(l.ctx(), o.(client.Object), free)
				_ = l.w.Client.Delete(l.ctx(), o.(client.Object), now)
			}
		}
		for deadline := time.Now().Add(10 * time.Second); !l.finalize(namespace); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				l.w.T.Errorf("namespace %s does not go", namespace)
				break
			}
		}
	}
}

func (l *namespacesLife) network(namespace string) *v1.KuryrNetwork {
	kn := &v1.KuryrNetwork{}
	if l.w.Client.Get(l.ctx(), client.ObjectKey{Namespace: namespace, Name: namespace}, kn) != nil {
		return nil
	}
	return kn
}

// planned returns the reason of condition Planned of the red namespace; empty if there is none.
func (l *namespacesLife) planned() string {
	if kn := l.network(redNamespace); kn != nil {
		if c := meta.FindStatusCondition(kn.Status.Conditions, v1.ConditionPlanned); c != nil {
			return c.Reason
		}
	}
	return ""
}

// uneven compares the cloud with the KuryrNetworks and the Services, and these with the namespaces.
func (l *namespacesLife) uneven() (faults []string) {
	var nets, served []string
	for _, namespace := range []string{redNamespace, blueNamespace} {
		kn := l.network(namespace)
		if mode := l.want[namespace]; mode != "" && mode != v1.NetworkShared {
			if why := unready(kn, mode); why != "" {
				return []string{why}
			}
			nets = append(nets, l.cloud.wanted(kn))
		} else if kn != nil {
			faults = append(faults, "KuryrNetwork "+namespace+" is still there")
		}
		lines, why := l.serving(namespace)
		if why != "" {
			faults = append(faults, why)
		}
		served = append(served, lines...)
		faults = append(faults, l.elsewhere(namespace, kn)...)
	}
	if len(faults) > 0 { // the requests to the cloud take more time
		return faults
	}
	slices.Sort(nets)
	slices.Sort(served)
	if got := l.cloud.nets(); !slices.Equal(got, nets) {
		faults = append(faults, fmt.Sprintf("the cloud has the networks %q, want %q", got, nets))
	}
	if got := l.cloud.served(); !slices.Equal(got, served) {
		faults = append(faults, fmt.Sprintf("the cloud serves %q, want %q", got, served))
	}
	return faults
}

// unready returns why a KuryrNetwork is not as wanted; empty if it is.
func unready(kn *v1.KuryrNetwork, mode v1.NetworkMode) string {
	if kn == nil {
		return "there is no KuryrNetwork"
	}
	ready := meta.FindStatusCondition(kn.Status.Conditions, v1.ConditionReady)
	switch {
	case !kn.DeletionTimestamp.IsZero() || kn.Spec.Mode != mode:
		return fmt.Sprintf("KuryrNetwork %s has mode %s and is to be deleted: %t; want mode %s", kn.Name, kn.Spec.Mode, !kn.DeletionTimestamp.IsZero(), mode)
	case ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != kn.Generation:
		return fmt.Sprintf("KuryrNetwork %s is not ready: %+v", kn.Name, ready)
	case meta.FindStatusCondition(kn.Status.Conditions, v1.ConditionPlanned) != nil:
		return fmt.Sprintf("KuryrNetwork %s is not as planned: %+v", kn.Name, kn.Status.Conditions)
	}
	return ""
}

// elsewhere returns the pods of a namespace whose ports are in another network than theirs.
func (l *namespacesLife) elsewhere(namespace string, kn *v1.KuryrNetwork) (faults []string) {
	want := l.common
	if kn != nil {
		want = kn.Status.NetworkID
	}
	for _, port := range l.w.Ports() {
		if ref := port.Spec.PodRef; ref != nil && ref.Namespace == namespace && port.Spec.NetworkID != want {
			faults = append(faults, fmt.Sprintf("pod %s/%s has a port in network %s, want %s", namespace, ref.Name, port.Spec.NetworkID, want))
		}
	}
	return faults
}

// serving returns what the cloud has to serve for the Service of a namespace, or why the Service is
// not ready.
func (l *namespacesLife) serving(namespace string) (lines []string, why string) {
	key := client.ObjectKey{Namespace: namespace, Name: "web"}
	svc, klb := &corev1.Service{}, &v1.KuryrLoadBalancer{}
	there := l.w.Client.Get(l.ctx(), key, klb) == nil
	at := l.serves[namespace]
	switch err := l.w.Client.Get(l.ctx(), key, svc); {
	case at == "" && (there || err == nil):
		return nil, "the Service of " + namespace + " or its KuryrLoadBalancer is still there"
	case at == "":
		return nil, ""
	case err != nil || !there:
		return nil, "there is no KuryrLoadBalancer in " + namespace
	}
	ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != klb.Generation || len(svc.Status.LoadBalancer.Ingress) != 1 {
		return nil, fmt.Sprintf("the Service of %s is not ready: %+v, ingress %v", namespace, ready, svc.Status.LoadBalancer.Ingress)
	}
	return []string{"at " + svc.Spec.ClusterIP, "TCP:80 > " + at + ":8080", "public " + svc.Status.LoadBalancer.Ingress[0].IP}, ""
}

// inUse protects the resources of living namespaces and Services, and finds what only the collector
// has deleted.
func (l *namespacesLife) inUse(r crashtest.Resource) string {
	switch r.Kind {
	case "network":
		kn := l.network(r.Owner.Namespace)
		if kn == nil {
			return "its KuryrNetwork was gone already, whose finalizer should have waited for it"
		}
		if kn.DeletionTimestamp.IsZero() {
			return "its KuryrNetwork lives"
		}
	case "loadbalancer", "floatingip":
		var svc corev1.Service
		if l.w.Client.Get(l.ctx(), client.ObjectKey{Namespace: r.Owner.Namespace, Name: r.Owner.Name}, &svc) == nil && svc.DeletionTimestamp.IsZero() {
			return "the Service lives"
		}
	}
	return ""
}

// networkStays: a KuryrNetwork names one network in its life, and its spec stays in one project, mode
// and at one router.
func networkStays(_ crashtest.State, old, now client.Object) (faults []string) {
	before, is := old.(*v1.KuryrNetwork)
	after, still := now.(*v1.KuryrNetwork)
	if !is || !still {
		return nil
	}
	if a, b := before.Status.NetworkID, after.Status.NetworkID; a != "" && a != b {
		faults = append(faults, fmt.Sprintf("KuryrNetwork %s named network %s and then %q", after.Name, a, b))
	}
	a, b := before.Spec, after.Spec
	if a.Mode != b.Mode || a.ProjectID != b.ProjectID || a.NamespaceUID != b.NamespaceUID || a.RouterID != b.RouterID {
		faults = append(faults, fmt.Sprintf("the spec of KuryrNetwork %s was %+v and then %+v", after.Name, a, b))
	}
	return faults
}
