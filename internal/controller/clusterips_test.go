// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// holder makes a Service that is to hold a cluster IP of a Service that is gone.
func (b *serviceBed) holder(name, ip, loadBalancer string) {
	b.t.Helper()
	b.create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: holderNamespace, Name: name,
			Labels: map[string]string{v1.ClusterIPHolderLabel: "", v1.LeaveAloneLabel: ""},
			Annotations: map[string]string{
				v1.HeldForAnnotation: "of a Service that is gone", v1.HeldClusterIPAnnotation: ip, v1.HeldLoadBalancersAnnotation: loadBalancer,
			},
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "held.invalid"},
	})
}

// TestHeldWhileOctaviaHangs: a cluster IP is held at once, also while Octavia gives no answer at
// all, and one that is held already is looked at.
func TestHeldWhileOctaviaHangs(t *testing.T) {
	b := newWholeBed(t)
	b.launch()
	var ips []string
	for _, name := range []string{"a", "b", "c"} {
		ips = append(ips, b.service(name, func(s *corev1.Service) { s.Labels = map[string]string{v1.LeaveAloneLabel: ""} }).Spec.ClusterIP)
		b.delete(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	answer := make(chan struct{})
	b.onBefore(func(ctx context.Context, call string, _ int) error {
		if call == memory.ListLoadBalancers {
			select {
			case <-answer:
			case <-ctx.Done():
			}
		}
		return nil
	})
	for i, ip := range ips {
		b.holder(fmt.Sprint("cluster-ip-", i), ip, nobody)
		b.eventually("it is held", func() bool {
			return slices.ContainsFunc(b.holders(), func(s corev1.Service) bool { return s.Spec.ClusterIP == ip })
		})
		time.Sleep(400 * time.Millisecond) // it is asked whether the load balancer is gone
	}
	close(answer)
	b.eventually("no load balancer is there, and the cluster IPs are free", func() bool { return len(b.holders()) == 0 })
}
