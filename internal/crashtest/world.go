// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// World is a cluster, a cloud, and a controller between them that may be stopped at any time.
// Only ByHand and Ours may be called from any goroutine. All other methods are for the scenario's
// goroutine.
type World struct {
	T      *testing.T
	Client client.WithWatch // the scenario's own: no fate hits it
	Node   string           // the node of pods, unless the scenario names another

	// Active is how many controllers are to work at once; 0 is all. It is for Life.Start.
	Active int

	cluster  *rest.Config
	patience time.Duration       // of Eventually
	more     []client.ObjectList // the scenario's own kinds of objects
	life     Life
	fate     Fate
	at       int
	trail    *trail
	history  *history
	terms    *terms
	running  []*process // the running process; or several

	processes  []*process // all processes so far
	buried     map[*process]bool
	restarting bool // a process is replacing a stopped one

	mu      sync.Mutex
	plugged map[string]string // port → pod
	atEnd   map[*process][]func()
	silent  chan struct{} // closed when the cloud answers again; nil: it answers

	cloudMu sync.Mutex
	seen    map[resourceKey]Resource
	made    map[string]int // by kind
}

func newWorld(t *testing.T, c *cluster, s Sweep, fate Fate, at int) *World {
	return &World{
		Active: s.Active, terms: &terms{by: map[uint64]*process{}}, running: make([]*process, max(1, s.Controllers)),
		T: t, Client: c.client, Node: cmp.Or(s.Node, "node-1"), patience: cmp.Or(s.Patience, patience), cluster: c.config, more: s.Kinds, fate: fate, at: at, trail: &trail{began: time.Now()},
		plugged: map[string]string{}, buried: map[*process]bool{}, atEnd: map[*process][]func(){}, made: map[string]int{},
	}
}

// Undisturbed reports whether no fate hits the controller in this life, so that it repairs nothing
// except the effects of the scenario.
func (w *World) Undisturbed() bool { return w.at == 0 }

// Stopped returns how many controllers are stopped in this life, at most, or paused until another one has their work.
func (w *World) Stopped() int {
	switch {
	case w.at == 0 || !w.fate.Stops && !w.fate.Pauses:
		return 0
	case w.fate.Again:
		return 2
	}
	return 1
}

// Pauses reports whether a controller is paused in this life. Its late requests are executed after another one has taken
// over, so nobody may delete what it has made until they are.
func (w *World) Pauses() bool { return w.at > 0 && w.fate.Pauses }

// fault reports a violation. It may be called from any goroutine.
func (w *World) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.trail.add(nil, "FAULT: "+text)
	w.T.Error(text)
}

// Say notes in the trail what the scenario is about to do.
func (w *World) Say(format string, args ...any) { w.trail.add(nil, fmt.Sprintf(format, args...)) }

// patience is how long to wait for an expected state.
const patience = 30 * time.Second

// Eventually waits for an expected state. How long it waits does not depend on the scenario. If
// the controller was stopped meanwhile, Eventually starts the next one.
func (w *World) Eventually(what string, ok func() bool) {
	w.T.Helper()
	deadline := time.Now().Add(w.patience)
	for {
		if w.revive() {
			deadline = time.Now().Add(w.patience)
		}
		began := time.Now()
		if ok() {
			w.Say("so it is: %s", what)
			return
		}
		if time.Now().After(deadline) {
			w.T.Fatalf("not so after %s: %s", w.patience, what)
		}
		// Checking must not keep a cloud busy.
		time.Sleep(max(15*time.Millisecond, 4*time.Since(began)))
	}
}

// start starts a controller without memory in the place of the i-th.
func (w *World) start(i int, aim *aim) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.T.Context()))
	p := &process{trail: w.trail, aim: aim, cancel: cancel, ended: make(chan error, 1), over: make(chan struct{}), away: make(chan struct{}), writes: map[string]int{}}
	if len(w.running) > 1 {
		p.terms = w.terms
		p.name = fmt.Sprint("controller-", i)
	}
	w.running[i] = p
	w.processes = append(w.processes, p)
	p.number = len(w.processes)
	w.trail.add(p, "starts")
	go func() {
		p.ended <- w.life.Start(context.WithValue(ctx, processKey{}, p), p.cluster(w.cluster))
	}()
}

// startNext starts the controller that replaces the i-th.
func (w *World) startNext(i int) {
	next := &aim{fate: w.fate}
	if len(w.processes) == len(w.running) {
		next.at = w.fate.next(w.at)
	}
	w.start(i, next)
}

// ended reports whether a controller was stopped, or has ended after a pause.
func (w *World) ended(p *process) bool {
	w.T.Helper()
	if p.isStopped() {
		return true
	}
	select {
	case err := <-p.ended:
		p.ended <- err
		if !p.isStopped() && !p.hasPaused() {
			w.T.Fatalf("the controller ended by itself: %v", err)
		}
		return true
	default:
		return false
	}
}

// replace starts the next one of several controllers if one was stopped. The others work meanwhile. In every second life
// nobody replaces it.
func (w *World) replace() (replaced bool) {
	w.T.Helper()
	for i, p := range w.running {
		if w.ended(p) && !w.buried[p] {
			w.bury(p)
			replaced = true
			if w.at%2 == 1 {
				w.startNext(i)
			}
		}
	}
	return replaced
}

// revive starts the next controller if this one was stopped, and reports whether it did. The next
// one must serve everything that needs no cloud while the cloud is silent, and without asking for
// its inventory.
func (w *World) revive() bool {
	w.T.Helper()
	if len(w.running) > 1 {
		return w.replace()
	}
	if !w.ended(w.running[0]) {
		return false
	}
	w.bury(w.running[0])
	w.catchUp()
	var served, then func()
	if w.life.Restarting != nil && !w.restarting {
		served, then = w.life.Restarting()
	}
	// Or the previous process was stopped before it had served.
	if served == nil {
		w.startNext(0)
		return true
	}
	w.restarting = true
	w.mute()
	defer func() {
		w.unmute()
		w.restarting = false
	}()
	w.startNext(0)
	served()
	if calls := w.running[0].inventories(); len(calls) > 0 {
		w.fault("a process that has just started asked the cloud what there is before it served: %v", calls)
	}
	then()
	return true
}

// bury waits until a stopped process has ended completely.
func (w *World) bury(p *process) {
	w.T.Helper()
	if w.buried[p] {
		return
	}
	select {
	case err := <-p.ended:
		p.ended <- err
	case <-time.After(patience):
		stacks := make([]byte, 4<<20)
		w.T.Fatalf("the controller is not over %s after it was stopped; its goroutines:\n%s", patience, stacks[:runtime.Stack(stacks, true)])
	}
	for !p.idle() {
		time.Sleep(time.Millisecond)
	}
	w.mu.Lock()
	last := w.atEnd[p]
	delete(w.atEnd, p)
	w.mu.Unlock()
	for _, f := range last {
		f()
	}
	w.buried[p] = true
	w.trail.add(p, "is over")
}

// mute makes the cloud silent: calls wait for their answer.
func (w *World) mute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = make(chan struct{})
}

func (w *World) unmute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.silent)
	w.silent = nil
}

var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// answers returns a channel that is closed when the cloud answers.
func (w *World) answers() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent == nil {
		return always
	}
	return w.silent
}
