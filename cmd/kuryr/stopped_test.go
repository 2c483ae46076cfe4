// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/controller/shards"
)

// The flags of TestStoppedControllers.
var (
	stops = flag.Int("stops", 2, "how often a controller is stopped, each in a cluster where all work and in one where one does")
	seed  = flag.Uint64("seed", 0, "of the order of the stops; 0: another one each time")
)

// A controller that is stopped for a time, so that others take its keys over, changes nothing afterwards but by
// requests that had left before, or were leaving it. Of these each is of a kind that is rejected, harmless, or
// put right: in the end each pod has one port, each Service its load balancer, and the cloud has nothing else.
func TestStoppedControllers(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that KUBEBUILDER_ASSETS names; 'make envtest' builds them and says so")
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	for _, active := range []int{0, 1} {
		t.Run(fmt.Sprint("active ", active), func(t *testing.T) {
			t.Parallel()
			t.Logf("-seed %d -stops %d", *seed, *stops)
			b := newStopBed(t, active, *seed)
			ctx, rest := context.WithCancel(t.Context())
			var churn sync.WaitGroup
			churn.Go(func() { b.churn(ctx, *seed) })
			n, long := 0, 0
			for ; n < *stops && !t.Failed() && b.time(); n++ {
				if b.stop() {
					long++
				}
				b.check()
			}
			t.Logf("%d of %d stops, %d of them until others had taken over", n, *stops, long)
			if n < *stops {
				t.Errorf("-timeout leaves no time for %d stops", *stops)
			}
			rest()
			churn.Wait()
			b.rest()
			b.forge()
			b.tally()
		})
	}
}

// time reports whether there is time for another stop, and for what comes after the last one.
func (b *stopBed) time() bool {
	deadline, bounded := b.t.Deadline()
	return !bounded || time.Until(deadline) > 3*time.Minute
}

// rest waits until nothing is left to do, and nothing too much.
func (b *stopBed) rest() {
	b.t.Helper()
	var last string
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Log("uneven: " + last)
		}
	})
	await(b.t, "three controllers", b.settled)
	await(b.t, "all to be in order", func() bool {
		b.must(b.plug())
		last = strings.Join(b.uneven(), "; ")
		return last == ""
	})
}

// A table that somebody else writes ends the work of those that it does not name, as soon as they see it. Others
// take over only after the wait for an owner whose Lease they do not know.
func (b *stopBed) forge() {
	var l coordinationv1.Lease
	b.must(b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: shards.TableName}, &l))
	l.Annotations["openstack.org/owners"] = fmt.Sprintf(`{"owners":{"nobody":"ffffffffffffffffffffffffffffffff"},"active":%d}`, b.active)
	before := b.front.newest().Version
	b.must(b.client.Update(b.t.Context(), &l))
	await(b.t, "all to close", func() bool {
		if b.front.newest().Version != before {
			b.t.Fatal("a controller wrote the table before all had closed")
		}
		return !slices.ContainsFunc(b.slots, func(s *slot) bool { return b.gauge(s) != 0 })
	})
	b.front.mu.Lock()
	from := len(b.front.writes)
	b.front.mu.Unlock()
	b.tryTo(b.changePods(-1, b.rng))
	await(b.t, "a new owner", func() bool { return b.front.newest().Version != before })
	b.front.mu.Lock()
	for _, w := range b.front.writes[from:] {
		// Who takes over next marks an object before it works on anything.
		if w.known == before && w.status < 300 && !needsNoKey(w) {
			b.t.Errorf("under a table that names nobody, %s sent %s", w.by, w.class)
		}
	}
	b.front.mu.Unlock()
	b.rest()
}

// check reports the faults until now.
func (b *stopBed) check() {
	for _, fault := range b.judge(func(string, write) {}) {
		b.t.Error(fault)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.t.Error(fault)
	}
}

// tally prints the late writes by their classes.
func (b *stopBed) tally() {
	b.check()
	late := map[string]int{}
	b.judge(func(how string, w write) { late[how+": "+w.class+fmt.Sprint(" ", w.status)]++ })
	var text strings.Builder
	for _, class := range slices.Sorted(maps.Keys(late)) {
		fmt.Fprintf(&text, "\n  %4d %s", late[class], class)
	}
	ended := 0
	for _, s := range b.slots {
		ended += s.ended
	}
	b.t.Logf("%d writes, %d tables; %d processes ended without being stopped; late writes:%s", len(b.front.writes), len(b.front.tables), ended, &text)
}

// judge tells late of the writes of processes whose keys others had taken over, and returns those that must not be.
func (b *stopBed) judge(late func(how string, w write)) (faults []string) {
	f := b.front
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.writes {
		// etcd's order tells exactly. A write that changed nothing has the object's old version.
		uid, at := f.uids[w.by], max(w.version, w.known)
		if needsNoKey(w) {
			continue
		}
		how := f.lost(uid, w.bucket, at)
		switch {
		case how == "":
		case how != taken:
			faults = append(faults, fmt.Sprintf("%s: %s wrote %s at %d", how, w.by, w.class, at))
		case w.status >= 300:
			late("rejected", w)
		case w.pinned:
			late("of an object that nobody had changed since", w)
		case mayBeLate(w):
			late("harmless or put right", w)
		default:
			faults = append(faults, fmt.Sprintf("%s made a late change that nothing rejects: %s at %d", w.by, w.class, at))
		}
	}
	return faults
}

// needsNoKey reports whether any replica may send a write: for the table, to ask what it may do, or to tell of something.
func needsNoKey(w write) bool {
	return strings.HasSuffix(w.class, "kuryr-shard") || strings.Contains(w.class, "selfsubjectaccessreviews") || strings.Contains(w.class, " events")
}

const taken = "another process had taken its keys"

// lost returns how a process had lost a bucket, or all if that is -1, when the API server had a version; empty
// if it owned it.
func (f *front) lost(uid string, bucket int, at uint64) string {
	has := func(t table) bool {
		return bucket < 0 && t.Owners[uid].Len() > 0 || bucket >= 0 && t.Owners[uid].Has(bucket)
	}
	last, owned := "", false
	for _, t := range f.tables {
		if t.Version > at {
			break
		}
		is := has(t)
		if owned && !is {
			last = taken
			if f.uids[t.by] == uid {
				last = "it had given its keys away"
			}
		}
		owned = is
	}
	if owned {
		return ""
	}
	if last == "" {
		return "it never had its key"
	}
	return last
}

// mayBeLate reports whether a late write needs no version.
func mayBeLate(w write) bool {
	return strings.HasPrefix(w.class, "cloud ") || !strings.Contains(w.class, " kuryrports") || strings.HasPrefix(w.class, "POST ")
}
