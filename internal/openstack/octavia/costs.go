// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"errors"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// How long a provider works at each member of a request before Octavia answers, until this
// process has measured it. OVN's driver changes OVN meanwhile; that was measured on two cores
// under other load. With other providers, Octavia asks Neutron for the member's subnet, which
// takes a few hundredths of a second.
const (
	memberCostOVN = 450 * time.Millisecond
	memberCost    = 100 * time.Millisecond
)

// The least and the most members of one request. Fewer say too little about the cost, and more
// make the body too large.
const (
	fewestMembers = 10
	mostMembers   = 1000
)

// singleCost is how many members of a batch take as long as a request for a single member: 1.1
// s of OVN's driver.
const singleCost = 3

// members returns how many members one request may have, so that the answer comes within three
// quarters of the request timeout.
func (b *Octavia) members(provider string) int {
	l := b.balancers
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(int(b.config.RequestTimeout*3/4/l.cost(provider)), fewestMembers), mostMembers)
}

// cost is the measured cost of a member.
type cost struct {
	each time.Duration
	seen time.Time
}

// costHalf is the time after which half of a member's cost above the usual one is forgotten. If
// all pools became too large for a request, no request would ever correct a cost that was too
// high.
const costHalf = 10 * time.Minute

// cost returns the cost of a member, with the lock held. It is never zero.
func (l *balancers) cost(provider string) time.Duration {
	usual := memberCost
	if provider == providerOVN {
		usual = memberCostOVN
	}
	c, ok := l.costs[provider]
	switch {
	case !ok:
		return usual
	case c.each > usual:
		return usual + (c.each-usual)>>min(time.Since(c.seen)/costHalf, 63)
	}
	return max(c.each, time.Millisecond)
}

// took learns from a request with this number of members. A slower request than expected counts
// in full. A quicker one counts for a quarter, as the cloud may have been idle. A request
// without an answer is assumed to take twice as long at least: a proxy may have given up before
// the service did.
func (l *balancers) took(provider string, members int, took time.Duration, err error) {
	if members <= session.LongWork || provider == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before, each := l.cost(provider), took/time.Duration(members)
	switch {
	case err == nil:
		l.costs[provider] = cost{max(each, (3*before+each)/4), time.Now()}
	case errors.Is(err, sdn.ErrUnavailable):
		l.costs[provider] = cost{max(2*each, before), time.Now()}
	}
}
