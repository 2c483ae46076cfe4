// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
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
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// creations requests ports from the SDN, apart from the reconciler of pools. Each pool has a
// wish, which its latest plan has set. The next request is chosen when a place for one is free:
// waiting pods of all pools come before spare ports, and pools take turns. The number of ports
// of a request depends on how long the SDN has taken for earlier ones.
type creations struct {
	cloud    sdn.Ports
	settings *settings.Live
	lists    subnetLists
	memory   *memory
	plans    planQueue
	// checkPorts has the collector search for ports that a request may have created without the
	// process knowing.
	checkPorts kube.Signal
	signal     kube.Signal // something may have to be sent

	mu       sync.Mutex
	pace     pool.Pace
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

// The numbers of requests in flight where the settings have none.
const (
	usualCreates          = 8
	usualCreatesPerSubnet = 4
)

func newCreations(o Options, m *memory) *creations {
	return &creations{
		cloud: o.Ports, settings: o.Settings, lists: o.Subnets, memory: m, plans: o.Queue, checkPorts: o.CheckPorts, signal: kube.NewSignal(),
		wishes: map[pool.Ref]*wanted{},
	}
}

// wish replaces the wish of a pool. asked is the number of ports requested before the plan:
// ports requested since then are subtracted.
func (c *creations) wish(r pool.Ref, key v1.PoolKey, w pool.Wish, batch, asked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.memory.askedSince(r, asked)
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
				c.plans.Add(r)
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
			n := c.size(w, spare)
			if n == 0 || !c.place(&w.key, spare) {
				continue
			}
			if n = c.memory.admit(r, &w.key, n); n == 0 {
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

// size is the number of ports of the next request for a pool.
func (c *creations) size(w *wanted, spare bool) int {
	switch {
	case spare && w.wish.Spare > 0:
		return c.pace.ForSpare(w.wish.Spare, w.batch)
	case !spare && w.wish.Waiting > 0:
		return c.pace.ForPods(w.wish.Waiting, w.batch)
	}
	return 0
}

// place reports whether one more request may be in flight. A request for spare ports never
// takes the last place. It also takes no place while a request for pods is in flight on one of
// its subnets: a cloud that works on both serves the pods later.
func (c *creations) place(key *v1.PoolKey, spare bool) bool {
	s := c.settings.Load()
	total, each := s.Pools.MaxCreates, s.Pools.MaxCreatesPerSubnet
	if total <= 0 {
		total = usualCreates
	}
	if each <= 0 {
		each = usualCreatesPerSubnet
	}
	if spare {
		total, each = max(1, total-1), max(1, each-1)
	}
	if len(c.inFlight) >= total {
		return false
	}
	for _, id := range key.SubnetIDs {
		n := 0
		for _, o := range c.inFlight {
			if !slices.Contains(o.key.SubnetIDs, id) {
				continue
			}
			if n++; n >= each || spare && !o.spare {
				return false
			}
		}
	}
	return true
}

// take notes that o is in flight. c.mu is held.
func (c *creations) take(o *order, w *wanted) {
	c.inFlight = append(c.inFlight, o)
	c.memory.begun(o.r, o.n)
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
	err = c.memory.capacity.ended(ctx, &o.key, o.n, len(made), err)
	count(o, made, err)
	c.memory.ended(o.r, o.n, made, err)
	if errors.Is(err, sdn.ErrUnavailable) {
		c.checkPorts.Send()
	}
	c.leave(o, took, err)
	c.plans.Add(o.r)
}

func (c *creations) create(ctx context.Context, o *order) ([]sdn.Port, error) {
	r := request(o.key)
	var err error
	if r.MoreSubnetIDs, err = c.lists.More(ctx, r.SubnetIDs); err != nil {
		return nil, err
	}
	return c.cloud.CreatePorts(ctx, sdn.Owner{Kind: sdn.KindPool, Name: o.r.Pool}, r, o.n)
}

// afford reduces a request for spare ports to the room of its scopes, and reports whether at
// least one port is left.
func (c *creations) afford(ctx context.Context, o *order) bool {
	n := c.memory.capacity.refill(ctx, &o.key, o.n, c.memory.waiting(scopes(&o.key)))
	c.memory.unasked(o.r, o.n-n)
	o.n = n
	if n > 0 {
		return true
	}
	c.mu.Lock()
	c.end(o)
	c.withdraw(o.r)
	c.mu.Unlock()
	c.signal.Send()
	c.plans.Add(o.r)
	return false
}

// leave frees the place of a request that has ended. After a failure the next plan of the pool
// decides what it still wishes.
func (c *creations) leave(o *order, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(o)
	if err == nil {
		c.pace.Observe(o.n, took)
	} else {
		c.withdraw(o.r)
	}
	if _, busy := sdn.RetryAfter(err); errors.Is(err, sdn.ErrUnavailable) && !busy {
		// Without an answer, the same request would have the SDN create as many ports again.
		c.pace.Late(o.n, took)
	}
	c.signal.Send()
}

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
