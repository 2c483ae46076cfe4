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
	"github.com/puzpuzpuz/xsync/v4"

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

	parked  *xsync.Map[string, parked] // ports of which some may be parked
	refused atomic.Pointer[time.Time]  // when the node last could not park
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
	for _, names := range []iter.Seq[string]{maps.Keys(xsync.ToPlainMap(p.parked)), maps.Keys(found)} {
		for name := range names {
			p.parked.Compute(name, func(is parked, _ bool) (parked, xsync.ComputeOp) {
				is.whole = found[name]
				return is, xsync.UpdateOp
			})
		}
	}
}

// observe takes a port's state in the API.
func (p *parker) observe(port *v1.KuryrPort) {
	if is, _ := p.parked.Load(port.Name); p.wants(port) != is.whole {
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
		p.parked.Store(name, parked{})
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, parkTimeout)
	defer cancel()
	port := p.ports.port(name)
	switch _, there := p.parked.Load(name); {
	case p.wants(port):
		return p.park(ctx, port)
	case there && (!p.wanted || port == nil || !port.DeletionTimestamp.IsZero()):
		if err := p.parking.Unpark(ctx, name); err != nil {
			return err
		}
		p.parked.Delete(name)
	}
	return nil
}

func (p *parker) park(ctx context.Context, port *v1.KuryrPort) error {
	if is, _ := p.parked.Load(port.Name); is.whole || p.isRefused() {
		return nil
	}
	record, err := recordPort(port)
	if err != nil {
		return nil //nolint:nilerr // the ADD that comes for it says so
	}
	if err := p.parking.Park(ctx, entry{Port: record}.iface()); err != nil {
		p.parked.Store(port.Name, parked{}) // some of it may exist
		if errors.Is(err, plug.ErrCannotPark) {
			p.refuse(ctx, err)
			return nil
		}
		return err
	}
	p.parked.Store(port.Name, parked{true, port.Grouped(), slices.Sorted(slices.Values(port.Spec.SecurityGroupIDs))})
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
	if is, _ := p.parked.Load(port.Name); is.grouped && slices.Equal(is.groups, slices.Sorted(slices.Values(port.Spec.SecurityGroupIDs))) {
		return nil
	}
	return p.parking.Unpark(ctx, port.Name)
}

// plugging notes that a call is plugging a pod until it calls done. Parking yields to that call.
// The port no longer counts as parked.
func (p *parker) plugging(port string) (done func()) {
	p.pods.Add(1)
	p.parked.Compute(port, func(is parked, there bool) (parked, xsync.ComputeOp) {
		if is.whole = false; !there {
			return is, xsync.CancelOp
		}
		return is, xsync.UpdateOp
	})
	return func() { p.pods.Add(-1) }
}

// refuse notes that this node cannot park, and logs it once in a while. One worker calls it.
func (p *parker) refuse(ctx context.Context, err error) {
	if now := time.Now(); !p.isRefused() {
		logr.FromContextOrDiscard(ctx).Info("free ports are not kept plugged on this node: pods wait until their ports are plugged", "reason", err.Error())
		p.refused.Store(&now)
	}
}

func (p *parker) isRefused() bool {
	last := p.refused.Load()
	return last != nil && time.Since(*last) < parkRefused
}

// count returns the number of completely parked ports.
func (p *parker) count() (n int) {
	for _, is := range p.parked.All() {
		if is.whole {
			n++
		}
	}
	return n
}
