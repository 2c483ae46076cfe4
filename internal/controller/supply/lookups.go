// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// lookups look up and delete single ports, apart from the reconciler of pools. Each is one
// request. The number of requests at once is limited, and pools take turns.
type lookups struct {
	cloud      sdn.Ports
	visibility sdn.Visibility
	live       client.Reader // reads past the cache
	memory     *memory
	plans      planQueue
	checkPorts kube.Signal // has the collector search for a port that no object names

	signal kube.Signal // there are calls to make

	mu    sync.Mutex
	queue []pool.Ref // pools with calls to make; the next one is first
	calls map[pool.Ref][]func(ctx context.Context)
}

// lookupsAtOnce is the number of calls at once.
const lookupsAtOnce = 16

func newLookups(o Options, m *memory) *lookups {
	return &lookups{
		cloud: o.Ports, visibility: o.Visibility, live: o.Live, memory: m, plans: o.Queue, checkPorts: o.CheckPorts,
		calls: map[pool.Ref][]func(context.Context){}, signal: kube.NewSignal(),
	}
}

// restore looks up a port that a pod's annotation names. parent is the parent port of a node
// that is a virtual machine, else empty.
func (l *lookups) restore(r pool.Ref, parent, id string, of v1.Claim, ips []corev1.PodIP) {
	l.memory.with(r, func(p *poolMemory) { p.restoring[id] = true })
	l.push(r, func(ctx context.Context) {
		port, err := l.cloud.Port(ctx, id)
		switch {
		case errors.Is(err, sdn.ErrNotFound):
			l.memory.found(r, id, of, nil, l.seen(ctx, r))
		case err != nil:
			l.memory.found(r, id, of, nil, fmt.Errorf("cannot read port %s: %w", id, err))
		case !fits(port, r, parent, ips):
			l.memory.found(r, id, of, nil, nil)
		default:
			l.memory.found(r, id, of, &port, nil)
		}
	})
}

// seen returns nil if the SDN would show the pool's ports if it had them. A credential that has
// lost a role sees none, and a running pod would lose its port.
func (l *lookups) seen(ctx context.Context, r pool.Ref) error {
	var project, network string
	l.memory.with(r, func(p *poolMemory) {
		if p.key != nil {
			project, network = p.key.ProjectID, p.key.NetworkID
		}
	})
	return l.visibility.Sees(ctx, project, network)
}

// fits reports whether a pod with these addresses, on r's node with this parent port, can have
// had the port. A person who may write annotations of pods can name any port there.
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

// discard deletes unrecorded ports that no pod needs. A deletion that fails is left to the
// collector.
func (l *lookups) discard(r pool.Ref, ids []string) {
	l.memory.leave(ids...)
	l.memory.discard(r, ids)
	for _, id := range ids {
		l.push(r, func(ctx context.Context) {
			defer l.memory.left(id)
			log := ctrl.LoggerFrom(ctx).WithValues("pool", r.Pool, "port", id)
			if err := kube.NoKuryrPort(ctx, l.live, id); err != nil {
				log.Info("kept a port that seemed to be unneeded", "because", err.Error())
				l.checkPorts.Send()
				return
			}
			if err := l.cloud.DeletePort(ctx, id); err != nil {
				log.Info("cannot delete a port that no pod needs; the collector will delete it", "error", err.Error())
				l.checkPorts.Send()
				return
			}
			log.Info("deleted a port that no pod needs")
			l.memory.portFreed(r)
		})
	}
}

func (l *lookups) push(r pool.Ref, call func(context.Context)) {
	l.mu.Lock()
	if len(l.calls[r]) == 0 {
		l.queue = append(l.queue, r)
	}
	l.calls[r] = append(l.calls[r], call)
	l.mu.Unlock()
	l.signal.Send()
}

// next takes a call of the first pool.
func (l *lookups) next() (r pool.Ref, call func(context.Context), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return r, nil, false
	}
	r, l.queue = l.queue[0], l.queue[1:]
	call, l.calls[r] = l.calls[r][0], l.calls[r][1:]
	if len(l.calls[r]) > 0 {
		l.queue = append(l.queue, r)
	} else {
		delete(l.calls, r)
	}
	return r, call, true
}

// run makes the calls until ctx ends. The end cuts off the calls in flight; the collector of
// the next leader finds a port that should have been deleted.
func (l *lookups) run(ctx context.Context) {
	var inFlight errgroup.Group
	inFlight.SetLimit(lookupsAtOnce)
	defer func() { _ = inFlight.Wait() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.signal:
		}
		for ctx.Err() == nil {
			r, call, ok := l.next()
			if !ok {
				break
			}
			inFlight.Go(func() error {
				call(ctx)
				l.plans.Add(r)
				return nil
			})
		}
	}
}
