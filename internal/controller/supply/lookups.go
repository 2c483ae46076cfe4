// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Single ports are looked up and deleted apart from the reconciler of pools. Each is one request. The
// number of requests at once is limited.

// lookup is a call to make for a pool, which is planned after it.
type lookup struct {
	pool pool.Ref
	call func(context.Context)
}

// lookupsAtOnce is the number of calls at once.
const lookupsAtOnce = 16

// Restore looks up a port that a pod's annotation names. parent is the parent port of a node
// that is a virtual machine, else empty. A port that is found becomes an unrecorded port.
func (s *Supply) Restore(r pool.Ref, parent, id string, of v1.Claim, ips []corev1.PodIP) {
	look := func(ctx context.Context) {
		leave, ok := s.Shards.Enter(kube.OnNode(r.Node))
		if !ok {
			s.dropLookup(r, id)
			return
		}
		port, err := s.Ports.Port(ctx, id)
		switch {
		case errors.Is(err, sdn.ErrNotFound):
			s.found(r, id, of, nil, s.seen(ctx, r), leave)
		case err != nil:
			s.found(r, id, of, nil, fmt.Errorf("cannot read port %s: %w", id, err), leave)
		case !fits(port, r, parent, ips):
			s.found(r, id, of, nil, nil, leave)
		default:
			s.found(r, id, of, &port, nil, leave)
		}
	}
	s.with(r, func(p *poolMemory) {
		p.restoring[id] = true
		s.push(r, look)
	})
}

// dropLookup drops a lookup that may not begin; a later plan asks for it again.
func (s *Supply) dropLookup(r pool.Ref, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pools[r]; p != nil { // else the node is lost
		delete(p.restoring, id)
		p.hold = later(p.hold, time.Now().Add(askAgain))
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// seen returns nil if the SDN would show the pool's ports if it had them. A credential that has
// lost a role sees none, and a running pod would lose its port.
func (s *Supply) seen(ctx context.Context, r pool.Ref) error {
	var project, network string
	s.with(r, func(p *poolMemory) {
		if p.key != nil {
			project, network = p.key.ProjectID, p.key.NetworkID
		}
	})
	return s.Visibility.Sees(ctx, project, network)
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

// Discard deletes unrecorded ports that no pod needs, also on a node that is to be given away. A
// deletion that fails is left to the collector.
func (s *Supply) Discard(r pool.Ref, ids []string) {
	s.with(r, func(p *poolMemory) {
		for _, id := range ids {
			leave, ok := s.Shards.Finish(kube.OnNode(r.Node))
			if delete(p.unrecorded, id); !ok { // this process may be thought dead
				s.CheckPorts.Send()
				continue
			}
			s.leaving[id] = true
			s.push(r, func(ctx context.Context) {
				defer leave()
				s.discard(ctx, r, id)
			})
		}
		p.leaveRecorded()
	})
}

// discard deletes a port, unless it has an object in spite of what was known.
func (s *Supply) discard(ctx context.Context, r pool.Ref, id string) {
	defer s.left(id)
	log := ctrl.LoggerFrom(ctx).WithValues("pool", r.Pool, "port", id)
	err := kube.NoKuryrPort(ctx, s.Live, id)
	if err == nil {
		err = s.Ports.DeletePort(ctx, id)
	}
	if err != nil {
		log.Info("kept a port that no pod seemed to need; the collector compares it with the objects", "because", err.Error())
		s.CheckPorts.Send()
		return
	}
	log.Info("deleted a port that no pod needs")
	s.Freed(r)
}

// left notes the end of a deletion, with or without success.
func (s *Supply) left(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leaving, id)
}

// push adds a call. s.mu is held.
func (s *Supply) push(r pool.Ref, call func(context.Context)) {
	s.calls = append(s.calls, lookup{r, call})
	s.called.Send()
}

// lookUp makes the calls until ctx ends. The end cuts off the calls in flight; the collector of
// the next owner finds a port that should have been deleted.
func (s *Supply) lookUp(ctx context.Context) {
	var inFlight errgroup.Group
	inFlight.SetLimit(lookupsAtOnce)
	defer func() { _ = inFlight.Wait() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.called:
		}
		s.mu.Lock()
		calls := s.calls
		s.calls = nil
		s.mu.Unlock()
		for _, c := range calls {
			if ctx.Err() != nil {
				return
			}
			inFlight.Go(func() error {
				c.call(ctx)
				s.Queue.Add(c.pool)
				return nil
			})
		}
	}
}
