// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"errors"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// How long a provider works at each member that a request names before Octavia
// answers, until this process has seen it. OVN's driver changes OVN meanwhile, which
// was measured on two cores that had other work; else Octavia asks Neutron for the
// member's subnet, which takes a few hundredths of a second.
const (
	memberCostOVN = 450 * time.Millisecond
	memberCost    = 100 * time.Millisecond
)

// So many members are in one request at least, and at most: less says too little, and
// more is too much of a body.
const (
	fewestMembers = 10
	mostMembers   = 1000
)

// singleCost is how many members of a batch take as long as one that is changed by a
// request of its own: 1.1 s of OVN's driver.
const singleCost = 3

// members returns how many members one request may name, for an answer well within
// the time that a request may take: three quarters of it.
func (b *Octavia) members(provider string) int {
	l := b.balancers
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(int(b.config.RequestTimeout*3/4/l.cost(provider)), fewestMembers), mostMembers)
}

// cost is what a member costs, as it was seen.
type cost struct {
	each time.Duration
	seen time.Time
}

// costHalf is after how long half of what a member cost more than usual is forgotten.
// Where all pools are too large for a request then, there is none that shows it.
const costHalf = 10 * time.Minute

// cost returns what a member costs, with the lock held. It is never nothing.
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

// took learns from a request with so many members. One that took longer than was
// thought counts at once; one that was quicker for a quarter, as the cloud may have had
// nothing else to do. One without an answer would have taken twice as long at least, or
// so it is held: it may be a proxy that has less patience.
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
