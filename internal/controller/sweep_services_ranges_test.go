// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/crashtest"
)

// goneLife is the life of a Service whose load balancer somebody deletes in the cloud right before
// the Service is deleted.
type goneLife struct{ *serviceLife }

func newGoneLife(w *crashtest.World, cloud balancing) *goneLife {
	return &goneLife{newServiceLife(w, cloud)}
}

func (l *goneLife) life() crashtest.Life {
	life := l.serviceLife.life()
	life.Steps = l.steps
	// A process that starts after the load balancer is gone, but before the Service is, may create
	// another one.
	life.Limits = map[string]int{"loadbalancer": 1 + l.w.Stopped(), "floatingip": 1}
	return life
}

func (l *goneLife) steps() {
	l.w.Say("the Service comes, a LoadBalancer")
	l.come(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}, "10.1.0.11")
	l.w.Settled()
	l.w.Say("its load balancer is deleted in the cloud, and then the Service")
	l.w.ByHand(l.cloud.lose)
	l.leave()
	l.w.Settled()
}

// TestSourceRangesWhileWritesMeetTheirFate runs the life of a Service whose source ranges a
// security group on its pods' ports enforces. The group is created, and its rules and its ports
// change. It admits all clients when the ranges are removed. It is deleted when the Service is no
// longer public, comes back, and is deleted with the Service.
//
// The collector does not handle other kinds here.
func TestSourceRangesWhileWritesMeetTheirFate(t *testing.T) {
	s := sweepOf(t)
	s.Kinds = []client.ObjectList{&v1.KuryrLoadBalancerList{}}
	if os.Getenv("KURYR_SWEEP") != "all" {
		s.Sample = servicesSample
		if testing.Short() {
			s.Sample = 1
		}
	}
	s.Begin = func(w *crashtest.World) crashtest.Life {
		cloud := newBalancing(w).(*openstackBalancing)
		cloud.provider = "ovn"
		return newRangesLife(w, cloud).life()
	}
	s.Run(t, crashtest.StoppedBefore, crashtest.StoppedAfter, crashtest.AnswerLost)
}

// rangesLife is the life of a Service with source ranges.
type rangesLife struct {
	*serviceLife
}

func newRangesLife(w *crashtest.World, cloud *openstackBalancing) *rangesLife {
	for _, whose := range []string{"other", cloud.cluster + "-2"} {
		id := cloud.make("security-group", map[string]any{"name": "default/web", "description": "kuryr.cluster=" + whose + " kuryr.owner=kuryrloadbalancer/default/web"})
		w.T.Cleanup(func() {
			if _, err := cloud.ask(http.MethodDelete, "/networking/v2.0/security-groups/"+id, nil, nil); err != nil {
				w.T.Error(err)
			}
		})
	}
	l := &rangesLife{serviceLife: newServiceLife(w, cloud)}
	l.settings.Services.SourceRangesBySecurityGroups = true
	l.mend = time.Hour // how long a floating IP waits for an endpoint that has the group
	// Groups that no status names are collected, like those that are given up.
	l.settings.Orphans.Grace.Duration = 100 * time.Millisecond
	if cloud.project != "" { // a real cloud takes time for each list
		l.settings.Orphans.Grace.Duration = time.Second
	}
	if w.Pauses() { // what is made late comes after the comparison that follows a take-over
		l.settings.Orphans = orphans(w, hurriedOrphans)
	}
	return l
}

func (l *rangesLife) life() crashtest.Life {
	life := l.serviceLife.life()
	life.Steps, life.InUse, life.Rules = l.steps, l.inUse, []crashtest.Rule{closedAtFirst}
	inner := life.Uneven
	life.Uneven = func() []string {
		if faults := inner(); len(faults) > 0 {
			return faults
		}
		return l.unevenGroups()
	}
	// One port per pod, and those of a stopped process or a lost answer. A group is created twice,
	// and is found again by its owner.
	life.Limits = map[string]int{"loadbalancer": 1, "floatingip": 2, "security-group": 2, "port": 2 + 2*max(1, l.w.Stopped())}
	return life
}

func (l *rangesLife) steps() {
	w := l.w
	w.Say("pods come, and a Service in front of one of them")
	w.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Node}})
	one, two := w.Pod("one"), w.Pod("two")
	first, second := addressOf(w.Bound(one)), addressOf(w.Bound(two))
	l.come(corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: []string{"192.0.2.0/24"},
		Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}},
	}, first)
	w.Settled()
	w.Say("the other pod takes its place, and the ranges change")
	l.service(`{"spec":{"loadBalancerSourceRanges":["198.51.100.0/24"]}}`)
	l.try(w.Client.Patch(l.ctx(), endpoints(second), client.Merge))
	w.Settled()
	w.Say("the ranges go: it is for all")
	l.service(`{"spec":{"loadBalancerSourceRanges":null}}`)
	w.Settled()
	w.Say("it is public no more")
	l.service(`{"spec":{"type":"ClusterIP"}}`)
	w.Settled()
	w.Say("it is again, for others, and is deleted before all is done")
	l.service(`{"spec":{"type":"LoadBalancer","loadBalancerSourceRanges":["203.0.113.0/28"]}}`)
	w.Eventually("it has a group", func() bool { return len(w.Ours("security-group")) == 1 })
	l.leave()
	w.Settled()
	for _, pod := range []*corev1.Pod{one, two} {
		w.Delete(pod)
	}
	w.Settled()
}

func addressOf(port *v1.KuryrPort) string { return port.Spec.VIF.Addresses[0].IP }

// unevenGroups compares the security groups with the Service's ranges.
func (l *rangesLife) unevenGroups() []string {
	svc, slice, klb := l.world()
	var want []string
	if svc != nil && svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		all := []string{"0.0.0.0/0"}
		if ranges := svc.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
			if klb == nil || !slices.Contains(klb.Spec.SourceRanges, ranges[0]) {
				return []string{"its ranges are not planned"}
			}
			all = klb.Spec.SourceRanges // with those of the cluster itself
		}
		want = append(want, "a group")
		for _, r := range all {
			want = append(want, "tcp:8080 from "+r, "udp:8080 from "+r)
		}
		for _, e := range slice.Endpoints {
			want = append(want, "at "+e.Addresses[0])
		}
	}
	slices.Sort(want)
	if got := l.cloud.fences(); !slices.Equal(got, want) {
		return []string{fmt.Sprintf("the groups let in %q, want %q", got, want)}
	}
	return nil
}

// inUse also protects the group of a living public Service.
func (l *rangesLife) inUse(r crashtest.Resource) string {
	if r.Kind == "security-group" {
		svc, _, klb := l.world()
		if svc != nil && svc.DeletionTimestamp.IsZero() && svc.Spec.Type == corev1.ServiceTypeLoadBalancer && klb != nil && klb.Status.SecurityGroupID == r.ID {
			return "the Service is public"
		}
	}
	return l.serviceLife.inUse(r)
}

// closedAtFirst: a floating IP is associated once an endpoint has the group. An association that
// was requested then may come while the Service and its group are being deleted.
func closedAtFirst(s crashtest.State, old, now client.Object) []string {
	before, _ := old.(*v1.KuryrLoadBalancer)
	after, _ := now.(*v1.KuryrLoadBalancer)
	if after == nil || !after.DeletionTimestamp.IsZero() || after.Status.PublicIP == nil || before != nil && before.Status.PublicIP != nil || len(after.Spec.SourceRanges) == 0 {
		return nil
	}
	group := after.Status.SecurityGroupID
	for _, o := range s {
		port, is := o.(*v1.KuryrPort)
		if is && group != "" && slices.Contains(port.Status.AppliedSecurityGroupIDs, group) {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s had floating IP %s while no port had its group %q", after.Name, after.Status.PublicIP.IP, group)}
}
