// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestReleaseWhileWritesMeetTheirFate runs the end of a Service whose load balancer Octavia does
// not delete. After a while the Service is released, and its cluster IP is held. Then Octavia
// deletes the load balancer, and the cluster IP is free.
func TestReleaseWhileWritesMeetTheirFate(t *testing.T) {
	s := sweepOf(t)
	s.Kinds = []client.ObjectList{&v1.KuryrLoadBalancerList{}}
	if os.Getenv("KURYR_SWEEP") != "all" {
		s.Sample = servicesSample
		if testing.Short() {
			s.Sample = 1
		}
	}
	s.Begin = func(w *crashtest.World) crashtest.Life {
		return newReleasedLife(w, newMemoryBalancing(w).(memoryBalancing)).life()
	}
	s.Run(t, crashtest.StoppedBefore, crashtest.StoppedAfter, crashtest.AnswerLost)
}

// releasedLife is the life of a Service that is released before its load balancer is gone.
type releasedLife struct {
	*serviceLife
	memory memoryBalancing
	ip     string // the cluster IP
}

func newReleasedLife(w *crashtest.World, cloud memoryBalancing) *releasedLife {
	l := &releasedLife{serviceLife: newServiceLife(w, cloud), memory: cloud}
	// The collector finds what a stopped process has left, as after each release.
	l.settings.Orphans.Interval, l.settings.Orphans.Grace = metav1.Duration{Duration: 200 * time.Millisecond}, metav1.Duration{Duration: 500 * time.Millisecond}
	if w.Pauses() {
		l.settings.Orphans = orphans(w, l.settings.Orphans)
	}
	l.settings.Services.ReleaseAfter = metav1.Duration{Duration: time.Second}
	w.T.Cleanup(func() {
		_ = w.Client.DeleteAllOf(l.ctx(), &corev1.Service{}, client.InNamespace(holderNamespace), client.HasLabels{v1.ClusterIPHolderLabel})
	})
	return l
}

func (l *releasedLife) life() crashtest.Life {
	life := l.serviceLife.life()
	life.Steps, life.Uneven = l.steps, l.uneven
	life.Limits = map[string]int{"loadbalancer": 1, "floatingip": 1}
	return life
}

func (l *releasedLife) steps() {
	l.w.Say("the Service comes, a LoadBalancer")
	l.come(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}, "10.1.0.11")
	l.w.Settled()
	svc, _, _ := l.world()
	l.ip = svc.Spec.ClusterIP
	l.w.Say("it is deleted, and Octavia does not come to an end")
	l.busy(memory.UntilSettled)
	l.leave()
	l.w.Eventually("the Service is gone, and its cluster IP held", func() bool {
		svc, _, klb := l.world()
		held := l.held()
		return svc == nil && klb == nil && len(held) == 1 && held[0].Spec.ClusterIP == l.ip
	})
	l.w.Say("Octavia comes to an end")
	l.w.ByHand(func() {
		l.busy(1)
		for _, item := range l.memory.cloud.LoadBalancers() {
			l.memory.cloud.Settle(item.LoadBalancer.ID)
		}
	})
	l.w.Settled()
}

// busy sets for how many calls load balancers stay busy after a change.
func (l *releasedLife) busy(calls int) {
	f, err := memory.New().Backend("of another cloud").Features(l.ctx(), "amphora")
	l.try(err)
	l.memory.cloud.SetProvider(memory.Provider{Features: f, Busy: calls, Halves: true})
}

// held returns the Services that hold cluster IPs.
func (l *releasedLife) held() []corev1.Service {
	var list corev1.ServiceList
	l.try(l.w.Client.List(l.ctx(), &list, client.InNamespace(holderNamespace), client.HasLabels{v1.ClusterIPHolderLabel}))
	return list.Items
}

func (l *releasedLife) uneven() []string {
	if len(l.held()) > 0 {
		return []string{"its cluster IP is still held"}
	}
	return l.serviceLife.uneven()
}
