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

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Ports are requested apart from the reconciler of pools. Each pool has a demand, which its latest plan
// has set. The next request is chosen when a place for one is free: waiting pods of all pools come
// before spare ports, and pools take turns.

// order is one request to send.
type order struct {
	r     pool.Ref
	key   v1.PoolKey
	n     int
	spare bool   // no pod waits for it
	leave func() // leaves the node
}

const (
	// late is how long a request was without an answer that took too long. A request that ended
	// earlier was interrupted.
	late = 5 * time.Second
	// quick is the time of a request after which the next ones may be for more ports again.
	quick = 10 * time.Second
)

// demand replaces the demand of a pool. s.mu is held.
func (s *Supply) demand(r pool.Ref, p *poolMemory, a Planned) {
	since := p.asked - a.Asked
	pods := min(since, a.Want.Waiting)
	w := pool.Demand{Waiting: a.Want.Waiting - pods, Spare: max(0, a.Want.Spare-(since-pods))}
	if a.Key == nil || w == (pool.Demand{}) {
		s.withdraw(r, p)
		return
	}
	if p.demand == (pool.Demand{}) {
		s.queue = append(s.queue, r)
	}
	p.demand, p.batch = w, max(1, a.Batch)
	s.wished.Send()
}

// withdraw forgets a pool's demand. s.mu is held.
func (s *Supply) withdraw(r pool.Ref, p *poolMemory) {
	p.demand = pool.Demand{}
	s.queue = slices.DeleteFunc(s.queue, func(o pool.Ref) bool { return o == r })
}

// create sends requests until ctx ends. The end cuts off the requests in flight; the collector of
// the next owner finds ports that the SDN creates for them.
func (s *Supply) create(ctx context.Context) {
	var requests sync.WaitGroup
	defer requests.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wished:
		}
		for ctx.Err() == nil {
			o, refused := s.next()
			for _, r := range refused {
				s.Queue.Add(r)
			}
			if o == nil {
				break
			}
			requests.Go(func() { s.send(ctx, o) })
		}
	}
}

// next chooses the next request, and takes a place for it; nil: none can be sent. refused are
// pools whose demand cannot be fulfilled now: they plan again.
func (s *Supply) next() (o *order, refused []pool.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, spare := range []bool{false, true} {
		for _, r := range slices.Clone(s.queue) {
			p := s.pools[r]
			n := s.size(p, spare, s.places(p.key, spare))
			if n == 0 {
				continue
			}
			leave, own := s.Shards.Enter(kube.OnNode(r.Node))
			if !own {
				p.hold = later(p.hold, time.Now().Add(askAgain))
			}
			if time.Now().Before(p.hold) {
				n = 0
			}
			if n = s.capacity.admit(p.key, n); n == 0 {
				if own {
					leave()
				}
				s.withdraw(r, p)
				refused = append(refused, r)
				continue
			}
			o = &order{r: r, key: *p.key, n: n, spare: spare, leave: leave}
			s.take(o, p)
			return o, refused
		}
	}
	return nil, refused
}

// size is the number of ports of the next request for a pool, with so many places for requests. Pods
// share the places, and a request for them is for half a batch at most: the first pods do not wait
// for the ports of the last ones. After a late answer requests are smaller.
func (s *Supply) size(p *poolMemory, spare bool, places int) int {
	if places == 0 {
		return 0
	}
	n, most := p.demand.Spare, p.batch
	if !spare {
		n, most = (p.demand.Waiting+places-1)/places, (most+1)/2
	}
	if s.most > 0 {
		most = min(most, s.most)
	}
	return min(n, most)
}

// part returns the part of n that this process may use. n may be near the largest int.
func part(n int, share float64) int {
	if share >= 1 {
		return n
	}
	return int(float64(n) * share)
}

// places returns how many more requests may be in flight: of each limit this process has its share. A request for spare ports never
// takes the last place. It also takes no place while a request for pods is in flight on one of
// its subnets: a cloud that works on both serves the pods later.
func (s *Supply) places(key *v1.PoolKey, spare bool) int {
	limits := s.Settings.Load().Pools
	share := s.Shards.Share()
	total, each := max(1, part(cmp.Or(limits.MaxCreates, 8), share)), max(1, part(cmp.Or(limits.MaxCreatesPerSubnet, 4), share))
	if spare {
		total, each = max(1, total-1), max(1, each-1)
	}
	left := total - len(s.inFlight)
	for _, id := range key.SubnetIDs {
		n := 0
		for _, o := range s.inFlight {
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

// take notes that o is in flight. s.mu is held.
func (s *Supply) take(o *order, p *poolMemory) {
	s.inFlight = append(s.inFlight, o)
	p.requested(o.n)
	s.queue = append(slices.DeleteFunc(s.queue, func(r pool.Ref) bool { return r == o.r }), o.r)
	if o.spare {
		p.demand.Spare -= o.n
	} else {
		p.demand.Waiting -= o.n
	}
	if p.demand == (pool.Demand{}) {
		s.withdraw(o.r, p)
	}
}

// end notes that o is not in flight any more. s.mu is held.
func (s *Supply) end(o *order) {
	s.inFlight = slices.DeleteFunc(s.inFlight, func(other *order) bool { return other == o })
	s.wished.Send()
}

// send sends a request and keeps its result: ports and error. The pool owns the ports from then on,
// also if the process stops.
func (s *Supply) send(ctx context.Context, o *order) {
	if o.spare && !s.afford(ctx, o) {
		o.leave()
		return
	}
	log := ctrl.LoggerFrom(ctx).WithValues("pool", o.r.Pool, "node", o.r.Node)
	began := time.Now()
	request := o.request()
	more, err := s.Subnets.More(ctx, request.SubnetIDs)
	var made []sdn.Port
	if request.MoreSubnetIDs = more; err == nil {
		made, err = s.Ports.CreatePorts(ctx, sdn.Owner{Kind: sdn.KindPool, Name: o.r.Pool}, request, o.n)
	}
	took := time.Since(began)
	for _, port := range made {
		log.Info("created port", "port", port.ID)
	}
	if err != nil {
		log.Info("the SDN did not make all ports", "asked", o.n, "made", len(made), "error", err.Error())
	}
	full, err := s.capacity.ended(ctx, &o.key, o.n, len(made), err)
	count(o, made, err)
	s.ended(o, made, took, err)
	if full != nil {
		s.reclaim(*full, s.waiting(*full))
	}
	if errors.Is(err, sdn.ErrUnavailable) {
		s.CheckPorts.Send()
	}
	s.Queue.Add(o.r)
}

// afford reduces a request for spare ports to the room of its scopes, and reports whether at
// least one port is left.
func (s *Supply) afford(ctx context.Context, o *order) bool {
	n := s.capacity.refill(ctx, &o.key, o.n, s.waiting(scopes(&o.key)...), s.Shards.Share())
	s.with(o.r, func(p *poolMemory) {
		p.requested(n - o.n)
		if o.n = n; n == 0 {
			s.end(o)
			s.withdraw(o.r, p)
		}
	})
	if n == 0 {
		s.Queue.Add(o.r)
	}
	return n > 0
}

// ended keeps the result of a request, and frees its place. After a failure the next plan of the
// pool decides what it still demands. The node is left once the ports are recorded.
func (s *Supply) ended(o *order, made []sdn.Port, took time.Duration, err error) {
	s.with(o.r, func(p *poolMemory) {
		p.requested(-o.n)
		for _, port := range made {
			p.unrecorded[port.ID] = Unrecorded{Port: port}
		}
		if len(made) > 0 {
			p.refilled, p.failures = time.Now(), 0
		}
		s.result(p, err)
		s.end(o)
		if err != nil {
			s.withdraw(o.r, p)
		}
		_, busy := sdn.RetryAfter(err)
		switch {
		case err == nil && took < quick:
			s.most = min(2*s.most, 1024) // no pool has a larger batch
		case errors.Is(err, sdn.ErrUnavailable) && !busy && took >= late:
			// Without an answer, the same request would have the SDN create as many ports again.
			s.most = max(1, o.n/2)
		}
		p.keepNode(o.leave)
	})
}

// request returns the properties of the ports.
func (o *order) request() sdn.PortRequest {
	key := &o.key
	return sdn.PortRequest{
		ProjectID: key.ProjectID, NetworkID: key.NetworkID, SubnetIDs: key.SubnetIDs,
		SecurityGroupIDs: key.SecurityGroupIDs, Host: key.NodeName, ParentPortID: key.ParentPortID, VIFType: key.VIFType,
	}
}

var (
	creationsInFlight = kube.Gauge("kuryr_port_creations_in_flight", "Ports in requests to Neutron that are in flight.")
	poolRefills       = kube.CounterOf([]string{"result"}, "kuryr_pool_refills_total",
		"Requests for ports whose caller no longer waited, by result: ok, partial (fewer ports than asked for), failed.")
	portRequests = kube.CounterOf([]string{"for", "result"}, "kuryr_port_requests_total",
		"Requests for ports, by purpose (pods, refill) and result (ok, partial, failed).")
)

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
