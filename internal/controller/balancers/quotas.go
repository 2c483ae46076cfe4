// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"fmt"
	"reflect"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/polling"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// needs returns the quota that a step takes from, and how much of it; 0 if it takes none.
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

// addressQuota is the quota of the floating IPs that a KuryrLoadBalancer may have.
func addressQuota(klb *v1.KuryrLoadBalancer) polling.Quota {
	what := "floating IP"
	if klb.Spec.PublicIP != nil {
		what += " of " + klb.Spec.PublicIP.NetworkID + "/" + klb.Spec.PublicIP.SubnetID
	}
	return polling.Quota{What: what, Project: klb.Spec.ProjectID}
}

// request sends the request of a step once its quota may have room, and counts it.
func (v *visit) request(step balancer.Step, send func() error) error {
	of, size := needs(v.klb, step)
	return v.quotas.Ask(of, v.req, size, func() error { return count(reflect.TypeOf(step).Name(), send()) })
}
