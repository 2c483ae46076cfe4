// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// parking keeps ports plugged that no pod has; *plug.Set is one.
type parking interface {
	Park(ctx context.Context, i plug.Interface) error
	Unpark(ctx context.Context, portID string) error
	// Parked returns what is parked, and whether all of it is there.
	Parked(ctx context.Context) (map[string]bool, error)
	Counts() plug.Counts
}

const (
	parkWorkers = 2
	parkTimeout = 30 * time.Second
	parkPeriod  = 30 * time.Second       // between two looks at what is there
	parkRetry   = 2 * time.Second        // after one that failed
	parkYield   = 2 * time.Second        // that a worker waits for pods at the most
	parkBusy    = 200 * time.Millisecond // until a port that a call has is looked at again
	parkRefused = 5 * time.Minute        // without another try on a node that cannot park
)

// parker keeps the node's free ports plugged. It is level-based: whatever has
// changed, it compares, for one port, what is wanted with what is there, under
// the lock that ADD and DEL have the port by. What a pod has, or had and is still
// bound to, it leaves alone. Without the API server all stays as it is.
type parker struct {
	parking parking // nil: nothing is ever parked
	wanted  bool    // whether to park; if not, what was parked is taken away
	journal *journal
	ports   *ports
	byPort  *locks
	queue   workqueue.TypedRateLimitingInterface[string]

	mu      sync.Mutex
	looked  bool            // whether it is known what was parked at the start
	parked  map[string]bool // ports that are parked, as far as is known
	pods    int             // calls that plug a pod right now
	idle    chan struct{}   // closed when there is none of them; nil: there is none
	refused time.Time       // when the node could not park
}

func newParker(o Options, j *journal, p *ports, byPort *locks) *parker {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)
	return &parker{
		parking: o.Parking, wanted: o.Settings.Park, journal: j, ports: p, byPort: byPort,
		queue: workqueue.NewTypedRateLimitingQueue(limit), parked: map[string]bool{},
	}
}

// run works until ctx ends. What is parked then stays so.
func (p *parker) run(ctx context.Context) error {
	if p.parking == nil {
		return nil
	}
	var workers sync.WaitGroup
	for range parkWorkers {
		workers.Go(func() {
			for p.next(ctx) {
			}
		})
	}
	p.lookForever(ctx)
	p.queue.ShutDown()
	workers.Wait()
	return nil
}

// lookForever looks at all, first as soon as the ports are known.
func (p *parker) lookForever(ctx context.Context) {
	for {
		changed, wait := p.ports.next(), parkPeriod
		if p.ports.synced() {
			changed = nil
			if err := p.look(ctx); err != nil && ctx.Err() == nil {
				logr.FromContextOrDiscard(ctx).Error(err, "looking for parked ports, will try again")
				wait = parkRetry
			}
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// look finds what is parked and queues what is not as it should be.
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

// note takes what was found. What came or went meanwhile is seen the next time.
func (p *parker) note(found map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.parked {
		p.parked[name] = found[name]
	}
	for name, whole := range found {
		p.parked[name] = whole
	}
	p.looked = true
}

// observe takes a port as the API has it.
func (p *parker) observe(port *v1.KuryrPort) {
	if p.wants(port) != p.isParked(port.Name) {
		p.queue.Add(port.Name)
	}
}

// gone takes the name of a port that the API has no more, or no sandbox.
func (p *parker) gone(name string) {
	if p.parking != nil {
		p.queue.Add(name)
	}
}

// wants says whether the port is one to be parked.
func (p *parker) wants(port *v1.KuryrPort) bool {
	if !p.wanted || port == nil || !port.DeletionTimestamp.IsZero() || port.Spec.PodRef != nil {
		return false
	}
	// Subports of a trunk are active without that, and of what a binding driver
	// plugs only the driver knows.
	return port.Spec.VIF.Type == "ovs" || port.Spec.VIF.Type == "bridge"
}

func (p *parker) next(ctx context.Context) bool {
	name, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(name)
	p.yield(ctx)
	if ctx.Err() != nil {
		return true // it is found after the restart
	}
	err := p.sync(ctx, name)
	switch {
	case err == nil:
		p.queue.Forget(name)
	case errors.Is(err, plug.ErrCannotPark):
		p.refuse(ctx, err)
	default:
		if tries := p.queue.NumRequeues(name); tries == 0 || tries%16 == 0 {
			logr.FromContextOrDiscard(ctx).Error(err, "keeping a port plugged, will try again", "port", name)
		}
		p.queue.AddRateLimited(name)
	}
	return true
}

// sync parks a port, or ends that, if it has to be.
func (p *parker) sync(ctx context.Context, name string) error {
	if !p.hasLooked() {
		return nil // it comes with that
	}
	release, free := p.byPort.try(name)
	if !free {
		p.queue.AddAfter(name, parkBusy)
		return nil
	}
	defer release()
	if len(p.journal.ofPort(name)) > 0 {
		p.set(name, false)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, parkTimeout)
	defer cancel()
	switch port := p.ports.port(name); {
	case p.wants(port):
		return p.park(ctx, port)
	case p.known(name) && (!p.wanted || port == nil || !port.DeletionTimestamp.IsZero()):
		if err := p.parking.Unpark(ctx, name); err != nil {
			return err
		}
		p.forget(name)
	}
	return nil
}

func (p *parker) park(ctx context.Context, port *v1.KuryrPort) error {
	if p.isParked(port.Name) || p.isRefused() {
		return nil
	}
	record, err := recordPort(port)
	if err != nil {
		return nil //nolint:nilerr // the ADD that comes for it says so
	}
	if err := p.parking.Park(ctx, entry{Port: record}.iface()); err != nil {
		p.set(port.Name, false) // something of it may be there
		return err
	}
	p.set(port.Name, true)
	return nil
}

// plugging notes that a call plugs a pod, which parking is not to be in the way
// of, until done is called. The port is not a parked one from then on.
func (p *parker) plugging(port string) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.parked[port]; there {
		p.parked[port] = false
	}
	if p.pods++; p.idle == nil {
		p.idle = make(chan struct{})
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.pods--; p.pods == 0 {
			close(p.idle)
			p.idle = nil
		}
	}
}

// yield waits while pods are plugged, but not for ever.
func (p *parker) yield(ctx context.Context) {
	p.mu.Lock()
	idle := p.idle
	p.mu.Unlock()
	if idle == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, parkYield)
	defer cancel()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// refuse notes that this node cannot park, once in a while with a line in the log.
func (p *parker) refuse(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.refused) > parkRefused {
		logr.FromContextOrDiscard(ctx).Info("free ports are not kept plugged on this node, pods wait for theirs to be", "reason", err.Error())
		p.refused = time.Now()
	}
}

func (p *parker) isRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.refused) < parkRefused
}

// hasLooked says whether it is known what was parked at the start.
func (p *parker) hasLooked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.looked
}

// set notes that the port is parked, or that some of it may be there.
func (p *parker) set(name string, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked[name] = whole
}

func (p *parker) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.parked, name)
}

func (p *parker) isParked(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parked[name]
}

// known says whether something of the port may be parked.
func (p *parker) known(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, there := p.parked[name]
	return there
}

// count is how many ports are parked.
func (p *parker) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, whole := range p.parked {
		if whole {
			n++
		}
	}
	return n
}

// counts is what the drivers count.
func (p *parker) counts() plug.Counts {
	if p.parking == nil {
		return plug.Counts{}
	}
	return p.parking.Counts()
}
