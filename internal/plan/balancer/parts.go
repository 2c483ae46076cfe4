// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// part is an object below a load balancer that was read.
type part struct {
	kind, id, name string // kind is listener, pool or member
	provisioning   sdn.Provisioning
	disabled       bool
	pool           string // of a member
}

// parts returns the objects below a load balancer, each after what it is below.
func parts(lb *sdn.LoadBalancer) (all []part) {
	for _, l := range lb.Listeners {
		all = append(all, part{"listener", l.ID, l.Name, l.Provisioning, l.Disabled, ""})
		if l.Pool == nil {
			continue
		}
		all = append(all, part{"pool", l.Pool.ID, l.Pool.Name, l.Pool.Provisioning, l.Pool.Disabled, ""})
		for _, m := range l.Pool.Members {
			all = append(all, part{"member", m.ID, cmp.Or(m.Name, m.IP), m.Provisioning, m.Disabled, l.Pool.ID})
		}
	}
	return all
}

// noteDisabled notes the objects of a load balancer that a person has disabled in the cloud, each with the
// command that enables it again, and reports whether more than members are. Kuryr never disables one, and
// leaves it so: an operator may have a reason.
func (r *Report) noteDisabled(lb *sdn.LoadBalancer) bool {
	var all []string
	if lb.Disabled {
		all = append(all, fmt.Sprintf("load balancer %[1]s (openstack loadbalancer set --enable %[1]s)", lb.ID))
	}
	for _, p := range parts(lb) {
		switch what := p.kind + " " + cmp.Or(p.name, p.id); {
		case !p.disabled:
		case p.pool != "":
			r.DisabledMembers = append(r.DisabledMembers, fmt.Sprintf("%s (openstack loadbalancer member set --enable --weight 1 %s %s)", what, p.pool, p.id))
		default:
			all = append(all, fmt.Sprintf("%s (openstack loadbalancer %s set --enable %s)", what, p.kind, p.id))
		}
	}
	r.Disabled = append(r.Disabled, all...)
	return len(all) > 0
}
