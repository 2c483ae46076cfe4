// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Before returns the one of others that has precedence over klb for the floating IP address
// that klb asks for; nil if none has. The KuryrLoadBalancer that has the address keeps it. It
// does so even while the address is at no port, as the load balancer is made anew or the
// floating IP is withheld. The caller's held says which KuryrLoadBalancer had the address then.
// Else the older KuryrLoadBalancer has precedence.
func Before(klb *v1.KuryrLoadBalancer, others []*v1.KuryrLoadBalancer, held func(*v1.KuryrLoadBalancer) bool) *v1.KuryrLoadBalancer {
	if klb.Spec.PublicIP == nil || klb.Spec.PublicIP.Address == "" {
		return nil
	}
	address := klb.Spec.PublicIP.Address
	has := func(o *v1.KuryrLoadBalancer) bool {
		return o.Status.PublicIP != nil && sameAddress(o.Status.PublicIP.IP, address) || held(o)
	}
	var first *v1.KuryrLoadBalancer
	for _, o := range others {
		wants := o.Spec.PublicIP != nil && o.DeletionTimestamp.IsZero() && (has(o) || sameAddress(o.Spec.PublicIP.Address, address))
		if o.UID == klb.UID || !wants {
			continue
		}
		if before(o, klb, has) && (first == nil || before(o, first, has)) {
			first = o
		}
	}
	return first
}

// before reports whether a has precedence over b: only a has the address, or both or neither
// have it and a is older.
func before(a, b *v1.KuryrLoadBalancer, has func(*v1.KuryrLoadBalancer) bool) bool {
	if has(a) != has(b) {
		return has(a)
	}
	return older(a, b)
}

func older(a, b *v1.KuryrLoadBalancer) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}
