// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
)

// What is fixed when an object is made, and what may change.
func TestUpdates(t *testing.T) {
	for _, r := range []struct{ name, base, update, refused string }{
		{"pool", port, `spec: {pool: other}`, "spec.pool is fixed: Kuryr makes, gives and takes ports by itself; delete the pod to free the port"},
		{"nodeName", port, `spec: {nodeName: other}`, "spec.nodeName is fixed: Kuryr makes"},
		{"projectID", port, `spec: {projectID: other}`, "spec.projectID is fixed: Kuryr makes"},
		{"projectID removed", port, `spec: {projectID: null}`, "spec.projectID is fixed: Kuryr makes"},
		{"networkID", port, `spec: {networkID: other}`, "spec.networkID is fixed: Kuryr makes"},
		{"vif", port, `spec: {vif: {mtu: 1400}}`, "spec.vif is fixed, as the SDN gave it: Kuryr makes"},
		{"address", port, `spec: {vif: {addresses: [{ip: 10.0.0.6, prefixLength: 24}]}}`, "spec.vif is fixed, as the SDN gave it"},
		{"details", port, `spec: {vif: {details: {more: x}}}`, "spec.vif is fixed, as the SDN gave it"},
		{"other pod", port, `spec: {podRef: {name: web-1, uid: uid-2}}`, "spec.podRef is fixed while a pod has the port: Kuryr makes, gives and takes ports by itself; delete the pod to free the port"},
		{"pod of the same name", port, `spec: {podRef: {uid: uid-2}}`, "spec.podRef is fixed while a pod has the port"},
		{"interface", port, `spec: {podRef: {interface: eth1}}`, "spec.podRef is fixed while a pod has the port"},
		{"release", port, `spec: {podRef: null}`, ""},
		{"groups", port, `spec: {securityGroupIDs: [other]}`, ""},
		{"no groups", port, `spec: {securityGroupIDs: null}`, ""},
		{"key", pool, `spec: {key: {nodeName: other}}`, "spec.key is fixed: another key is another pool, which Kuryr makes by itself"},
		{"key's subnets", pool, `spec: {key: {subnetIDs: [a]}}`, "spec.key is fixed"},
		{"levels", pool, `spec: {min: 5, max: 20, batch: 10, ttl: 1h, cooldown: 0s}`, ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, nil)
			o := create(t, c, object(t, r.base, ``))
			merge(o.Object, object(t, `{}`, r.update).Object)
			err := c.Update(t.Context(), o)
			switch {
			case r.refused == "" && err != nil:
				t.Errorf("Update with %s: %v", r.update, err)
			case r.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), r.refused)):
				t.Errorf("Update with %s: got %v, want it refused with %q", r.update, err, r.refused)
			}
		})
	}
}

// A port goes from pod to pod by way of being free.
func TestPodRefGoesThroughFree(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	o := create(t, c, object(t, port, ``))
	for _, step := range []string{
		`spec: {podRef: null}`,
		`spec: {podRef: {namespace: default, name: web-0, uid: uid-2, interface: eth0}}`,
		`spec: {podRef: null}`,
	} {
		merge(o.Object, object(t, `{}`, step).Object)
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatalf("Update with %s: %v", step, err)
		}
	}
}

// Two claims made from the same version: the second loses.
func TestClaimsConflict(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	o := create(t, c, object(t, port, `spec: {podRef: null}`))
	first, second := o.DeepCopy(), o.DeepCopy()
	merge(first.Object, object(t, `{}`, `spec: {podRef: {namespace: a, name: a, uid: a, interface: eth0}}`).Object)
	merge(second.Object, object(t, `{}`, `spec: {podRef: {namespace: b, name: b, uid: b, interface: eth0}}`).Object)
	if err := c.Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), second); !apierrors.IsConflict(err) {
		t.Errorf("Update with an old resourceVersion: got %v, want a conflict", err)
	}
}

// Writers of spec cannot touch status, and the other way round.
func TestStatusIsASubresource(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	for base, status := range map[string]string{
		port: `status: {phase: Bound, active: true}`,
		pool: `status: {available: 3, bound: 1, recycling: 0, total: 4, waitingPods: 0}`,
	} {
		o := create(t, c, object(t, base, status))
		if _, there := o.Object["status"]; there {
			t.Errorf("Create of %s took the status", o.GetKind())
		}
		both := `{metadata: {labels: {changed: "yes"}}, ` + status + `, spec: {securityGroupIDs: [other], min: 7}}`
		update := o.DeepCopy()
		merge(update.Object, object(t, `{}`, both).Object)
		if err := c.Status().Update(t.Context(), update); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o.Object["spec"], update.Object["spec"]); diff != "" || update.GetLabels() != nil {
			t.Errorf("Status().Update of %s changed more than the status: %v %s", o.GetKind(), update.GetLabels(), diff)
		}
		want := update.DeepCopy().Object["status"]
		delete(update.Object, "status")
		if err := c.Update(t.Context(), update); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, update.Object["status"]); diff != "" {
			t.Errorf("Update of %s changed the status (-want +got):\n%s", o.GetKind(), diff)
		}
	}
}

func TestStatusRules(t *testing.T) {
	for _, r := range []struct{ name, base, status, refused string }{
		{"phase", port, `phase: Free`, `Unsupported value: "Free": supported values: "Available", "Bound", "Recycling", "Deleting", "Failed"`},
		{"all of a port", port, `{phase: Bound, active: true, appliedSecurityGroupIDs: [a], attachment: {containerID: c, interface: eth0, since: "2026-01-02T03:04:05Z"}}`, ""},
		{"groups twice", port, `appliedSecurityGroupIDs: [a, a]`, "Duplicate value"},
		{"groups many", port, `appliedSecurityGroupIDs: ` + list(65), "Too many: 65: must have at most 64 items"},
		{"group long", port, `appliedSecurityGroupIDs: [` + strings.Repeat("a", 65) + `]`, "Too long: may not be more than 64"},
		{"attachment", port, `attachment: {}`, "status.attachment.containerID: Required value"},
		{"attachment empty", port, `attachment: {containerID: "", interface: "", since: "2026-01-02T03:04:05Z"}`, "should be at least 1 chars long"},
		{"attachment long", port, `attachment: {containerID: c, interface: a-very-long-name-0, since: "2026-01-02T03:04:05Z"}`, "Too long: may not be more than 15"},
		{"container long", port, `attachment: {containerID: ` + strings.Repeat("a", 254) + `, interface: eth0, since: "2026-01-02T03:04:05Z"}`, "Too long: may not be more than 253"},
		{"since", port, `attachment: {containerID: c, interface: eth0, since: today}`, "must be of type date-time"},
		{"conditions", port, `conditions: [{type: Ready, status: Maybe, reason: R, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}]`, `Unsupported value: "Maybe"`},
		{"all of a pool", pool, `{available: 1, bound: 2, recycling: 3, total: 6, waitingPods: 5, lastRefill: "2026-01-02T03:04:05Z"}`, ""},
		{"negative", pool, `{available: -1, bound: 0, recycling: 0, total: 0, waitingPods: 0}`, "should be greater than or equal to 0"},
		// It would pass no client: all decode into 32 bits.
		{"beyond 32 bits", pool, `{available: 4294967296, bound: 0, recycling: 0, total: 0, waitingPods: 0}`, "status.available"},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, nil)
			o := create(t, c, object(t, r.base, ``))
			merge(o.Object, map[string]any{"status": object(t, `{}`, r.status).Object})
			err := c.Status().Update(t.Context(), o)
			switch {
			case r.refused == "" && err != nil:
				t.Errorf("Status().Update with %s: %v", r.status, err)
			case r.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), r.refused)):
				t.Errorf("Status().Update with %s: got %v, want it refused with %q", r.status, err, r.refused)
			}
		})
	}
}

// The Go types and the definitions say the same: nothing is lost on the way
// through the server.
func TestGoTypesRoundTrip(t *testing.T) {
	t.Parallel()
	c := typed(t)
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local())
	ready := metav1.Condition{
		Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "m",
		ObservedGeneration: 1, LastTransitionTime: at,
	}
	full := &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: "round-trip"}}
	convert(t, object(t, port, `spec: {vif: {type: vlan, bridge: br0, vlanID: 7, parentPortID: parent}}`), &full.Spec)
	status := v1.KuryrPortStatus{
		Phase: v1.PortBound, AppliedSecurityGroupIDs: []string{"group"}, Active: true,
		Attachment: &v1.Attachment{ContainerID: "c", Interface: "eth0", Since: at},
		Conditions: []metav1.Condition{ready},
	}
	roundTrip(t, c, full, func(o *v1.KuryrPort) { o.Status = status },
		func(want, got *v1.KuryrPort) string {
			return cmp.Diff(want.Spec, got.Spec) + cmp.Diff(want.Status, got.Status)
		})

	fullPool := &v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: "round-trip"}}
	convert(t, object(t, pool, `spec: {key: {parentPortID: trunk}}`), &fullPool.Spec)
	poolStatus := v1.KuryrPortPoolStatus{
		Available: 1, Bound: 2, Recycling: 3, Total: 6, WaitingPods: 4, LastRefill: &at,
		Conditions: []metav1.Condition{ready},
	}
	roundTrip(t, c, fullPool, func(o *v1.KuryrPortPool) { o.Status = poolStatus },
		func(want, got *v1.KuryrPortPool) string {
			return cmp.Diff(want.Spec, got.Spec) + cmp.Diff(want.Status, got.Status)
		})
}

func typed(t *testing.T) client.Client {
	t.Helper()
	apitest.Need(t)
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(admin, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// convert puts u's spec into the struct that into points to.
func convert(t *testing.T, u *unstructured.Unstructured, into any) {
	t.Helper()
	spec := u.Object["spec"].(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(spec, into, true); err != nil {
		t.Fatal(err)
	}
}

func roundTrip[T interface {
	client.Object
	DeepCopyObject() runtime.Object
}](t *testing.T, c client.Client, o T, setStatus func(T), diff func(want, got T) string) {
	t.Helper()
	setStatus(o)
	want := o.DeepCopyObject().(T)
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	setStatus(o)
	if err := c.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	if d := diff(want, o); d != "" {
		t.Errorf("%T through the server (-want +got):\n%s", o, d)
	}
}
