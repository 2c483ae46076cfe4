// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// capacity is the known room for ports, of each project and each subnet: the SDN's last answer,
// corrected by the ports that were created and deleted since.
//
// It asks the SDN seldom: after a refusal, and before it creates ports that no pod waits for.
// The SDN may not answer, as for a credential that may not see addresses. Then a refusal counts
// as a lack of room for a while.
//
// No such decision lasts longer than a backoff: other users of the cloud change the room at any
// time. Its methods are safe for concurrent use.
type capacity struct {
	cloud sdn.Capacity // nil: the room cannot be asked for
	lists subnetLists
	pause time.Duration                   // between two attempts where there is no room
	asked sdn.Answers[question, struct{}] // what the SDN was asked lately

	mu    sync.Mutex
	rooms map[sdn.Scope]*room
}

// room is what is known of a scope.
type room struct {
	scope      sdn.Scope
	reportedAt time.Time // when the SDN reported it; zero: it did not
	limit      int       // negative: none
	left       int       // as far as is known
	taken      int       // by requests in flight

	until  time.Time // no request before, after a refusal
	scarce time.Time // until then no port is created without a waiting pod
}

// question is a question for the room of a project and subnets.
type question struct {
	name    string
	refused bool // it is asked after a refusal
}

// How often the SDN is asked for the room of a project and subnets.
const (
	askAfterRefusal = 10 * time.Second
	askBeforeRefill = time.Minute
	// scarceFor is the pause after which scarce room is checked again.
	scarceFor = 5 * time.Minute
)

func newCapacity(o Options) *capacity {
	return &capacity{cloud: o.Capacity, lists: o.Subnets, pause: o.Backoff.Quota, rooms: map[sdn.Scope]*room{}}
}

// scopes returns the scopes in which a port of a pool takes room.
func scopes(key *v1.PoolKey) []sdn.Scope {
	out := []sdn.Scope{{ID: key.ProjectID}}
	for _, id := range key.SubnetIDs {
		out = append(out, sdn.Scope{Subnet: true, ID: id})
	}
	return out
}

// text describes how full the scope is, for a person.
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

// bounded reports whether the SDN has reported a limit. Without it only refusals show a lack of room.
func (r *room) bounded() bool { return !r.reportedAt.IsZero() && r.limit >= 0 }

// free is the number of ports that may still be requested.
func (r *room) free() int { return max(0, r.left-r.taken) }

// spare is the room beside the ports that pods may need.
func (r *room) spare(waiting int) int {
	const most = 50 // a twentieth of a large subnet is more than the pods of one burst
	return r.left - r.taken - max(1, min(r.limit/20, most), waiting)
}

// Standing is the room of a pool.
type Standing struct {
	Full   *sdn.QuotaError // why waiting pods have to wait until Until; nil: the scope has room
	Until  time.Time
	Scarce *sdn.QuotaError // why only waiting pods get new ports until Again; nil: no limit
	Again  time.Time
}

// standing returns the room of a pool with this key; nil: unknown.
func (c *capacity) standing(key *v1.PoolKey) (s Standing) {
	if key == nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
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

// admit takes room for n ports, and returns n. Where the SDN has just refused more, it takes
// and returns at most the room that is left.
func (c *capacity) admit(key *v1.PoolKey, n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	rooms := c.of(key)
	for _, r := range rooms {
		switch {
		case now.Before(r.until):
			n = min(n, r.free())
		case r.bounded() && now.Sub(r.reportedAt) < askBeforeRefill && n > 0:
			// Neutron 21 keeps the addresses of a bulk request that it refuses. One port is
			// always requested: another user of the cloud may have made room since.
			n = min(n, max(1, r.free()))
		}
	}
	for _, r := range rooms {
		r.taken += n
	}
	return n
}

// of returns the rooms of a pool's scopes. c.mu is held.
func (c *capacity) of(key *v1.PoolKey) []*room {
	var out []*room
	all := scopes(key)
	if slices.ContainsFunc(all, func(id sdn.Scope) bool { return c.rooms[id] == nil }) {
		c.forgetOld() // subnets of namespaces come and go
	}
	for _, id := range all {
		if c.rooms[id] == nil {
			c.rooms[id] = &room{scope: id}
		}
		out = append(out, c.rooms[id])
	}
	return out
}

// forgetOld forgets what no longer has a consequence. c.mu is held.
func (c *capacity) forgetOld() {
	now := time.Now()
	maps.DeleteFunc(c.rooms, func(_ sdn.Scope, r *room) bool {
		return r.taken == 0 && now.After(r.until) && now.After(r.scarce) && now.Sub(r.reportedAt) > askBeforeRefill
	})
}

// refill is for n admitted ports that no pod waits for. It returns for how many of them the
// scopes have room beside the ports that pods may need, and gives the rest back. Of that room this
// process takes its share at most: the others know the same room.
func (c *capacity) refill(ctx context.Context, key *v1.PoolKey, n, waiting int, share float64) int {
	c.ask(ctx, key, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	admitted, now := n, time.Now()
	rooms := c.of(key)
	for _, r := range rooms {
		if !r.bounded() {
			continue
		}
		fit := max(0, min(admitted, part(r.spare(waiting)+admitted, share)))
		if fit == 0 {
			r.scarce = now.Add(scarceFor)
		}
		n = min(n, fit)
	}
	for _, r := range rooms {
		r.taken -= admitted - n
	}
	return n
}

// ended notes the result of a request for which room for n ports was taken. It returns the scope that
// this request has found full, nil if none, or if that was known; and the error of the request, with
// numbers if the room was used up.
func (c *capacity) ended(ctx context.Context, key *v1.PoolKey, n, made int, err error) (full *sdn.Scope, failure error) {
	c.mu.Lock()
	for _, r := range c.of(key) {
		r.taken -= n
		r.left = max(0, r.left-made)
		if made > 0 && !time.Now().Before(r.until) {
			r.until = time.Time{}
		}
	}
	c.mu.Unlock()
	if !errors.Is(err, sdn.ErrQuota) {
		return nil, err
	}
	c.ask(ctx, key, true)
	return c.refused(key, err)
}

// refused finds the scope without room, by the SDN's answer about the rooms, else by the error
// of the request.
func (c *capacity) refused(key *v1.PoolKey, err error) (found *sdn.Scope, failure error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
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
		return nil, err
	}
	for _, r := range named { // the SDN does not say which of several subnets is full
		r.left = 0 // other users have the room that seemed to be left
		if !now.Before(r.until) {
			r.until, found = now.Add(c.pause), &named[0].scope
		}
		r.scarce = now.Add(scarceFor)
	}
	return found, &sdn.QuotaError{Scope: named[0].scope, Text: named[0].text(), Err: err}
}

// concerned reports whether err may be about this kind of room: quota or addresses.
func (r *room) concerned(err error) bool {
	if r.scope.Subnet {
		return !errors.Is(err, sdn.ErrProjectQuota)
	}
	return !errors.Is(err, sdn.ErrAddresses)
}

// ask asks the SDN for the room, unless it was asked lately. A refusal makes an earlier answer
// outdated.
func (c *capacity) ask(ctx context.Context, key *v1.PoolKey, refused bool) {
	if c.cloud == nil {
		return
	}
	of := question{key.ProjectID + "/" + strings.Join(key.SubnetIDs, "/"), refused}
	age := askBeforeRefill
	if refused {
		age = askAfterRefusal
	}
	_, _ = c.asked.Get(ctx, of, age, func(ctx context.Context) (struct{}, error) {
		if err := c.learn(ctx, key); err != nil {
			ctrl.LoggerFrom(ctx).Info("cannot read the free quota and the free addresses", "error", err.Error())
		}
		if refused {
			c.asked.Keep(question{name: of.name}, struct{}{}, askBeforeRefill)
		}
		return struct{}{}, nil
	})
}

// learn asks the SDN for the room. The address of a port may be of one of several subnets, of which
// the key has the first: its room is that of all, and unknown if that of one is.
func (c *capacity) learn(ctx context.Context, key *v1.PoolKey) error {
	more, err := c.lists.More(ctx, key.SubnetIDs)
	if err != nil {
		return err
	}
	ids := slices.Concat(append(slices.Collect(maps.Values(more)), key.SubnetIDs)...)
	got, err := c.cloud.Room(ctx, key.ProjectID, ids)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.of(key) {
		r.reportedAt, r.limit, r.left = time.Now(), 0, 0
		for _, id := range slices.Concat([]string{r.scope.ID}, more[r.scope.ID]) {
			usage, known := got.Subnets[id]
			if !r.scope.Subnet {
				if known = got.Ports != nil; known {
					usage = *got.Ports
				}
			}
			r.add(usage, known)
		}
	}
	return nil
}

// add adds the usage of a subnet or of a project. A limit may be near the largest int: that of an
// IPv6 subnet.
func (r *room) add(u sdn.Usage, known bool) {
	left, _ := u.Left()
	switch {
	case !known:
		r.reportedAt = time.Time{}
	case u.Limit < 0 || r.limit < 0:
		r.limit = -1
	default:
		r.limit, r.left = r.limit+min(u.Limit, math.MaxInt-r.limit), r.left+min(left, math.MaxInt-r.left)
	}
}

// keepFree leaves a scope's room to pods of other processes for a while.
func (c *capacity) keepFree(of sdn.Scope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rooms[of] == nil {
		c.rooms[of] = &room{scope: of}
	}
	c.rooms[of].scarce = time.Now().Add(scarceFor)
}

// freed notes the deletion of a port; a nil key stands for an unknown pool.
func (c *capacity) freed(key *v1.PoolKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rooms := slices.Collect(maps.Values(c.rooms)) // one attempt too many does no harm
	if key != nil {
		rooms = c.of(key)
	}
	for _, r := range rooms {
		// Of an IPv6 subnet both may be the largest int.
		if r.bounded() && r.left < r.limit || !r.bounded() && time.Now().Before(r.until) {
			r.left++
		}
	}
}

// resetBackoff allows all requests at once.
func (c *capacity) resetBackoff() {
	c.asked.Forget(func(question, struct{}) bool { return true })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rooms {
		r.until, r.scarce = time.Time{}, time.Time{}
	}
}
