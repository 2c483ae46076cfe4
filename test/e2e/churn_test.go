// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// Thirty pods come and go three times over (once with -short), and leave nothing behind.
func TestChurnLeavesNothing(t *testing.T) {
	f := onBed(t)
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		var names []string
		for i := range 30 {
			names = append(names, fmt.Sprintf("r%d-%02d", round, i))
		}
		began := time.Now()
		pods := f.pods(t, names...)
		t.Logf("round %d: %d pods run after %.1f s", round, len(pods), time.Since(began).Seconds())
		addresses := map[string]string{}
		for _, pod := range pods {
			if other := addresses[pod.Status.PodIP]; other != "" {
				t.Errorf("pods %s and %s both have %s", pod.Name, other, pod.Status.PodIP)
			}
			addresses[pod.Status.PodIP] = pod.Name
		}
		f.delete(t, pods...)
	}
	f.atRest(t)
}

// The daemon is killed while it plugs: the pod runs all the same.
func TestDaemonKilledDuringAdd(t *testing.T) {
	f := onBed(t)
	pod := must(f.Pod(t.Context(), f.namespace, "victim", "n1"))(t)
	eventually(t, func() error { // bound: kubelet's ADD is under way, and OVN takes its half second
		var list v1.KuryrPortList
		if err := f.Client.List(t.Context(), &list); err != nil {
			return err
		}
		for _, kp := range list.Items {
			if kp.Spec.PodRef != nil && kp.Spec.PodRef.UID == pod.UID {
				return nil
			}
		}
		return errNotYet
	})
	f.kill(t, "n1", "daemon")
	pod = f.running(t, pod.Name)
	f.reaches(t, f.pods(t, "peer")[0], pod)
	f.delete(t, pod, f.running(t, "peer"))
	f.atRest(t)
}

// The controller is killed between Neutron's port and its KuryrPort: the pod
// gets a port, and the one that nobody knows of is collected.
func TestControllerKilledBetweenPortAndObject(t *testing.T) {
	f := onBed(t)
	before := must(f.ownPorts(t.Context()))(t)
	allow := f.refuseKuryrPorts(t)
	pod := must(f.Pod(t.Context(), f.namespace, "victim", "n2"))(t)
	orphan := ""
	eventually(t, func() error {
		now, err := f.ownPorts(t.Context())
		if err != nil {
			return err
		}
		for _, id := range now {
			if !slices.Contains(before, id) {
				orphan = id
				return nil
			}
		}
		return errNotYet
	})
	f.kill(t, f.controller(t).Spec.NodeName, "controller")
	allow()
	pod = f.running(t, pod.Name)
	kp := must(f.KuryrPortOf(t.Context(), pod))(t)
	if kp.Name == orphan {
		t.Fatalf("the pod has port %s, whose KuryrPort could not be made", orphan)
	}
	t.Logf("port %s was left without a KuryrPort; the pod has %s", orphan, kp.Name)
	f.delete(t, pod)
	f.atRest(t)
}

// refuseKuryrPorts has the API server refuse all new KuryrPorts, until allow.
func (f *fixture) refuseKuryrPorts(t testing.TB) (allow func()) {
	t.Helper()
	const name = "e2e-refuses-kuryrports"
	forbidden := metav1.StatusReasonForbidden
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"openstack.org"}, APIVersions: []string{"v1"}, Resources: []string{"kuryrports"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "refused by a test", Reason: &forbidden}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		if err := f.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	allow = func() {
		for _, object := range []client.Object{binding, policy} {
			if err := client.IgnoreNotFound(f.Client.Delete(context.Background(), object)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(allow)
	eventually(t, func() error { // the API server takes a moment to follow its policies
		probe := &v1.KuryrPort{
			ObjectMeta: metav1.ObjectMeta{Name: "probe"},
			Spec: v1.KuryrPortSpec{Pool: "p", NodeName: "n", NetworkID: "n", VIF: v1.VIF{
				Type: "ovs", MACAddress: "fa:16:3e:00:00:01", Addresses: []v1.Address{{IP: "10.0.0.1", PrefixLength: 24}},
			}},
		}
		if err := f.Client.Create(t.Context(), probe, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policy is not in force yet: %w", cmp.Or(err, errNotYet))
		}
		return nil
	})
	return allow
}

// The API server is away for 20 s during a DEL: the pod's interface goes at
// once, and its port is freed later.
func TestAPIServerAwayDuringDelete(t *testing.T) {
	long(t) // TestCloudOutage stops the API server, too
	f := onBed(t)
	pod := f.stubborn(t, "victim", 5*time.Second)
	kp := must(f.KuryrPortOf(t.Context(), pod))(t)
	if err := f.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // until kubelet has heard of it
	must(cluster.Bed(t.Context(), "stop", "kube-apiserver"))(t)
	down := time.Now()
	back := func() { must(cluster.Bed(t.Context(), "start", "kube-apiserver"))(t) }
	gone := func() error {
		out, err := f.OnNode(t.Context(), pod.Spec.NodeName, "ovs-vsctl", "--bare", "--columns=name", "find", "interface",
			"external_ids:iface-id="+kp.Name)
		if err == nil && out != "" {
			err = fmt.Errorf("port %s is still on the bridge as %s", kp.Name, out)
		}
		return err
	}
	deadline := down.Add(20 * time.Second)
	for err := gone(); err != nil; err = gone() {
		if time.Now().After(deadline) {
			back()
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	if gone := time.Since(down); gone < time.Second {
		t.Errorf("unplugged %.1f s after the API server went away: the DEL came too early to prove anything", gone.Seconds())
	}
	t.Logf("unplugged %.1f s after the API server went away", time.Since(down).Seconds())
	time.Sleep(time.Until(deadline))
	back()
	f.delete(t, pod)
	f.atRest(t)
}

// stubborn makes a pod that does not end before its grace period is over.
func (f *fixture) stubborn(t testing.TB, name string, grace time.Duration) *corev1.Pod {
	t.Helper()
	template := cluster.Template(nil, "n1")
	pod := &corev1.Pod{Spec: template.Spec}
	pod.Namespace, pod.Name = f.namespace, name
	seconds := int64(grace.Seconds())
	pod.Spec.TerminationGracePeriodSeconds = &seconds
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}
	if err := f.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return f.running(t, name)
}

// A KuryrPort deleted by hand under a live pod is put back.
func TestKuryrPortDeletedByHand(t *testing.T) {
	f := onBed(t)
	pods := f.pods(t, "a", "b")
	kp := must(f.KuryrPortOf(t.Context(), pods[0]))(t)
	eventually(t, func() error { // the annotation is what it is put back from
		if f.running(t, "a").Annotations["openstack.org/kuryr-vif"] == "" {
			return errNotYet
		}
		return nil
	})
	if err := f.Client.Delete(t.Context(), kp); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		again, err := f.KuryrPortOf(t.Context(), pods[0])
		if err == nil && (again.Name != kp.Name || again.UID == kp.UID || again.DeletionTimestamp != nil) {
			err = fmt.Errorf("KuryrPort %s is not made anew yet", again.Name)
		}
		return err
	})
	f.event(t, "a", kp.Name)
	f.reaches(t, pods[1], pods[0])
	f.delete(t, pods...)
	f.atRest(t)
}

// A pod of the same name as one just deleted gets a port of its own.
func TestSameNameAgain(t *testing.T) {
	f := onBed(t)
	name := "again-" + rand.String(4)
	first := f.pods(t, name)[0]
	if err := f.Client.Delete(t.Context(), first, client.GracePeriodSeconds(0)); err != nil { // gone at once
		t.Fatal(err)
	}
	second := f.pods(t, name)[0]
	kp := must(f.KuryrPortOf(t.Context(), second))(t)
	if got, want := second.Status.PodIP, kp.Spec.VIF.Addresses[0].IP; second.UID == first.UID || got != want {
		t.Errorf("the second pod (UID %s, the first's %s) has IP %s, its port %s", second.UID, first.UID, got, want)
	}
	f.reaches(t, f.pods(t, "peer")[0], second)
	f.delete(t, f.running(t, "peer"))
	f.delete(t, second)
	f.atRest(t)
}
