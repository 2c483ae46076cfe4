// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// returns asks the SDN for the security groups of returned ports before they are free. If a
// person has changed the groups in the SDN, the next pod would get the changed ones.
//
// One request is for all ports that come back at about the same time. A port does not wait
// long: while the SDN does not answer, and after a start, it becomes free unchecked, and is
// checked later.
type returns struct {
	cloud    sdn.Ports
	settings *settings.Live
	backoff  outcome.Backoff
	gap      time.Duration // between two requests
	memory   *portMemory
	queue    *kube.Queue[ctrl.Request] // of KuryrPorts to apply
	signal   kube.Signal
	failures int // used by run alone: requests in a row that failed

	mu    sync.Mutex
	ports map[string]inspection
}

// returnPatience is for how many gaps a port waits for its check. By default that is less than
// the cooldown, during which no pod gets the port.
const returnPatience = 5

// inspection is the check of one returned port.
type inspection struct {
	generation int64
	groups     []string  // that the port should have
	until      time.Time // the port waits for the check until then
	waiting    bool      // the port still waits
	unchecked  bool      // the port is free, and was not checked
	changed    bool      // the port has other groups
}

func newReturns(o Options, memory *portMemory, queue *kube.Queue[ctrl.Request]) *returns {
	return &returns{
		cloud: o.Ports, settings: o.Settings, backoff: o.Backoff, gap: o.StatusGap, memory: memory, queue: queue,
		signal: kube.NewSignal(), ports: map[string]inspection{},
	}
}

// waits returns how long a returned port waits for its check; zero if it does not wait. The
// check itself requeues it earlier.
func (r *returns) waits(port *v1.KuryrPort) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	i, ok := r.ports[port.Name]
	if !ok || i.generation != port.Generation {
		i = inspection{generation: port.Generation, groups: slices.Clone(port.Spec.SecurityGroupIDs), until: now.Add(returnPatience * r.gap), waiting: true}
		r.signal.Send()
	}
	if i.waiting && !now.Before(i.until) {
		i.waiting, i.unchecked = false, true
	}
	if r.ports[port.Name] = i; !i.waiting {
		return 0
	}
	return i.until.Sub(now)
}

// changed reports whether a port was found with other groups than it should have.
func (r *returns) changed(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ports[name].changed
}

// grouped notes that the groups of a port were written.
func (r *returns) grouped(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ports, name)
}

// done forgets a port whose status is written, unless it is still to be checked or changed.
func (r *returns) done(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.ports[name]; !i.waiting && !i.unchecked && !i.changed {
		delete(r.ports, name)
	}
}

// run checks returned ports until ctx ends. It begins a grace period after the start.
func (r *returns) run(ctx context.Context) error {
	if !kube.Pause(ctx, r.settings.Load().Orphans.Grace.Duration) {
		return nil
	}
	return kube.Every("returns", func() time.Duration { return kube.Never }, r.inspect, r.signal)(ctx)
}

// inspect waits a moment for more ports to come back, checks all, and pauses before the next
// check.
func (r *returns) inspect(ctx context.Context) error {
	if !kube.Pause(ctx, r.gap/10) {
		return nil
	}
	err, wait := r.look(ctx), r.gap
	if r.failures++; err == nil {
		r.failures = 0
	} else {
		ctrl.LoggerFrom(ctx).Info("cannot read the security groups of returned ports; the ports are free nevertheless", "error", err.Error())
		wait = r.backoff.Delay(err, r.failures)
		r.signal.Send()
	}
	kube.Pause(ctx, wait)
	return nil
}

// look asks for all ports that have to be checked, and requeues those that wait or have other
// groups.
func (r *returns) look(ctx context.Context) error {
	r.mu.Lock()
	asked := maps.Clone(r.ports)
	r.mu.Unlock()
	maps.DeleteFunc(asked, func(_ string, i inspection) bool { return !i.waiting && !i.unchecked })
	if len(asked) == 0 {
		return nil
	}
	states, err := r.cloud.States(ctx, slices.Sorted(maps.Keys(asked)))
	for name, was := range asked {
		state, there := states[name]
		changed := err == nil && there && !v1.SameGroups(was.groups, state.SecurityGroupIDs)
		r.mu.Lock()
		now, ok := r.ports[name]
		waited := now.waiting
		if ok = ok && now.generation == was.generation; ok {
			now.waiting, now.unchecked, now.changed = false, err != nil, changed
			r.ports[name] = now
		}
		r.mu.Unlock()
		switch {
		case !ok:
		case err == nil && !there:
			r.memory.setGone(name, true) // the reconciler asks whether it has lost the port
			r.queue.Add(named(name))
		case waited || changed:
			r.queue.Add(named(name))
		default:
			r.done(name)
		}
	}
	return err
}

// returned reports whether a port was just given back, and has the groups of its spec by its
// status.
func (r *Reconciler) returned(port *v1.KuryrPort) bool {
	return port.Spec.PodRef == nil && port.Status.Phase == v1.PortBound && port.Grouped() && !r.settings.Load().Pods.PortDebug
}
