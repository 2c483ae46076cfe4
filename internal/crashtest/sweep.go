// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package crashtest stops a controller at each of its writes, one life after the
// other, and checks that nobody can tell from what comes of it. In a life a
// scenario happens in Kubernetes (pods come and go, somebody deletes what they
// should not) on a real API server, and a controller serves it on a cloud. In
// the n-th life the controller's n-th write, to Kubernetes or to the cloud, meets
// a Fate: the process is stopped right before it takes effect, or right after
// and before the answer is known. Then nothing of that process gets through any
// more, another one starts that remembers nothing, and the scenario goes on.
//
// What is checked of every scenario, all the time:
//   - a living pod has one port at most, and keeps it; no two ports in use share
//     an address; no port goes that a living pod has, or that is plugged;
//   - what is made in the cloud bears the cluster's mark and its owner when the
//     creating call ends; what bears no such mark is neither changed nor deleted;
//   - a process that has just started serves what needs nothing of the cloud
//     while that is silent, and does not ask for its inventory before.
//
// And at rest: each port has its KuryrPort, and the other way round; each pod has
// its port; what the scenario adds; and no more was made than Life.Limits says.
//
// The objects' history is checked as the API server's versions order it, not as
// a test happens to see it.
//
// docs/crash-sweep.md says how to write a scenario.
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

// Sweep is a scenario, and where it is lived through.
type Sweep struct {
	// Clusters are API servers without pods, nodes and Kuryr's objects. Each is
	// used for one life at a time.
	Clusters []*rest.Config
	Scheme   *runtime.Scheme
	// Kinds are what else there is in the scenario than pods, nodes, KuryrPorts
	// and KuryrPortPools. Their history is kept, and they are deleted in the end.
	Kinds []client.ObjectList
	// Every is how far the writes are apart that are hit, other ones for each fate: 1
	// is each of them.
	Every int
	// Sample, if not 0, is how many writes are hit for each fate instead, spread
	// evenly, and other ones for each.
	Sample int
	turn   int // of the fate
	turns  int // how many fates there are
	// Node is where the pods are; node-1 if empty.
	Node string
	// Patience is how long to wait for what has to come; half a minute if 0.
	Patience time.Duration
	// Begin prepares a life: a cloud, what stands in it, the scenario.
	Begin func(w *World) Life
}

// Life is a scenario in one world.
type Life struct {
	Cloud   Cloud
	Cluster string // that marks what is ours in the cloud
	// Start runs a controller with memory and caches of its own until ctx ends.
	// It may be called again when it has returned. cluster is the only way for
	// it to reach the API server; what it makes of the cloud has to go through
	// World.Serve or World.Memory, which know it by ctx.
	Start func(ctx context.Context, cluster *rest.Config) error
	// Steps is what happens in Kubernetes. It waits by World.Eventually and
	// World.Settled only.
	Steps func()
	// Restarting, if not nil, is called before a controller takes the place of
	// one that was stopped. What it returns, if not nil, waits for all that has
	// to be served while the cloud is silent, and goes on from there.
	Restarting func() (served, then func())
	// Uneven, if not nil, returns what is not at rest beyond pods and ports.
	Uneven func() []string
	// InUse, if not nil, returns why a resource that is no port must not have
	// been deleted just now, empty if it may.
	InUse func(Resource) string
	// Limits is how many of each kind may be made in the cloud in one life, and
	// nothing else may. A stopped process loses what it has just asked for, so
	// that many are more than there ever are at once.
	Limits map[string]int
	// Rules are about the history of the objects, beyond those of ports.
	Rules []Rule
}

// cluster is an API server and the world's way there.
type cluster struct {
	config *rest.Config
	client client.WithWatch
}

// Run lives through the scenario for each of fates and each write.
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
	if t.Failed() { // so would all the others, at length
		return
	}
	for i, fate := range fates {
		s.turn, s.turns = i, len(fates)
		t.Run(fate.Name, func(t *testing.T) {
			expected := writes.count(fate)
			hit := s.each(t, free, fate, expected)
			t.Logf("%d writes were hit: %s", total(hit), hit)
			if lives := len(s.hits(expected)); writes.all != nil && tooFew(total(hit), lives) {
				t.Errorf("%d writes were hit in %d lives", total(hit), lives)
			}
		})
	}
}

// hits returns the numbers of the writes to hit.
func (s Sweep) hits(expected int) (numbers []int) {
	if s.Sample == 0 {
		for n := 1 + s.turn%s.Every; n <= expected; n += s.Every {
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

// tooFew reports whether too many lives ended before the write that they are about. How
// many writes are made differs a little, as two changes may be seen at once and answered
// by one write: one life in five may, one at least, but not all.
func tooFew(hit, lives int) bool {
	return hit == 0 && lives > 0 || hit < lives-max(1, lives/5)
}

// each lives as many lives as there are writes to hit. How many there are
// differs a little from life to life: but for a sample it goes on until there was
// none to hit.
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
	for n := expected + 1; s.Sample == 0 && one(n); n++ {
		t.Logf("there was one more write than expected: %d", n)
	}
	if fate.Again {
		t.Logf("in %d lives the next process was hit, too", again)
		// What the next process has to do varies more than what the first one does.
		if again < total(hit)/2 {
			t.Errorf("in %d of %d lives only the next process was hit, too", again, total(hit))
		}
	}
	return hit
}

// outcome is what became of the writes of a life's first process.
type outcome struct {
	all tally
	hit *Call
	// again says that it befell the next process, too.
	again bool
}

// count returns how many of the writes the fate may befall. If nobody counted
// them, as -run names a single life, more than there are.
func (o outcome) count(f Fate) (n int) {
	if o.all == nil {
		return 1000
	}
	for what, times := range o.all {
		if f.counts(Call{To: strings.Split(what, ":")[0], Write: true}) {
			n += times
		}
	}
	return n
}

// live lives through one life, in which the fate befalls write n.
func (s Sweep) live(t *testing.T, free chan *cluster, fate Fate, n int) (o outcome) {
	name := "nothing happens"
	if n > 0 {
		name = fmt.Sprint("write ", n)
	}
	t.Run(name, func(t *testing.T) {
		c := <-free
		t.Cleanup(func() { free <- c }) // when all is cleaned up that comes after
		w := newWorld(t, c, s, fate, n)
		processes := w.live(s.Begin)
		o = outcome{all: processes[0].writes, hit: processes[0].hit}
		for _, p := range processes {
			if p.hit != nil {
				t.Logf("the write of process %d was %s", p.number, p.hit)
			}
		}
		o.again = len(processes) > 1 && processes[1].hit != nil
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

// String names the most frequent first.
func (t tally) String() string {
	names := slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(cmp.Compare(t[b], t[a]), strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", t[name], name)
	}
	return strings.Join(names, ", ")
}
