// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// returns looks at ports that pods have given back, before they are free: somebody may
// have changed their security groups in the SDN meanwhile, and the next pod would have
// these. All that come back at about the same time cost one request. A port does not wait
// for long: while the SDN does not answer, and after a start, when nothing is asked that
// pods may have to wait for, it is free without. It is looked at later.
type returns struct {
	cloud    sdn.Ports
	settings *settings.Live
	backoff  outcome.Backoff
	gap      time.Duration // between two requests
	now      func() time.Time
	seen     func(ctrl.Request) // wakes the port reconciler
	lost     func(name string)  // has it see whether the SDN has lost a port
	signal   kube.Signal

	mu    sync.Mutex
	ports map[string]inspection
}

// returnPatience is for how many gaps a port waits to be looked at. By default that is
// shorter than the cooldown, in which no pod gets it.
const returnPatience = 5

// inspection is what is known of one port.
type inspection struct {
	generation int64
	groups     []string  // that it is to have
	until      time.Time // it waits up to then
	open       bool      // and still does
	unsure     bool      // it is free, and was not looked at
	changed    bool      // it has other groups
}

func newReturns(o Options) *returns {
	return &returns{
		cloud: o.Ports, settings: o.Settings, backoff: o.Backoff, gap: o.StatusGap, now: o.Now,
		signal: kube.NewSignal(), ports: map[string]inspection{},
	}
}

// waits returns for how long a port that a pod has given back waits to be looked at, zero
// if it does not, or not any more. It is woken earlier if it is.
func (r *returns) waits(port *v1.KuryrPort) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	i, ok := r.ports[port.Name]
	if !ok || i.generation != port.Generation {
		i = inspection{generation: port.Generation, groups: slices.Clone(port.Spec.SecurityGroupIDs), until: now.Add(returnPatience * r.gap), open: true}
		r.signal.Send()
	}
	if i.open && !now.Before(i.until) {
		i.open, i.unsure = false, true
	}
	if r.ports[port.Name] = i; !i.open {
		return 0
	}
	return i.until.Sub(now)
}

// changed reports whether a port was seen to have other groups than it is to have.
func (r *returns) changed(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ports[name].changed
}

// grouped notes that a port has the groups of its spec: they have been written.
func (r *returns) grouped(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ports, name)
}

// done forgets a port whose status says what was seen, but for one that is still to be
// looked at, or to be changed.
func (r *returns) done(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.ports[name]; !i.open && !i.unsure && !i.changed {
		delete(r.ports, name)
	}
}

// run looks until ctx ends, from a grace after the start on.
func (r *returns) run(ctx context.Context) error {
	if !kube.Pause(ctx, r.settings.Load().Orphans.Grace.Duration) {
		return nil
	}
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-r.signal:
		}
		if !kube.Pause(ctx, r.gap/10) { // others come back, too
			return nil
		}
		wait := r.gap
		if err := r.look(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Info("could not see which security groups ports have that pods gave back: the ports are free all the same", "error", err.Error())
			failures++
			wait = r.backoff.Delay(err, failures)
			r.signal.Send()
		} else {
			failures = 0
		}
		if !kube.Pause(ctx, wait) {
			return nil
		}
	}
}

// look asks for all ports that are to be looked at, and wakes those that wait for it, or
// that are other than they should be.
func (r *returns) look(ctx context.Context) error {
	r.mu.Lock()
	asked := maps.Clone(r.ports)
	r.mu.Unlock()
	maps.DeleteFunc(asked, func(_ string, i inspection) bool { return !i.open && !i.unsure })
	if len(asked) == 0 {
		return nil
	}
	states, err := r.cloud.States(ctx, slices.Sorted(maps.Keys(asked)))
	for name, was := range asked {
		state, there := states[name]
		changed := err == nil && there && !v1.SameGroups(was.groups, state.SecurityGroupIDs)
		r.mu.Lock()
		now, ok := r.ports[name]
		waited := now.open
		if ok = ok && now.generation == was.generation; ok {
			now.open, now.unsure, now.changed = false, err != nil, changed
			r.ports[name] = now
		}
		r.mu.Unlock()
		switch {
		case !ok:
		case err == nil && !there:
			r.lost(name)
		case waited || changed:
			r.seen(ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
		default:
			r.done(name)
		}
	}
	return err
}

// returned reports whether a port was just given back and has, as far as its status
// tells, the groups of its spec.
func (r *Reconciler) returned(port *v1.KuryrPort) bool {
	return port.Spec.PodRef == nil && port.Status.Phase == v1.PortBound && port.Grouped() && !r.settings.Load().Pods.PortDebug
}
