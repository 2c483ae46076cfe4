// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/keylock"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// parking keeps ports plugged that no pod has. *plug.Set implements it.
type parking interface {
	Park(ctx context.Context, i plug.Interface) error
	Unpark(ctx context.Context, portID string) error
	// Parked returns the parked ports, and whether each is complete.
	Parked(ctx context.Context) (map[string]bool, error)
	Counts() plug.Counts
}

const (
	parkTimeout = 30 * time.Second
	parkPeriod  = 30 * time.Second       // between two checks of all parked ports
	parkRetry   = 2 * time.Second        // after a failed check
	parkBusy    = 200 * time.Millisecond // before a port is checked again that had to wait for a call
	parkRefused = 5 * time.Minute        // after the node could not park, until the next try
)

// parker keeps the node's free ports plugged. It is level-based: after any change it compares,
// for one port, the wanted and the actual state, under the port's lock that ADD and DEL use. It
// does not touch a port that a pod has, or had while still bound to it. Without the API server
// everything stays.
type parker struct {
	parking parking
	wanted  bool // whether to park; otherwise parked ports are unparked
	journal *journal
	ports   *ports
	byPort  *keylock.Locks[string]
	queue   portQueue
	pods    atomic.Int64 // calls that are plugging a pod now

	mu      sync.Mutex
	parked  map[string]parked
	refused time.Time // when the node last could not park
}

// parked is what is known of a parked port.
type parked struct {
	whole   bool     // otherwise some of it may exist
	grouped bool     // groups are known
	groups  []string // its security groups when it was parked
}

// run works until ctx ends. Parked ports stay then. It checks all parked ports, first as soon as the
// ports are known, and only then begins to park and unpark.
func (p *parker) run(ctx context.Context) error {
	var working sync.WaitGroup
	defer working.Wait()
	start := sync.OnceFunc(func() {
		working.Go(func() { p.queue.run(ctx, "parking a port", p.sync) })
	})
	for {
		changed, wait := p.ports.next(), parkPeriod
		if p.ports.synced() {
			changed = nil
			if err := p.look(ctx); err == nil {
				start()
			} else if ctx.Err() == nil {
				logr.FromContextOrDiscard(ctx).Error(err, "looking for parked ports, will try again")
				wait = parkRetry
			}
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// look finds the parked ports and queues those that need a change.
func (p *parker) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, parkTimeout)
	defer cancel()
	found, err := p.parking.Parked(ctx)
	if err != nil {
		return err
	}
	p.note(found)
	for name, whole := range found {
		if port := p.ports.port(name); !whole || !p.wants(port) {
			p.queue.Add(name)
		}
	}
	for _, port := range p.ports.all() {
		if _, there := found[port.Name]; !there && p.wants(port) {
			p.queue.Add(port.Name)
		}
	}
	return nil
}

// note records the found ports. Ports that were added or removed meanwhile are seen next time.
func (p *parker) note(found map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, names := range []iter.Seq[string]{maps.Keys(p.parked), maps.Keys(found)} {
		for name := range names {
			is := p.parked[name]
			is.whole = found[name]
			p.parked[name] = is
		}
	}
}

// observe takes a port's state in the API.
func (p *parker) observe(port *v1.KuryrPort) {
	if is, _ := p.known(port.Name); p.wants(port) != is.whole {
		p.queue.Add(port.Name)
	}
}

// gone takes the name of a port that was deleted in the API, or that no sandbox has any more.
func (p *parker) gone(name string) { p.queue.Add(name) }

// wants reports whether the port shall be parked.
func (p *parker) wants(port *v1.KuryrPort) bool {
	if !p.wanted || port == nil || !port.DeletionTimestamp.IsZero() || port.Spec.PodRef != nil {
		return false
	}
	// A trunk's subports are active without parking, and only a binding driver knows what it
	// plugs.
	return port.Spec.VIF.Type == "ovs" || port.Spec.VIF.Type == "bridge"
}

// sync parks or unparks a port, if needed.
func (p *parker) sync(ctx context.Context, name string) error {
	if p.pods.Load() > 0 { // parking would delay them
		p.queue.AddAfter(name, parkBusy)
		return nil
	}
	release, free := p.byPort.Try(name)
	if !free {
		p.queue.AddAfter(name, parkBusy)
		return nil
	}
	defer release()
	if len(p.journal.ofPort(name)) > 0 {
		p.set(name, parked{})
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, parkTimeout)
	defer cancel()
	port := p.ports.port(name)
	switch _, there := p.known(name); {
	case p.wants(port):
		return p.park(ctx, port)
	case there && (!p.wanted || port == nil || !port.DeletionTimestamp.IsZero()):
		if err := p.parking.Unpark(ctx, name); err != nil {
			return err
		}
		p.forget(name)
	}
	return nil
}

func (p *parker) park(ctx context.Context, port *v1.KuryrPort) error {
	if is, _ := p.known(port.Name); is.whole || p.isRefused() {
		return nil
	}
	record, err := recordPort(port)
	if err != nil {
		return nil //nolint:nilerr // the ADD that comes for it says so
	}
	if err := p.parking.Park(ctx, entry{Port: record}.iface()); err != nil {
		p.set(port.Name, parked{}) // some of it may exist
		if errors.Is(err, plug.ErrCannotPark) {
			p.refuse(ctx, err)
			return nil
		}
		return err
	}
	p.set(port.Name, parked{true, port.Grouped(), slices.Sorted(slices.Values(port.Spec.SecurityGroupIDs))})
	return nil
}

// renew unparks a port that neutron-openvswitch-agent wires if its security groups are not known to be
// those of the time when it was parked, so that it is plugged as a new port. The agent applies new
// groups to a port that it has in its next round, after its polling_interval, and tells nobody when. A
// new port is in no network until the agent has applied its groups.
func (p *parker) renew(ctx context.Context, port *v1.KuryrPort) error {
	if port == nil || !port.Spec.VIF.ByAgent() {
		return nil
	}
	if is, _ := p.known(port.Name); is.grouped && slices.Equal(is.groups, slices.Sorted(slices.Values(port.Spec.SecurityGroupIDs))) {
		return nil
	}
	return p.parking.Unpark(ctx, port.Name)
}

// plugging notes that a call is plugging a pod until it calls done. Parking yields to that call.
// The port no longer counts as parked.
func (p *parker) plugging(port string) (done func()) {
	p.pods.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if is, there := p.parked[port]; there {
		is.whole = false
		p.parked[port] = is
	}
	return func() { p.pods.Add(-1) }
}

// refuse notes that this node cannot park, and logs it once in a while.
func (p *parker) refuse(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.refused) > parkRefused {
		logr.FromContextOrDiscard(ctx).Info("free ports are not kept plugged on this node: pods wait until their ports are plugged", "reason", err.Error())
		p.refused = time.Now()
	}
}

func (p *parker) isRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.refused) < parkRefused
}

func (p *parker) set(name string, is parked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked[name] = is
}

func (p *parker) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.parked, name)
}

// known returns whether some of the port may be parked, and what is known of it.
func (p *parker) known(name string) (is parked, there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	is, there = p.parked[name]
	return is, there
}

// count returns the number of completely parked ports.
func (p *parker) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, is := range p.parked {
		if is.whole {
			n++
		}
	}
	return n
}
