// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

var update = flag.Bool("update", false, "write what commands print as what is wanted")

// golden compares what was printed with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.Time{Time: noon.Add(-d)} }

func condition(kind string, is metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: ago(90 * time.Second)}
}

// busy is a pool of a bare-metal node that is short of quota, calm one of a
// virtual machine for one namespace, fresh one that nobody has looked at yet.
func examples() (busy, calm, fresh v1.KuryrPortPool) {
	busy = v1.KuryrPortPool{
		ObjectMeta: metav1.ObjectMeta{
			Name: "metal-1-8c1f0a2b9d", UID: "p1", CreationTimestamp: ago(50 * time.Hour),
			Annotations: map[string]string{v1.FillAnnotation: "20"},
		},
		Spec: v1.KuryrPortPoolSpec{
			Key: v1.PoolKey{NodeName: "metal-1", ProjectID: "proj", NetworkID: "net", SubnetIDs: []string{"sub4", "sub6"}, SecurityGroupIDs: []string{"grp"}},
			Min: 5, Max: 0, Batch: 10, TTL: metav1.Duration{Duration: 10 * time.Minute}, Cooldown: metav1.Duration{Duration: 10 * time.Second},
		},
		Status: v1.KuryrPortPoolStatus{Available: 3, Bound: 106, Recycling: 1, Total: 110, WaitingPods: 2, LastRefill: new(ago(2 * time.Minute)), Conditions: []metav1.Condition{
			condition("Ready", "False", "OverQuota", "110 of 110 ports of project proj are used"),
			condition("OverQuota", "True", "OverQuota", "110 of 110 ports of project proj are used"),
			condition("Progressing", "True", "Working", "Kuryr is creating or returning ports."),
		}},
	}
	calm = v1.KuryrPortPool{
		ObjectMeta: metav1.ObjectMeta{Name: "vm-1-0011223344", UID: "p2", CreationTimestamp: ago(3 * time.Minute)},
		Spec: v1.KuryrPortPoolSpec{
			Key: v1.PoolKey{NodeName: "vm-1", SubnetIDs: []string{"sub4"}, ParentPortID: "parent", Namespace: "web", VIFType: "vlan"},
			Min: 0, Max: 8, Batch: 1, TTL: metav1.Duration{Duration: time.Hour},
		},
		Status: v1.KuryrPortPoolStatus{Available: 8, Total: 8, Conditions: []metav1.Condition{
			condition("Ready", "True", "Ready", "The SDN gives the ports that are asked for."),
			condition("Progressing", "False", "Settled", "Every pod has its port."),
		}},
	}
	fresh = v1.KuryrPortPool{
		ObjectMeta: metav1.ObjectMeta{Name: "vm-2-5566778899", CreationTimestamp: ago(time.Second)},
		Spec:       v1.KuryrPortPoolSpec{Key: v1.PoolKey{NodeName: "vm-2", SubnetIDs: []string{"sub4"}}, Min: 1, Batch: 1},
	}
	return busy, calm, fresh
}

func TestListPrints(t *testing.T) {
	for _, format := range []string{"", "wide", "name", "yaml", "json"} {
		busy, calm, fresh := examples()
		var out bytes.Buffer
		if err := writePools(&out, []v1.KuryrPortPool{busy, calm, fresh}, format, noon); err != nil {
			t.Errorf("writePools as %q: %v", format, err)
		}
		golden(t, "list-"+cmp.Or(format, "table"), out.Bytes())
	}
}

func TestShowPrints(t *testing.T) {
	busy, _, fresh := examples()
	port := func(name string, status v1.KuryrPortStatus, ref *v1.PodReference) v1.KuryrPort {
		return v1.KuryrPort{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(40 * time.Minute)},
			Spec:       v1.KuryrPortSpec{PodRef: ref, VIF: v1.VIF{Addresses: []v1.Address{{IP: "10.0.0.5"}, {IP: "fd00::5"}}}},
			Status:     status,
		}
	}
	going := port("port-3", v1.KuryrPortStatus{Phase: v1.PortAvailable}, nil)
	going.DeletionTimestamp = new(ago(time.Second))
	full := picture{pool: &busy, now: noon, ports: []v1.KuryrPort{
		port("port-1", v1.KuryrPortStatus{Phase: v1.PortBound, Active: true}, &v1.PodReference{Namespace: "web", Name: "shop-0"}),
		port("port-2", v1.KuryrPortStatus{}, nil), going,
	}, events: []corev1.Event{
		{
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "web", Name: "shop-1"}, Type: "Warning", Reason: "OverQuota",
			Message: "The pod waits for a port:\n110 of 110 are used", EventTime: metav1.MicroTime{Time: noon.Add(-time.Minute)},
		},
		{
			InvolvedObject: corev1.ObjectReference{Kind: "KuryrPort", Name: "port-1"}, Type: "Warning", Reason: "KuryrPortDeleted",
			Message: "put back", Series: &corev1.EventSeries{LastObservedTime: metav1.MicroTime{Time: noon.Add(-5 * time.Second)}},
		},
	}}
	for name, p := range map[string]*picture{"show-full": &full, "show-fresh": {pool: &fresh, now: noon}} {
		var out bytes.Buffer
		if err := p.write(&out); err != nil {
			t.Error(err)
		}
		golden(t, name, out.Bytes())
	}
	var out bytes.Buffer
	full.ports = full.ports[:1]
	if err := encode(&out, "yaml", full.objects()); err != nil {
		t.Error(err)
	}
	golden(t, "show-yaml", out.Bytes())
}

func TestStanding(t *testing.T) {
	for _, r := range []struct {
		conditions []metav1.Condition
		want       string
	}{
		{nil, "Unknown"},
		{[]metav1.Condition{condition("OverQuota", "True", "x", "")}, "Unknown"},
		{[]metav1.Condition{condition("Ready", "True", "Ready", "")}, "Ready"},
		{[]metav1.Condition{condition("Ready", "False", "", "")}, "NotReady"},
		{[]metav1.Condition{condition("Ready", "True", "Ready", ""), condition("SubnetExhausted", "True", "x", ""), condition("OverQuota", "False", "x", "")}, "Ready,SubnetExhausted"},
		{[]metav1.Condition{condition("SubnetExhausted", "True", "x", ""), condition("OverQuota", "True", "x", ""), condition("Ready", "False", "OverQuota", "")}, "OverQuota,SubnetExhausted"},
	} {
		p := v1.KuryrPortPool{Status: v1.KuryrPortPoolStatus{Conditions: r.conditions}}
		if got := standing(&p); got != r.want {
			t.Errorf("standing of %v: got %q, want %q", r.conditions, got, r.want)
		}
	}
}

func TestDurationsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 10 * time.Minute: "10m", 90 * time.Minute: "1h30m", 2 * time.Hour: "2h", 100 * time.Second: "1m40s", 20 * time.Second: "20s", 10 * time.Hour: "10h",
	} {
		if got := short(metav1.Duration{Duration: d}); got != want {
			t.Errorf("short(%v): got %s, want %s", d, got, want)
		}
	}
}
