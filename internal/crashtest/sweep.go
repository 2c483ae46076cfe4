// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package crashtest stops a controller at each of its writes, one life after the other, and
// checks that the result does not show it. In a life a scenario happens in Kubernetes on a real
// API server: pods start and end, and a user deletes objects that should stay. A controller
// serves the scenario on a cloud. In the n-th life a Fate hits the controller's n-th write, to
// Kubernetes or to the cloud. The process is stopped directly before the write takes effect, or
// directly after that and before the answer arrives. From then on that process can do nothing
// more. Another process without memory starts, and the scenario continues.
//
// Checks of every scenario, all the time:
//   - a living pod has at most one port, and keeps it; no two ports in use share
//     an address; no port is deleted that a living pod has, or that is plugged;
//   - a cloud resource carries the cluster's mark and its owner when the creating
//     call ends; a resource without that mark is neither changed nor deleted;
//   - a process that has just started serves everything that needs no cloud while
//     the cloud is silent, and does not ask for its inventory before.
//
// Checks at rest: each port has its KuryrPort, and each KuryrPort has its port. Each pod has its
// port. The scenario's conditions hold. No more resources were made than Life.Limits allows.
//
// The objects' history is checked in the order of the API server's versions, not in the order in
// which a test happens to see it.
//
// docs/crash-sweep.md describes how to write a scenario.
package crashtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Sweep is a scenario and the API servers that it runs on.
type Sweep struct {
	// Clusters are API servers without pods, nodes and Kuryr's objects. Each is used for one life
	// at a time.
	Clusters []*rest.Config
	Scheme   *runtime.Scheme
	// Kinds are the scenario's kinds in addition to pods, nodes, KuryrPorts and KuryrPortPools.
	// Their history is kept, and they are deleted at the end.
	Kinds []client.ObjectList
	// Every is the distance between the writes that are hit; 1 hits each write. Each fate hits
	// different ones.
	Every int
	// Sample, if not 0, is how many writes are hit for each fate instead. They are spread evenly,
	// and each fate hits different ones.
	Sample int
	// Offset is by how many writes those that are hit come later, in turns: many runs with different
	// offsets hit each write. It is for Every.
	Offset int
	// Controllers is how many controllers run at once; 0 is one. They share a count of writes.
	Controllers int
	Active      int // how many of them are to work, the others stand by; 0 is all
	turn        int // the index of the fate
	turns       int // the number of fates
	// Node is the node of the pods; empty is node-1.
	Node string
	// Patience is how long to wait for an expected state; 0 is half a minute.
	Patience time.Duration
	// Begin prepares a life: a cloud, its resources, the scenario.
	Begin func(w *World) Life
}

// Life is a scenario in one world.
type Life struct {
	Cloud   Cloud
	Cluster string // the cluster in the mark of our resources
	// Start runs a controller with its own memory and caches until ctx ends. It may be called again
	// after it has returned. It may reach the API server by cluster only. It must use the cloud
	// through World.Serve or World.Memory, which know it by ctx.
	Start func(ctx context.Context, cluster *rest.Config) error
	// Steps is what happens in Kubernetes. It may wait only by World.Eventually and
	// World.Settled.
	Steps func()
	// Restarting, if not nil, is called before a controller replaces a stopped one. Its result, if
	// not nil, waits for everything that must be served while the cloud is silent, and continues
	// from there.
	Restarting func() (served, then func())
	// Uneven, if not nil, returns what is not at rest in addition to pods and ports.
	Uneven func() []string
	// InUse, if not nil, is called after the deletion of a resource that is no port. It returns
	// why the resource must not have been deleted, empty if it may.
	InUse func(Resource) string
	// Wrong, if not nil, is called after a resource was made. It returns why the resource must not
	// have been made as it is, empty if it may.
	Wrong func(Resource) string
	// Limits is how many of each kind may be made in the cloud in one life; other kinds may not be
	// made. A stopped process loses its last requests, so the limits are larger than the number
	// that exists at once.
	Limits map[string]int
	// Rules check the history of the objects, in addition to the rules of ports.
	Rules []Rule
}

// cluster is an API server and the world's client for it.
type cluster struct {
	config *rest.Config
	client client.WithWatch
}

// Run runs the scenario once for each fate and each write to hit.
func (s Sweep) Run(t *testing.T, fates ...Fate) {
	free := make(chan *cluster, len(s.Clusters))
	for _, config := range s.Clusters {
		c, err := client.NewWithWatch(config, client.Options{Scheme: s.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		free <- &cluster{config, c}
	}
	writes := s.live(t, free, Fate{Name: "nothing"}, 0)
	if writes.all != nil {
		t.Logf("left alone the controller makes %d writes: %s", total(writes.all), writes.all)
	}
	if t.Failed() { // the other lives would fail too, at length
		return
	}
	// All fates at once, as a sample may have fewer lives than there are API servers.
	var all sync.WaitGroup
	for i, fate := range fates {
		s := s
		s.turn, s.turns = i, len(fates)
		all.Go(func() {
			t.Run(fate.Name, func(t *testing.T) { s.meet(t, free, fate, writes) })
		})
	}
	all.Wait()
}

// meet runs the lives of one fate.
func (s Sweep) meet(t *testing.T, free chan *cluster, fate Fate, writes outcome) {
	expected := writes.count(fate)
	hit := s.each(t, free, fate, expected)
	t.Logf("%d writes were hit: %s", total(hit), hit)
	if lives := len(s.hits(expected)); writes.all != nil && tooFew(total(hit), lives) {
		t.Errorf("%d writes were hit in %d lives", total(hit), lives)
	}
}

// hits returns the numbers of the writes to hit.
func (s Sweep) hits(expected int) (numbers []int) {
	if s.Sample == 0 {
		for n := 1 + (s.turn+s.Offset)%s.Every; n <= expected; n += s.Every {
			numbers = append(numbers, n)
		}
		return numbers
	}
	n := min(s.Sample, expected)
	for i := range n {
		numbers = append(numbers, 1+(i*s.turns+s.turn)*expected/(n*s.turns))
	}
	return numbers
}

// tooFew reports whether too many lives ended before the write to hit. The number of writes
// differs a little, because two changes may be seen at once and answered by one write. So one
// life in five may miss its write, at least one, but not all.
func tooFew(hit, lives int) bool {
	return hit == 0 && lives > 0 || hit < lives-max(1, lives/5)
}

// each runs as many lives as there are writes to hit. The number differs a little from life to
// life: except for a sample it continues until a life met no write.
func (s Sweep) each(t *testing.T, free chan *cluster, fate Fate, expected int) tally {
	hit, again := tally{}, 0
	var mu sync.Mutex
	one := func(n int) (there bool) {
		r := s.live(t, free, fate, n)
		mu.Lock()
		defer mu.Unlock()
		if r.hit != nil {
			hit[r.hit.String()]++
		}
		if r.again {
			again++
		}
		return r.hit != nil
	}
	var lives sync.WaitGroup
	places := make(chan struct{}, len(s.Clusters))
	for _, n := range s.hits(expected) {
		places <- struct{}{}
		lives.Go(func() {
			one(n)
			<-places
		})
	}
	lives.Wait()
	if fate.Again {
		t.Logf("in %d lives the next process was hit, too", again)
		// The work of the next process varies more than that of the first one. After the writes that
		// follow below it has hardly any, so these do not count.
		if again < total(hit)/2 {
			t.Errorf("in %d of %d lives only the next process was hit, too", again, total(hit))
		}
	}
	// Of several controllers it differs by much, because one repeats what another has begun.
	for n := expected + 1; s.Sample == 0 && s.Controllers < 2 && one(n); n++ {
		t.Logf("there was one more write than expected: %d", n)
	}
	return hit
}

// add adds the writes of a process.
func (o *outcome) add(p *process) {
	for what, times := range p.writes {
		o.all[what] += times
	}
	if p.hit != nil {
		o.hit = p.hit
	}
}

// outcome is the result of a life's first process, or of those that run at once.
type outcome struct {
	all tally
	hit *Call
	// again reports that the fate hit the next process, too.
	again bool
}

// count returns how many of the writes the fate may hit. If it is unknown, because -run names a
// single life, it is a number larger than that.
func (o outcome) count(f Fate) (n int) {
	if o.all == nil {
		return 1000
	}
	for what, times := range o.all {
		if f.counts(callOf(what)) {
			n += times
		}
	}
	return n
}

// callOf returns the write that a String is of.
func callOf(text string) Call {
	to, what, _ := strings.Cut(text, ": ")
	return Call{To: to, What: what, Write: true}
}

// live runs one life, in which the fate hits write n.
func (s Sweep) live(t *testing.T, free chan *cluster, fate Fate, n int) (o outcome) {
	name := "nothing happens"
	if n > 0 {
		name = fmt.Sprint("write ", n)
	}
	t.Run(name, func(t *testing.T) {
		c := <-free
		t.Cleanup(func() { free <- c }) // after all later clean-ups
		w := newWorld(t, c, s, fate, n)
		processes := w.live(s.Begin)
		o.all = tally{}
		for i, p := range processes {
			if i < max(1, s.Controllers) {
				o.add(p)
			}
			if p.hit != nil {
				t.Logf("the write of process %d was %s", p.number, p.hit)
			}
		}
		o.again = len(processes) > max(1, s.Controllers) && processes[max(1, s.Controllers)].hit != nil
	})
	return o
}

// tally counts by name.
type tally map[string]int

func total(t tally) (n int) {
	for _, times := range t {
		n += times
	}
	return n
}

// String lists the most frequent first.
func (t tally) String() string {
	names := slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(cmp.Compare(t[b], t[a]), strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", t[name], name)
	}
	return strings.Join(names, ", ")
}
