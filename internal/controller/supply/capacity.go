// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// capacity is what is known of the room that there is for ports: of each project
// and each subnet as the SDN said last, and what was taken and given back since.
// It asks the SDN only after a refusal and before ports are made that nobody
// waits for, and seldom. Where the SDN does not say, as to a credential that may not
// see addresses, what it refuses tells that there is none for a while. Nothing is
// decided by it for longer than a backoff: somebody else may give room or take it at
// any time. Its methods are safe for concurrent use.
type capacity struct {
	cloud sdn.Capacity // nil: there is nobody to ask
	now   func() time.Time
	pause time.Duration // between two tries where there is no room
	calls singleflight.Group

	mu    sync.Mutex
	rooms map[sdn.Scope]*room
	asked map[string]asking // by project and subnets
}

// room is what is known of a scope.
type room struct {
	scope sdn.Scope
	told  time.Time // when the SDN said so; zero: never
	limit int       // negative: none
	left  int       // as far as is known
	taken int       // by requests under way

	until  time.Time     // the SDN has refused, and is left alone up to then
	scarce time.Time     // nothing is made that nobody waits for up to then
	gap    time.Duration // how long that was the last time
	coming int           // ports that pools are giving up for others
}

// asking is when the SDN was asked last, and when after a refusal.
type asking struct{ at, refused time.Time }

// How often the SDN is asked for the room there is, per project and subnets.
const (
	askAfterRefusal = 10 * time.Second
	askBeforeRefill = time.Minute
	// scarceLongest bounds how long after it was scarce room is looked for
	// again: twice as long each time that there is still none.
	scarceLongest = 15 * time.Minute
)

func newCapacity(o Options) *capacity {
	return &capacity{
		cloud: withMore(o), now: o.Now, pause: o.Backoff.Quota, rooms: map[sdn.Scope]*room{}, asked: map[string]asking{},
	}
}

// scopes are those that a port of a pool takes room of.
func scopes(key *v1.PoolKey) []sdn.Scope {
	out := []sdn.Scope{{ID: key.ProjectID}}
	for _, id := range key.SubnetIDs {
		out = append(out, sdn.Scope{Subnet: true, ID: id})
	}
	return out
}

// text says how full the scope is.
func (r *room) text() string {
	of, s := "of the project", r.scope
	if s.ID != "" {
		of = "of project " + s.ID
	}
	switch {
	case s.Subnet && !r.bounded():
		return fmt.Sprintf("subnet %s has no address left", s.ID)
	case !r.bounded():
		return fmt.Sprintf("the quota of ports %s is used up", of)
	case s.Subnet:
		return fmt.Sprintf("%d of %d addresses of subnet %s are used", r.limit-r.left, r.limit, s.ID)
	}
	return fmt.Sprintf("%d of %d ports %s are used", r.limit-r.left, r.limit, of)
}

func (r *room) bounded() bool { return !r.told.IsZero() && r.limit >= 0 }

// free is how many ports may still be asked for.
func (r *room) free() int { return max(0, r.left-r.taken) }

// spare is how many ports there is room for beside those that pods may need.
func (r *room) spare(waiting int) int {
	const most = 50 // of a large subnet a twentieth is more than pods come at once
	return r.left - r.taken - max(1, min(r.limit/20, most), waiting)
}

// Standing is how a pool stands with the room that there is.
type Standing struct {
	Full   *sdn.QuotaError // pods that wait are to wait until then; nil: there is room
	Until  time.Time
	Scarce *sdn.QuotaError // nothing is to be made that nobody waits for, and why; nil: it may
	Again  time.Time
}

// standing returns how a pool of this key stands.
func (c *capacity) standing(key *v1.PoolKey) (s Standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for _, r := range c.of(key) {
		if r.free() == 0 && now.Before(r.until) && s.Full == nil {
			s.Full, s.Until = &sdn.QuotaError{Scope: r.scope, Text: r.text()}, r.until
		}
		if now.Before(r.scarce) && r.scarce.After(s.Again) {
			s.Scarce, s.Again = &sdn.QuotaError{Scope: r.scope, Text: r.text()}, r.scarce
		}
	}
	return s
}

// admit takes room for n ports, or for as many as there is where the SDN has
// just refused more, and returns how many.
func (c *capacity) admit(key *v1.PoolKey, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	rooms := c.of(key)
	for _, r := range rooms {
		if now.Before(r.until) {
			n = min(n, r.free())
		}
	}
	for _, r := range rooms {
		r.taken += n
	}
	return n
}

// of returns the rooms that a pool's ports take of. c.mu is held.
func (c *capacity) of(key *v1.PoolKey) []*room {
	var out []*room
	for _, id := range scopes(key) {
		if c.rooms[id] == nil {
			c.rooms[id] = &room{scope: id}
		}
		out = append(out, c.rooms[id])
	}
	return out
}

// refill returns for how many of n ports that were admitted and that nobody
// waits for there is room beside those that pods may need, waiting ones and
// others, and gives back the rest.
func (c *capacity) refill(ctx context.Context, key *v1.PoolKey, n, waiting int) int {
	c.ask(ctx, key, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	admitted, now := n, c.now()
	rooms := c.of(key)
	for _, r := range rooms {
		if !r.bounded() {
			continue
		}
		fit := max(0, min(admitted, r.spare(waiting)+admitted))
		switch fit {
		case 0:
			r.tighten(now)
		case admitted:
			r.scarce, r.gap = time.Time{}, 0
		}
		n = min(n, fit)
	}
	for _, r := range rooms {
		r.taken -= admitted - n
	}
	return n
}

// tighten begins a time in which nothing is made that nobody waits for.
func (r *room) tighten(now time.Time) {
	if now.Before(r.scarce) {
		return
	}
	r.gap = min(max(askBeforeRefill, 2*r.gap), scarceLongest)
	r.scarce = now.Add(r.gap)
}

// ended is told how a request went for which room for n ports was taken, and
// returns its error, with the numbers if there was no room.
func (c *capacity) ended(ctx context.Context, key *v1.PoolKey, n, made int, err error) error {
	c.mu.Lock()
	for _, r := range c.of(key) {
		r.taken -= n
		r.left = max(0, r.left-made)
		if made > 0 && !c.now().Before(r.until) {
			r.until = time.Time{}
			if !r.bounded() {
				r.gap = 0 // there is no other word that there is room again
			}
		}
	}
	c.mu.Unlock()
	if !errors.Is(err, sdn.ErrQuota) {
		return err
	}
	c.ask(ctx, key, true)
	return c.refused(key, err)
}

// refused finds out what there is no room of, by what the SDN has said of the rooms,
// else by what it has said of the request.
func (c *capacity) refused(key *v1.PoolKey, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	var full, named []*room
	for _, r := range c.of(key) {
		switch {
		case !r.concerned(err):
		case !r.bounded() && (errors.Is(err, sdn.ErrAddresses) || errors.Is(err, sdn.ErrProjectQuota)):
			named = append(named, r)
		case r.bounded() && (r.left == 0 || now.Before(r.until)):
			full = append(full, r)
		}
	}
	if len(full) > 0 {
		named = full[:1]
	}
	if len(named) == 0 {
		return err
	}
	for _, r := range named { // of several subnets nobody says which
		r.left = 0 // what seemed to be left somebody else has
		if !now.Before(r.until) {
			r.until, r.coming = now.Add(c.pause), 0
		}
		r.tighten(now)
	}
	return &sdn.QuotaError{Scope: named[0].scope, Text: named[0].text(), Err: err}
}

// concerned reports whether err may be of this kind of room: the SDN may say that it is
// of the other.
func (r *room) concerned(err error) bool {
	if r.scope.Subnet {
		return !errors.Is(err, sdn.ErrProjectQuota)
	}
	return !errors.Is(err, sdn.ErrAddresses)
}

// ask has the SDN say how much room there is, unless it has said so lately: after
// a refusal what it said before is so no more.
func (c *capacity) ask(ctx context.Context, key *v1.PoolKey, refused bool) {
	if c.cloud == nil {
		return
	}
	name := key.ProjectID + "/" + strings.Join(key.SubnetIDs, "/")
	_, _, _ = c.calls.Do(fmt.Sprint(name, refused), func() (any, error) {
		if !c.mayAsk(name, refused) {
			return nil, nil
		}
		got, err := c.cloud.Room(ctx, key.ProjectID, key.SubnetIDs)
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("could not ask how much room there is for ports", "error", err.Error())
			return nil, nil
		}
		c.learn(key, got)
		return nil, nil
	})
}

// mayAsk reports whether the last time is long enough ago, and if so notes that
// the SDN is asked now.
func (c *capacity) mayAsk(name string, refused bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, now := c.asked[name], c.now()
	if refused && now.Sub(last.refused) < askAfterRefusal || !refused && now.Sub(last.at) < askBeforeRefill {
		return false
	}
	if last.at = now; refused {
		last.refused = now
	}
	c.asked[name] = last
	return true
}

// learn takes up what the SDN said.
func (c *capacity) learn(key *v1.PoolKey, got sdn.Room) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.of(key) {
		usage, known := got.Subnets[r.scope.ID]
		if !r.scope.Subnet {
			known = got.Ports != nil
			if known {
				usage = *got.Ports
			}
		}
		if !known {
			r.told = time.Time{}
			continue
		}
		left, _ := usage.Left()
		r.told, r.limit, r.left, r.coming = c.now(), usage.Limit, left, 0
	}
}

// freed notes that a port is gone; a nil key is that of a pool not known.
func (c *capacity) freed(key *v1.PoolKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rooms := slices.Collect(maps.Values(c.rooms)) // one try too many does no harm
	if key != nil {
		rooms = c.of(key)
	}
	for _, r := range rooms {
		switch {
		case r.bounded():
			if r.left < r.limit { // of an IPv6 subnet both may be the largest number there is
				r.left++
			}
			r.coming = max(0, r.coming-1)
		case c.now().Before(r.until):
			r.left, r.coming = r.left+1, max(0, r.coming-1)
		}
	}
}

// missing returns how many ports other pools would have to give up for so many
// pods that wait in a full scope, beyond those that they do already.
func (c *capacity) missing(s sdn.Scope, waiting int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rooms[s]
	if r == nil {
		return 0
	}
	return max(0, waiting-r.coming-r.free())
}

// expect notes that pools give up n ports.
func (c *capacity) expect(s sdn.Scope, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rooms[s]; r != nil {
		r.coming += n
	}
}

// forgive lets everything be tried at once.
func (c *capacity) forgive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.asked)
	for _, r := range c.rooms {
		r.until, r.scarce, r.gap = time.Time{}, time.Time{}, 0
	}
}
