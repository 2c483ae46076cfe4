// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"errors"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// lookups are what a pool wants of the SDN beside new ports: to look one up, or to
// delete one. Each is one call, made while the pool reconciler goes on. A bounded number is under way at once,
// and pools take turns.
type lookups struct {
	cloud sdn.Ports
	// noObject returns an error unless the API server has no KuryrPort of that name.
	noObject func(ctx context.Context, name string) error
	memory   *memory
	done     func(pool.Ref) // wakes the pool
	// doubtful is told that there may be a port that nobody knows of.
	doubtful func()

	mu     sync.Mutex
	turn   []pool.Ref // pools with calls to make, the next one first
	calls  map[pool.Ref][]func(ctx context.Context)
	signal chan struct{} // holds one token for each call to make
}

// lookupWorkers is how many such calls are under way at once.
const lookupWorkers = 16

func newLookups(o Options, m *memory) *lookups {
	return &lookups{
		cloud: o.Ports, noObject: o.NoObject, memory: m, done: o.Requeue, doubtful: o.Doubtful,
		calls: map[pool.Ref][]func(context.Context){}, signal: make(chan struct{}, lookupWorkers),
	}
}

// restore looks up a port that pod says it had. parent is the port of the
// machine that the node is, empty if it is none.
func (e *lookups) restore(r pool.Ref, parent, id string, of v1.Claim, ips []corev1.PodIP) {
	e.memory.with(r, func(p *poolMemory) { p.restoring[id] = true })
	e.push(r, func(ctx context.Context) {
		port, err := e.cloud.Port(ctx, id)
		switch {
		case errors.Is(err, sdn.ErrNotFound):
			e.memory.found(r, id, of, nil, nil)
		case err != nil:
			e.memory.found(r, id, of, nil, err)
		case !fits(port, r, parent, ips):
			e.memory.found(r, id, of, nil, nil)
		default:
			e.memory.found(r, id, of, &port, nil)
		}
	})
}

// fits reports whether port can be the one that a pod on r's node, on the machine
// of parent, with these addresses had. The annotation that names it is anybody's
// to write.
func fits(port sdn.Port, r pool.Ref, parent string, ips []corev1.PodIP) bool {
	here := port.Host == r.Node && port.VIF.ParentPortID == "" || parent != "" && port.VIF.ParentPortID == parent
	if port.Owner.Kind != sdn.KindPool || !here {
		return false
	}
	has := func(ip corev1.PodIP) bool {
		return slices.ContainsFunc(port.VIF.Addresses, func(a v1.Address) bool { return a.IP == ip.IP })
	}
	return len(ips) == 0 || slices.ContainsFunc(ips, has)
}

// discard deletes ports that arrived for nobody. What fails here is left to the
// orphan collector.
func (e *lookups) discard(r pool.Ref, ids []string) {
	e.memory.leave(ids...)
	e.memory.discard(r, ids)
	for _, id := range ids {
		e.push(r, func(ctx context.Context) {
			defer e.memory.left(id)
			log := ctrl.LoggerFrom(ctx).WithValues("pool", r.Pool, "port", id)
			if err := e.noObject(ctx, id); err != nil {
				log.Info("left a port alone that nobody seemed to need", "because", err.Error())
				e.doubtful()
				return
			}
			if err := e.cloud.DeletePort(ctx, id); err != nil {
				log.Info("left a port that nobody needs to the orphan collector", "error", err.Error())
				e.doubtful()
				return
			}
			log.Info("deleted port that nobody needs any more")
			e.memory.portFreed(r)
		})
	}
}

func (e *lookups) push(r pool.Ref, call func(context.Context)) {
	e.mu.Lock()
	if len(e.calls[r]) == 0 {
		e.turn = append(e.turn, r)
	}
	e.calls[r] = append(e.calls[r], call)
	e.mu.Unlock()
	select {
	case e.signal <- struct{}{}:
	default: // all workers are awake already, and look until nothing is left
	}
}

// next takes a call of the pool whose turn it is.
func (e *lookups) next() (r pool.Ref, call func(context.Context), ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.turn) == 0 {
		return r, nil, false
	}
	r, e.turn = e.turn[0], e.turn[1:]
	call, e.calls[r] = e.calls[r][0], e.calls[r][1:]
	if len(e.calls[r]) > 0 {
		e.turn = append(e.turn, r)
	} else {
		delete(e.calls, r)
	}
	return r, call, true
}

// run makes the calls until ctx ends. What is under way then is cut off: a port
// that should have been deleted is an orphan and collected by who comes next.
func (e *lookups) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range lookupWorkers {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-e.signal:
				}
				e.drain(ctx)
			}
		})
	}
	workers.Wait()
}

func (e *lookups) drain(ctx context.Context) {
	for ctx.Err() == nil {
		r, call, ok := e.next()
		if !ok {
			return
		}
		call(ctx)
		e.done(r)
	}
}
