// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"fmt"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/polling"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// needs returns what a step takes of a quota, and how much; 0 if it takes none.
func needs(klb *v1.KuryrLoadBalancer, step balancer.Step) (polling.Quota, int) {
	of := func(l *sdn.Listener) int {
		if l.Pool == nil {
			return 1
		}
		return 1 + len(l.Pool.Members)
	}
	size := 0
	switch s := step.(type) {
	case balancer.CreateLoadBalancer:
		size = 1
		for i := range s.LoadBalancer.Listeners {
			size += of(&s.LoadBalancer.Listeners[i])
		}
	case balancer.CreateListener:
		size = of(&s.Listener)
	case balancer.CreatePool:
		size = 1 + len(s.Pool.Members)
	case balancer.ChangeMembers:
		size = max(0, len(s.Add)-len(s.Remove))
	case balancer.CreateFloatingIP:
		return addressQuota(klb), 1
	}
	return polling.Quota{What: fmt.Sprintf("%T", step), Project: klb.Spec.ProjectID}, size
}

// addressQuota is that of the floating IPs that a KuryrLoadBalancer may have one of.
func addressQuota(klb *v1.KuryrLoadBalancer) polling.Quota {
	what := "floating IP"
	if klb.Spec.PublicIP != nil {
		what += " of " + klb.Spec.PublicIP.NetworkID + "/" + klb.Spec.PublicIP.SubnetID
	}
	return polling.Quota{What: what, Project: klb.Spec.ProjectID}
}

// within sends the request of a step once there may be room for it.
func (r *Reconciler) within(klb *v1.KuryrLoadBalancer, step balancer.Step, request func() error) error {
	of, size := needs(klb, step)
	return r.quotas.Ask(of, kube.RequestOf(klb), size, request)
}
