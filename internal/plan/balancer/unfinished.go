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
