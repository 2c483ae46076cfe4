// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// repairLife is the life of a public Service whose load balancer can only be repaired by replacing
// it. Members, pool and listener are in ERROR and cannot be deleted. The controller may be stopped
// at any write. In the end the Service is served at its addresses, and nothing is left over.
type repairLife struct {
	*serviceLife
	cloud memoryBalancing
}

func newRepairLife(w *crashtest.World) *repairLife {
	cloud := newMemoryBalancing(w).(memoryBalancing)
	return &repairLife{newServiceLife(w, cloud), cloud}
}

func (l *repairLife) life() crashtest.Life {
	life := l.serviceLife.life()
	life.Steps = l.steps
	life.InUse = func(r crashtest.Resource) string {
		if r.Kind == "loadbalancer" { // it is replaced
			return ""
		}
		return l.inUse(r)
	}
	life.Limits = map[string]int{"loadbalancer": 3, "floatingip": 1} // one of the three is the trial
	return life
}

func (l *repairLife) steps() {
	l.w.Say("the Service comes, a LoadBalancer")
	l.come(corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}}}, "10.1.0.11")
	l.w.Settled()
	l.w.Say("a part of its load balancer is in ERROR, and endpoints change")
	l.w.ByHand(l.spoil)
	l.try(l.w.Client.Patch(l.ctx(), endpoints(l.later...), client.Merge))
	l.w.Settled()
	l.w.Say("the Service is deleted")
	l.leave()
	l.w.Settled()
}

// spoil breaks a port of the load balancer permanently.
func (l *repairLife) spoil() {
	for _, item := range l.cloud.cloud.LoadBalancers() {
		if item.Cluster != clusterID {
			continue
		}
		l.cloud.cloud.EditLoadBalancer(item.LoadBalancer.ID, func(lb *sdn.LoadBalancer) {
			if len(lb.Listeners) == 0 || lb.Listeners[0].Pool == nil {
				return
			}
			p := *lb.Listeners[0].Pool
			p.Members = append([]sdn.Member(nil), p.Members...)
			for i := range p.Members {
				p.Members[i].Provisioning = sdn.ProvisioningError
			}
			lb.Listeners[0].Pool = &p
			lb.Listeners[0].Provisioning = sdn.ProvisioningError
		})
		for _, x := range item.LoadBalancer.Listeners[:min(1, len(item.LoadBalancer.Listeners))] {
			l.cloud.cloud.KeepInError(x.ID)
			if x.Pool != nil {
				l.cloud.cloud.KeepInError(x.Pool.ID)
				for _, m := range x.Pool.Members {
					l.cloud.cloud.KeepInError(m.ID)
				}
			}
		}
	}
}
