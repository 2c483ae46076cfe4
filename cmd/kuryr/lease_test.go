// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// heldBy is a Lease that somebody holds.
type heldBy struct {
	resourcelock.Interface
	holder string
}

func (h heldBy) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: h.holder}, []byte("raw"), nil
}

func (heldBy) Identity() string { return "kuryr-controller-me" }

func (heldBy) Describe() string { return "kuryr-system/kuryr-controller" }

// A Lease is free at once if its holder's pod is gone, and only then.
func TestLeaseOfAPodThatIsGone(t *testing.T) {
	pod := func(phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kuryr-system", Name: "other"}, Status: corev1.PodStatus{Phase: phase}}
	}
	for name, c := range map[string]struct {
		holder string
		pod    *corev1.Pod
		fault  error
		free   bool
	}{
		"gone":                    {holder: "other", free: true},
		"there":                   {holder: "other", pod: pod(corev1.PodRunning)},
		"evicted":                 {holder: "other", pod: pod(corev1.PodFailed), free: true},
		"not in a pod":            {holder: "host_8a0e"},
		"this replica, not known": {holder: "kuryr-controller-me"},
		"nobody knows":            {holder: "other", fault: errors.New("no answer")},
		"another is there":        {holder: "gone", pod: pod(corev1.PodRunning), free: true},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if c.pod != nil {
				objects = append(objects, c.pod)
			}
			kube := fake.NewClientset(objects...)
			if c.fault != nil {
				kube.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.fault })
			}
			l := &lease{Interface: heldBy{holder: c.holder}, pods: kube.CoreV1().Pods("kuryr-system")}
			record, raw, err := l.Get(t.Context())
			if err != nil || string(raw) != "raw" {
				t.Fatalf("got %q, %v", raw, err)
			}
			want := c.holder
			if c.free {
				want = ""
			}
			if record.HolderIdentity != want {
				t.Errorf("the Lease is held by %q, want %q", record.HolderIdentity, want)
			}
		})
	}
}
