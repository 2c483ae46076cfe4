// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Gate is the kube.Shards of a process: it admits work on the keys of open buckets until a deadline.
// It starts with no open bucket, and no deadline. Its methods are safe for concurrent use.
type Gate struct {
	mu       sync.Mutex
	open     shard.Set // own buckets, those that are closing included
	closing  shard.Set // of open: only what completes running work is admitted
	deadline time.Duration
	members  int
	work     [shard.Buckets]int // running, by bucket
	gained   []func(context.Context, kube.Keys, bool)
	lost     []func(kube.Keys)
	now      func() time.Duration
}

// NewGate returns a Gate. now is the clock of its deadline; nil if it has none.
func NewGate(now func() time.Duration) *Gate { return &Gate{members: 1, now: now} }

// Enter implements kube.Shards.
func (g *Gate) Enter(key kube.Key) (func(), bool) { return g.enter(key, false) }

// Finish implements kube.Shards.
func (g *Gate) Finish(key kube.Key) (func(), bool) { return g.enter(key, true) }

func (g *Gate) enter(key kube.Key, finishing bool) (func(), bool) {
	b := shard.Bucket(key.Kind, key.Name)
	g.mu.Lock()
	defer g.mu.Unlock()
	admitted := g.open.Has(b) && (!g.closing.Has(b) || finishing && g.work[b] > 0)
	if !admitted || g.late() {
		return nil, false
	}
	g.work[b]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.work[b]--
	}, true
}

func (g *Gate) late() bool { return g.now != nil && g.now() >= g.deadline }

// Owns implements kube.Shards.
func (g *Gate) Owns(key kube.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open.Has(shard.Bucket(key.Kind, key.Name))
}

// Share implements kube.Shards.
func (g *Gate) Share() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return float64(g.open.Len()) / shard.Buckets
}

// Members implements kube.Shards.
func (g *Gate) Members() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members
}

// Follow implements kube.Shards.
func (g *Gate) Follow(gained func(context.Context, kube.Keys, bool), lost func(kube.Keys)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gained != nil {
		g.gained = append(g.gained, gained)
	}
	if lost != nil {
		g.lost = append(g.lost, lost)
	}
}

// Cached implements kube.Shards.
func (*Gate) Cached(client.ObjectList) {}

// Admits reports whether a request may be begun now at all, whatever its key.
func (g *Gate) Admits() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.late()
}

// Open admits work on buckets, and tells the followers.
func (g *Gate) Open(ctx context.Context, buckets shard.Set, crashed bool) {
	g.admit(buckets)
	g.tellGained(ctx, buckets, crashed)
}

func (g *Gate) admit(buckets shard.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.closing = g.open.Or(buckets), g.closing.Minus(buckets)
}

func (g *Gate) tellGained(ctx context.Context, buckets shard.Set, crashed bool) {
	g.mu.Lock()
	followers := g.gained
	g.mu.Unlock()
	for _, gained := range followers {
		gained(ctx, keysIn(buckets), crashed)
	}
}

// Close ends the admission of new work on buckets. See Busy.
func (g *Gate) Close(buckets shard.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing = g.closing.Or(buckets.And(g.open))
}

// Busy returns the buckets with running work.
func (g *Gate) Busy() (busy shard.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for b, n := range g.work {
		if n > 0 {
			busy = busy.With(b)
		}
	}
	return busy
}

// Lose ends the ownership of buckets, and tells the followers. Work on them must have ended, unless another
// process owns them already.
func (g *Gate) Lose(buckets shard.Set) {
	g.drop(buckets)
	g.tellLost(buckets)
}

func (g *Gate) drop(buckets shard.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.closing = g.open.Minus(buckets), g.closing.Minus(buckets)
}

func (g *Gate) tellLost(buckets shard.Set) {
	g.mu.Lock()
	followers := g.lost
	g.mu.Unlock()
	for _, lost := range followers {
		lost(keysIn(buckets))
	}
}

// Renew sets until when work may begin, and how many processes own keys.
func (g *Gate) Renew(deadline time.Duration, members int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deadline, g.members = deadline, max(1, members)
}

func keysIn(buckets shard.Set) kube.Keys {
	return func(k kube.Key) bool { return buckets.Has(shard.Bucket(k.Kind, k.Name)) }
}

// unfenced is below which paths of the API server requests change nothing that an owner has: Leases,
// which say who owns what, and the question whether this process has a permission.
var unfenced = []string{"/apis/coordination.k8s.io/", "/apis/authorization.k8s.io/"}

// Fence returns a transport to the API server that refuses requests which may change something, as an
// sdn.ErrFenced, while g does not admit them. It is for rest.Config.Wrap.
func (g *Gate) Fence(next http.RoundTripper) http.RoundTripper { return fence{g, next} }

type fence struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(r *http.Request) (*http.Response, error) {
	// Before /apis the URL may have a proxy's path.
	free := slices.ContainsFunc(unfenced, func(p string) bool { return strings.Contains(r.URL.Path, p) })
	if r.Method == http.MethodGet || free || f.gate.Admits() {
		return f.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // as the contract of RoundTripper wants
	}
	return nil, sdn.ErrFenced
}

// WrappedRoundTripper lets client-go find what it looks for in the transport below.
func (f fence) WrappedRoundTripper() http.RoundTripper { return f.next }
