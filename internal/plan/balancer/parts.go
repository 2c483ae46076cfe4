// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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

// unfinished is the prefix of the keys of objects that are being changed below a load balancer, see
// Unfinished. A key has the load balancer, the object and its state.
const unfinished = "unfinished "

// Unfinished returns the load balancers that accept changes while the provider is still at work on
// the objects below them, and when to read them again. OVN's provider is so for seconds. With any
// provider, a load balancer and its objects are not read at one moment. A change that meets another one
// under way may leave the load balancer PENDING_UPDATE for ever, or a member in OVN that Octavia has
// not. If none of the objects changes for a pause, who was at work has died: they are to be repaired,
// and are not waited for any more, whatever is changed beside them.
func (m *Attempts) Unfinished(have []sdn.LoadBalancer, now time.Time, pause time.Duration) (ids []string, again time.Duration) {
	all := map[string]bool{}
	for i := range have {
		lb, begins := &have[i], false
		var pending []string
		for _, part := range parts(lb) {
			if key := fmt.Sprint(unfinished, lb.ID, " ", part.id, " ", part.provisioning); busy(part.provisioning) {
				pending, all[key], begins = append(pending, key), true, begins || (*m)[key].Times == 0
			}
		}
		if lb.Provisioning != sdn.ProvisioningActive {
			continue
		}
		for key := range *m { // one of those that were waited for is done
			begins = begins || strings.HasPrefix(key, unfinished+lb.ID+" ") && !all[key] && (*m)[key].Times == 1
		}
		for _, key := range pending {
			if begins && (*m)[key].Times < 2 {
				delete(*m, key)
				m.Note(key, now, Pauses{pause, pause}, "")
			}
			if waits := m.Waits(key, now); waits > 0 {
				ids, again = append(ids, lb.ID), min(cmp.Or(again, 5*time.Second), max(pause-waits, time.Second/2))
			} else {
				m.Note(key, now, Pauses{}, "") // who was at work has died
			}
		}
	}
	m.keep(unfinished, all)
	return slices.Compact(ids), again
}
