// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// creations asks the SDN for ports, and does what else a pool wants of it,
// while the pool reconciler goes on. It makes a bounded number of calls at
// once and takes pools in turn, so that one that wants hundreds of ports does
// not keep the others waiting.
type creations struct {
	cloud   sdn.Ports
	live    client.Reader // past the cache
	memory  *memory
	workers int
	done    func(poolRequest) // wakes the pool
	// doubtful is told that a request may have made ports that nobody knows of.
	doubtful func()

	mu     sync.Mutex
	turn   []poolRequest // pools with calls to make, the next one first
	calls  map[poolRequest][]func(ctx context.Context)
	signal chan struct{} // holds one token for each call to make
}

func newCreations(o Options, live client.Reader, m *memory) *creations {
	return &creations{
		cloud: o.Ports, live: live, memory: m, workers: o.Creations,
		calls: map[poolRequest][]func(context.Context){}, signal: make(chan struct{}, o.Creations),
	}
}

// create asks for n ports for the pool.
func (c *creations) create(r poolRequest, key v1.PoolKey, n int) {
	c.memory.begun(r, n)
	c.push(r, func(ctx context.Context) {
		owner := sdn.Owner{Kind: ownerKind, Name: r.Pool}
		made, err := c.cloud.CreatePorts(ctx, owner, request(key), n)
		log := ctrl.LoggerFrom(ctx).WithValues("pool", r.Pool, "node", r.Node)
		for _, port := range made {
			log.Info("created port", "port", port.ID)
		}
		if err != nil {
			log.Info("the SDN did not make all ports", "asked", n, "made", len(made), "error", err.Error())
		}
		c.memory.ended(r, n, made, err)
		if errors.Is(err, sdn.ErrUnavailable) {
			c.doubtful()
		}
	})
}

// ownerKind is the kind of the owner of all ports.
const ownerKind = "kuryrportpool"

func request(key v1.PoolKey) sdn.PortRequest {
	return sdn.PortRequest{
		ProjectID: key.ProjectID, NetworkID: key.NetworkID, SubnetIDs: key.SubnetIDs,
		SecurityGroupIDs: key.SecurityGroupIDs, Host: key.NodeName, ParentPortID: key.ParentPortID, VIFType: key.VIFType,
	}
}

// restore looks up a port that pod says it had.
func (c *creations) restore(r poolRequest, id string, uid types.UID, ips []corev1.PodIP) {
	c.memory.with(r, func(p *poolMemory) { p.restoring[id] = true })
	c.push(r, func(ctx context.Context) {
		port, err := c.cloud.Port(ctx, id)
		switch {
		case errors.Is(err, sdn.ErrNotFound):
			c.memory.found(r, id, uid, nil, nil)
		case err != nil:
			c.memory.found(r, id, uid, nil, err)
		case !fits(port, r, ips):
			c.memory.found(r, id, uid, nil, nil)
		default:
			c.memory.found(r, id, uid, &port, nil)
		}
	})
}

// fits reports whether port can be the one that a pod on r's node with these
// addresses had. The annotation that names it is anybody's to write.
func fits(port sdn.Port, r poolRequest, ips []corev1.PodIP) bool {
	if port.Owner.Kind != ownerKind || port.Host != r.Node {
		return false
	}
	has := func(ip corev1.PodIP) bool {
		return slices.ContainsFunc(port.VIF.Addresses, func(a v1.Address) bool { return a.IP == ip.IP })
	}
	return len(ips) == 0 || slices.ContainsFunc(ips, has)
}

// discard deletes ports that arrived for nobody. What fails here is left to the
// orphan collector.
func (c *creations) discard(r poolRequest, ids []string) {
	c.memory.discard(r, ids)
	for _, id := range ids {
		c.push(r, func(ctx context.Context) {
			log := ctrl.LoggerFrom(ctx).WithValues("pool", r.Pool, "port", id)
			if err := noObject(ctx, c.live, id); err != nil {
				log.Info("left a port alone that nobody seemed to need", "because", err.Error())
				return
			}
			if err := c.cloud.DeletePort(ctx, id); err != nil {
				log.Info("left a port that nobody needs to the orphan collector", "error", err.Error())
				return
			}
			log.Info("deleted port that nobody needs any more")
			c.memory.portFreed()
		})
	}
}

// noObject returns an error unless the API server says that there is no
// KuryrPort of that name. To be asked before a port is deleted that has none as
// far as is known: the cache may be late, and a write whose answer was lost done.
func noObject(ctx context.Context, live client.Reader, name string) error {
	err := live.Get(ctx, client.ObjectKey{Name: name}, &v1.KuryrPort{})
	if err == nil {
		return fmt.Errorf("KuryrPort %s exists", name)
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("looking whether KuryrPort %s exists: %w", name, err)
	}
	return nil
}

func (c *creations) push(r poolRequest, call func(context.Context)) {
	c.mu.Lock()
	if len(c.calls[r]) == 0 {
		c.turn = append(c.turn, r)
	}
	c.calls[r] = append(c.calls[r], call)
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default: // all workers are awake already, and look until nothing is left
	}
}

// next takes a call of the pool whose turn it is.
func (c *creations) next() (r poolRequest, call func(context.Context), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.turn) == 0 {
		return r, nil, false
	}
	r, c.turn = c.turn[0], c.turn[1:]
	call, c.calls[r] = c.calls[r][0], c.calls[r][1:]
	if len(c.calls[r]) > 0 {
		c.turn = append(c.turn, r)
	} else {
		delete(c.calls, r)
	}
	return r, call, true
}

// run makes the calls until ctx ends. What is under way then is cut off: a port
// that came of it is an orphan and collected by who comes next.
func (c *creations) run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range c.workers {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-c.signal:
				}
				c.drain(ctx)
			}
		})
	}
	workers.Wait()
	return nil
}

func (c *creations) drain(ctx context.Context) {
	for ctx.Err() == nil {
		r, call, ok := c.next()
		if !ok {
			return
		}
		call(ctx)
		c.done(r)
	}
}
