// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// creations requests ports from the SDN, apart from the reconciler of pools. Each pool has a
// wish, which its latest plan has set. The next request is chosen when a place for one is free:
// waiting pods of all pools come before spare ports, and pools take turns.
type creations struct {
	Options
	supply *Supply
	signal kube.Signal // something may have to be sent

	mu       sync.Mutex
	most     int // ports of one request, while the SDN answers too late; 0: no limit but the pool's
	wishes   map[pool.Ref]*wanted
	queue    []pool.Ref // pools with a wish; the one longest without a request is first
	inFlight []*order
}

// wanted is the wish of a pool.
type wanted struct {
	key   v1.PoolKey
	wish  pool.Wish
	batch int
}

// order is one request to send.
type order struct {
	r     pool.Ref
	key   v1.PoolKey
	n     int
	spare bool // no pod waits for it
}

const (
	// late is how long a request was without an answer that took too long. A request that ended
	// earlier was interrupted.
	late = 5 * time.Second
	// quick is the time of a request after which the next ones may be for more ports again.
	quick = 10 * time.Second
)

// Wish replaces the wish of a pool. asked is Snapshot.Asked of the plan: ports requested since
// then are subtracted from the wish.
func (s *Supply) Wish(r pool.Ref, key v1.PoolKey, w pool.Wish, batch, asked int) {
	c := s.creations
	c.mu.Lock()
	defer c.mu.Unlock()
	var since int
	s.with(r, func(p *poolMemory) { since = p.asked - asked })
	pods := min(since, w.Waiting)
	w.Waiting, w.Spare = w.Waiting-pods, max(0, w.Spare-(since-pods))
	if w.Waiting+w.Spare <= 0 {
		c.withdraw(r)
		return
	}
	if c.wishes[r] == nil {
		c.queue = append(c.queue, r)
	}
	c.wishes[r] = &wanted{key: key, wish: w, batch: batch}
	c.signal.Send()
}

// withdraw forgets a pool's wish. c.mu is held.
func (c *creations) withdraw(r pool.Ref) {
	if c.wishes[r] == nil {
		return
	}
	delete(c.wishes, r)
	c.queue = slices.DeleteFunc(c.queue, func(o pool.Ref) bool { return o == r })
}

// run sends requests until ctx ends. The end cuts off the requests in flight; the collector of
// the next leader finds ports that the SDN creates for them.
func (c *creations) run(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.signal:
		}
		for ctx.Err() == nil {
			o, refused := c.next()
			for _, r := range refused {
				c.Queue.Add(r)
			}
			if o == nil {
				break
			}
			requests.Go(func() { c.send(ctx, o) })
		}
	}
}

// next chooses the next request, and takes a place for it; nil: none can be sent. refused are
// pools whose wish cannot be fulfilled now: they plan again.
func (c *creations) next() (o *order, refused []pool.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, spare := range []bool{false, true} {
		for _, r := range slices.Clone(c.queue) {
			w := c.wishes[r]
			n := c.size(w, spare, c.places(&w.key, spare))
			if n == 0 {
				continue
			}
			if n = c.supply.admit(r, &w.key, n); n == 0 {
				c.withdraw(r)
				refused = append(refused, r)
				continue
			}
			o = &order{r: r, key: w.key, n: n, spare: spare}
			c.take(o, w)
			return o, refused
		}
	}
	return nil, refused
}

// size is the number of ports of the next request for a pool, with so many places for requests. Pods
// share the places, and a request for them is for half a batch at most: the first pods do not wait
// for the ports of the last ones. After a late answer requests are smaller.
func (c *creations) size(w *wanted, spare bool, places int) int {
	if places == 0 {
		return 0
	}
	n, most := w.wish.Spare, max(1, w.batch)
	if !spare {
		n, most = (w.wish.Waiting+places-1)/places, (most+1)/2
	}
	if c.most > 0 {
		most = min(most, c.most)
	}
	return min(n, most)
}

// places returns how many more requests may be in flight. A request for spare ports never
// takes the last place. It also takes no place while a request for pods is in flight on one of
// its subnets: a cloud that works on both serves the pods later.
func (c *creations) places(key *v1.PoolKey, spare bool) int {
	s := c.Settings.Load()
	total, each := cmp.Or(s.Pools.MaxCreates, 8), cmp.Or(s.Pools.MaxCreatesPerSubnet, 4)
	if spare {
		total, each = max(1, total-1), max(1, each-1)
	}
	left := total - len(c.inFlight)
	for _, id := range key.SubnetIDs {
		n := 0
		for _, o := range c.inFlight {
			if !slices.Contains(o.key.SubnetIDs, id) {
				continue
			}
			if n++; spare && !o.spare {
				return 0
			}
		}
		left = min(left, each-n)
	}
	return max(0, left)
}

// take notes that o is in flight. c.mu is held.
func (c *creations) take(o *order, w *wanted) {
	c.inFlight = append(c.inFlight, o)
	c.supply.inFlight(o.r, o.n)
	c.queue = append(slices.DeleteFunc(c.queue, func(r pool.Ref) bool { return r == o.r }), o.r)
	if o.spare {
		w.wish.Spare -= o.n
	} else {
		w.wish.Waiting -= o.n
	}
	if w.wish.Waiting+w.wish.Spare <= 0 {
		c.withdraw(o.r)
	}
}

// end notes that o is not in flight any more. c.mu is held.
func (c *creations) end(o *order) {
	c.inFlight = slices.DeleteFunc(c.inFlight, func(other *order) bool { return other == o })
}

// send sends a request and keeps its result: ports and error.
func (c *creations) send(ctx context.Context, o *order) {
	if o.spare && !c.afford(ctx, o) {
		return
	}
	log := ctrl.LoggerFrom(ctx).WithValues("pool", o.r.Pool, "node", o.r.Node)
	began := time.Now()
	made, err := c.create(ctx, o)
	took := time.Since(began)
	for _, port := range made {
		log.Info("created port", "port", port.ID)
	}
	if err != nil {
		log.Info("the SDN did not make all ports", "asked", o.n, "made", len(made), "error", err.Error())
	}
	full, err := c.supply.capacity.ended(ctx, &o.key, o.n, len(made), err)
	count(o, made, err)
	c.supply.ended(o.r, o.n, made, err)
	if full != nil {
		c.supply.reclaim(*full, c.supply.waiting(*full))
	}
	if errors.Is(err, sdn.ErrUnavailable) {
		c.CheckPorts.Send()
	}
	c.leave(o, took, err)
	c.Queue.Add(o.r)
}

// create sends the request. The pool owns the ports from then on, also if the process stops.
func (c *creations) create(ctx context.Context, o *order) ([]sdn.Port, error) {
	r := request(o.key)
	var err error
	if r.MoreSubnetIDs, err = c.Subnets.More(ctx, r.SubnetIDs); err != nil {
		return nil, err
	}
	return c.Ports.CreatePorts(ctx, sdn.Owner{Kind: sdn.KindPool, Name: o.r.Pool}, r, o.n)
}

// afford reduces a request for spare ports to the room of its scopes, and reports whether at
// least one port is left.
func (c *creations) afford(ctx context.Context, o *order) bool {
	n := c.supply.capacity.refill(ctx, &o.key, o.n, c.supply.waiting(scopes(&o.key)...))
	c.supply.inFlight(o.r, n-o.n)
	o.n = n
	if n > 0 {
		return true
	}
	c.mu.Lock()
	c.end(o)
	c.withdraw(o.r)
	c.mu.Unlock()
	c.signal.Send()
	c.Queue.Add(o.r)
	return false
}

// leave frees the place of a request that has ended. After a failure the next plan of the pool
// decides what it still wishes.
func (c *creations) leave(o *order, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(o)
	if err != nil {
		c.withdraw(o.r)
	}
	_, busy := sdn.RetryAfter(err)
	switch {
	case err == nil && took < quick:
		c.most = min(2*c.most, 1024) // no pool has a larger batch
	case errors.Is(err, sdn.ErrUnavailable) && !busy && took >= late:
		// Without an answer, the same request would have the SDN create as many ports again.
		c.most = max(1, o.n/2)
	}
	c.signal.Send()
}

// request returns the properties of the ports of a pool.
func request(key v1.PoolKey) sdn.PortRequest {
	return sdn.PortRequest{
		ProjectID: key.ProjectID, NetworkID: key.NetworkID, SubnetIDs: key.SubnetIDs,
		SecurityGroupIDs: key.SecurityGroupIDs, Host: key.NodeName, ParentPortID: key.ParentPortID, VIFType: key.VIFType,
	}
}

var (
	creationsInFlight = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kuryr_port_creations_in_flight",
		Help: "Ports in requests to Neutron that are in flight.",
	})
	poolRefills = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kuryr_pool_refills_total",
		Help: "Requests for ports whose caller no longer waited, by result: ok, partial (fewer ports than asked for), failed.",
	}, []string{"result"})
	portRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kuryr_port_requests_total",
		Help: "Requests for ports, by purpose (pods, refill) and result (ok, partial, failed).",
	}, []string{"for", "result"})
)

func init() { metrics.Registry.MustRegister(creationsInFlight, poolRefills, portRequests) }

// count counts a request that has ended.
func count(o *order, made []sdn.Port, err error) {
	result := "ok"
	switch {
	case err != nil && len(made) > 0:
		result = "partial"
	case err != nil:
		result = "failed"
	}
	if !o.spare {
		portRequests.WithLabelValues("pods", result).Inc()
		return
	}
	portRequests.WithLabelValues("refill", result).Inc()
	poolRefills.WithLabelValues(result).Inc()
}
