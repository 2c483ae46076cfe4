// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Disabled is an object that a person has disabled in the cloud. Kuryr never disables one, and
// leaves it so: an operator may have a reason.
type Disabled struct {
	What    string
	Command string // the command that enables it again
	Member  bool   // it is a member, and the others of its pool serve
}

// disabled finds the disabled objects of a load balancer. It lists nothing below an object that
// is disabled itself.
func disabled(lb *sdn.LoadBalancer) (all []Disabled) {
	add := func(kind, id, name string) {
		all = append(all, Disabled{fmt.Sprintf("%s %s", kind, cmp.Or(name, id)), fmt.Sprintf("openstack loadbalancer %s set --enable %s", kind, id), false})
	}
	if lb.Disabled {
		return []Disabled{{"load balancer " + lb.ID, "openstack loadbalancer set --enable " + lb.ID, false}}
	}
	for i := range lb.Listeners {
		l := &lb.Listeners[i]
		switch {
		case l.Disabled:
			add("listener", l.ID, l.Name)
		case l.Pool == nil:
		case l.Pool.Disabled:
			add("pool", l.Pool.ID, l.Pool.Name)
		default:
			for _, m := range l.Pool.Members {
				if m.Disabled {
					all = append(all, Disabled{"member " + cmp.Or(m.Name, m.IP), fmt.Sprintf("openstack loadbalancer member set --enable --weight 1 %s %s", l.Pool.ID, m.ID), true})
				}
			}
		}
	}
	return all
}
