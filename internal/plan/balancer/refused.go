// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"fmt"
	"slices"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// refusing begins the keys of members that the cloud refuses.
const refusing = "refuse "

func refusal(m *sdn.Member) string {
	return fmt.Sprintf("%s%s %d %s", refusing, plain(m.IP), m.Port, m.SubnetID)
}

// RefusedMembers notes that the cloud has refused to add members as invalid. named are the
// members that the refusal names, if any. Else the second half of the members waits for a
// moment, so that the next request adds the first half. A member that is refused alone waits
// for pause, twice as long each time. So a few requests add all others.
func (m *Attempts) RefusedMembers(add, named []sdn.Member, now time.Time, moment, pause time.Duration, why string) {
	if len(named) == 0 && len(add) > 1 {
		for i := (len(add) + 1) / 2; i < len(add); i++ {
			m.postpone(refusal(&add[i]), now.Add(moment))
		}
		return
	}
	if len(named) == 0 {
		named = add
	}
	for i := range named {
		m.Note(refusal(&named[i]), now, Pauses{pause, 30 * pause}, why)
	}
}

// Accepted forgets refusals of members that the cloud has accepted since.
func (m Attempts) Accepted(add []sdn.Member) {
	for i := range add {
		delete(m, refusal(&add[i]))
	}
}

// leaveRefused removes the members that the cloud has refused from what is wanted, for a while.
func (p *planner) leaveRefused() {
	wanted := map[string]bool{}
	for i := range p.Want {
		for j := range p.Want[i].Listeners {
			pool := p.Want[i].Listeners[j].Pool
			pool.Members = slices.DeleteFunc(pool.Members, func(member sdn.Member) bool {
				key := refusal(&member)
				wait := p.Attempts.Waits(key, p.in.Now)
				if wait > 0 && p.Attempts[key].Failed != "" && !wanted[key] {
					p.RefusedMembers = append(p.RefusedMembers, fmt.Sprintf("endpoint %s, port %d: %s", member.IP, member.Port, p.Attempts[key].Failed))
				}
				wanted[key] = true
				if wait > 0 {
					p.Partial = true
					p.wake(wait)
				}
				return wait > 0
			})
		}
	}
	p.Attempts.keep(refusing, wanted)
}
