// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestActivePassiveWhileWritesMeetTheirFate runs each scenario with two controllers. One does all the work, until a
// fate hits it: then the other one takes over.
func TestActivePassiveWhileWritesMeetTheirFate(t *testing.T) { sweepMany(t, 0, 1) }

// TestShardedWhileWritesMeetTheirFate runs each scenario with two controllers that share the work.
func TestShardedWhileWritesMeetTheirFate(t *testing.T) { sweepMany(t, 1, 0) }

// scenarios are those of the other sweeps, by the names that -run chooses them by.
var scenarios = []struct {
	name  string
	begin func(*crashtest.World) crashtest.Life
}{
	{"pods", func(w *crashtest.World) crashtest.Life { return newPodsLife(w, newOpenstack).life() }},
	{"pool", func(w *crashtest.World) crashtest.Life { return newPoolLife(w, newOpenstack).life() }},
	{"Service", func(w *crashtest.World) crashtest.Life { return newServiceLife(w, newBalancing(w)).life() }},
	{"Service without load balancer", func(w *crashtest.World) crashtest.Life { return newGoneLife(w, newBalancing(w)).life() }},
	{"Service that breaks", func(w *crashtest.World) crashtest.Life { return newRepairLife(w).life() }},
	{"Service that is released", func(w *crashtest.World) crashtest.Life {
		return newReleasedLife(w, newMemoryBalancing(w).(memoryBalancing)).life()
	}},
	{"source ranges", func(w *crashtest.World) crashtest.Life {
		cloud := newBalancing(w).(*openstackBalancing)
		cloud.provider = "ovn"
		return newRangesLife(w, cloud).life()
	}},
	{"namespace", func(w *crashtest.World) crashtest.Life { return newOneNamespace(w, newTenancy(w)).life() }},
	{"modes", func(w *crashtest.World) crashtest.Life { return newChangingNamespace(w, newTenancy(w)).life() }},
	{"tenants", func(w *crashtest.World) crashtest.Life { return newTenants(w, newTenancy(w, red, blue)).life() }},
}

// sweepMany sweeps with two controllers, of which some work. A life takes ten seconds. With KURYR_SWEEP=all each write
// of each scenario meets one of the fates. Otherwise one fate hits every fifteenth write of half of the scenarios. All that
// takes turns, by the number of commits.
func sweepMany(t *testing.T, turn, active int) {
	s := sweepOf(t)
	s.Kinds = []client.ObjectList{&v1.KuryrLoadBalancerList{}, &v1.KuryrNetworkList{}}
	s.Controllers, s.Active, s.Patience = 2, active, time.Minute
	s.Offset, _ = strconv.Atoi(os.Getenv("KURYR_SWEEP_OFFSET"))
	t.Logf("KURYR_SWEEP_OFFSET=%d repeats this", s.Offset)
	all := s.Every == 1
	if s.Every = 15; all {
		s.Every = 3
	}
	fates := []crashtest.Fate{crashtest.StoppedBefore, crashtest.StoppedAfter, crashtest.Paused}
	for i, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			s.Begin = func(w *crashtest.World) crashtest.Life {
				emptyTable(w)
				life := scenario.begin(w)
				life.Restarting = nil // it is about a cloud that is silent for a controller which is alone
				return withLate(w, life)
			}
			if all {
				s.Run(t, fates...)
				return
			}
			if (i+s.Offset)%2 != turn {
				t.Skip("SKIPPED: each commit runs half of the scenarios, make sweep all")
			}
			s.Run(t, fates[(i/2+s.Offset/s.Every)%len(fates)]) // each fate hits each write in time
		})
	}
}

// withLate returns a life that allows for the late request of a paused controller: it may make one more of a kind, which no
// status names and which the collector deletes.
func withLate(w *crashtest.World, life crashtest.Life) crashtest.Life {
	if !w.Pauses() {
		return life
	}
	life.Limits = maps.Clone(life.Limits)
	for kind := range life.Limits {
		life.Limits[kind]++
	}
	inUse := life.InUse
	life.InUse = func(r crashtest.Resource) string {
		if inUse == nil || !named(w, r.ID) {
			return ""
		}
		return inUse(r)
	}
	return life
}

// named reports whether a status names a resource of the cloud.
func named(w *crashtest.World, id string) bool {
	for _, list := range []client.ObjectList{&v1.KuryrLoadBalancerList{}, &v1.KuryrNetworkList{}} {
		err := w.Client.List(context.WithoutCancel(w.T.Context()), list)
		text, _ := json.Marshal(list)
		if err != nil || strings.Contains(string(text), id) {
			return true
		}
	}
	return false
}

// emptyTable makes the table of the controllers as if others had just given all away, so that nobody waits for them.
func emptyTable(w *crashtest.World) {
	w.Create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: shards.TableName, Annotations: map[string]string{"openstack.org/owners": `{"owners":{},"active":` + strconv.Itoa(w.Active) + `}`}},
	})
}

// gateKey is the key of a process's Gate in its context, if the process owns what never changes.
type gateKey struct{}

// TestKeysOfOneNamespaceInTwoProcesses: one process plans and makes the network and the Service of a namespace, and
// another one the ports of its pods; of a second namespace, the other way round. Pods run, Services are served, and
// nothing is left when the namespaces are gone.
func TestKeysOfOneNamespaceInTwoProcesses(t *testing.T) {
	s := undisturbed(t)
	s.Kinds = []client.ObjectList{&v1.KuryrLoadBalancerList{}, &v1.KuryrNetworkList{}}
	s.Controllers = 2
	for _, name := range []string{"namespace", "modes", "tenants"} {
		t.Run(name, func(t *testing.T) {
			s.Begin = func(w *crashtest.World) crashtest.Life {
				second := namespaceBucket(blueNamespace).With(shard.Bucket("node", w.Node))
				if second.Has(shard.Bucket("namespace", redNamespace)) || second.Has(shard.Bucket("task", "networks")) {
					w.T.Fatal("these names share a bucket: choose others")
				}
				return owning(w, beginOf(name)(w), shard.All().Minus(second), second)
			}
			s.Run(t)
		})
	}
}

// owning returns a life whose processes own some buckets each, always.
func owning(w *crashtest.World, life crashtest.Life, buckets ...shard.Set) crashtest.Life {
	start := life.Start
	life.Start = func(ctx context.Context, cluster *rest.Config) error {
		n, err := strconv.Atoi(strings.TrimPrefix(crashtest.NameOf(ctx), "controller-"))
		if err != nil {
			return err
		}
		gate := shards.NewGate(nil)
		gate.Open(w.T.Context(), buckets[n], false)
		return start(context.WithValue(ctx, gateKey{}, gate), cluster)
	}
	return life
}

func beginOf(name string) func(*crashtest.World) crashtest.Life {
	for _, s := range scenarios {
		if s.name == name {
			return s.begin
		}
	}
	panic("no scenario " + name)
}

// part is a controller process, alone or one of several.
type part struct {
	mgr     ctrl.Manager
	owned   kube.Shards
	replica *shards.Replica // nil: it is alone, or owns what never changes
	backend sdn.Backend
	err     error
}

// newPart prepares a process as kuryr controller does. A nil newClient is the usual one.
func newPart(ctx context.Context, cluster *rest.Config, w *crashtest.World, cloud swept, newClient client.NewClientFunc) (p part) {
	var fence openstack.Fence
	gate, fixed := ctx.Value(gateKey{}).(*shards.Gate)
	if name := crashtest.NameOf(ctx); fixed {
		p.owned = gate
	} else if name != "" {
		if p.replica, p.err = shards.New(ctx, shards.Options{Cluster: cluster, Namespace: "default", Identity: name, Active: w.Active}); p.err != nil {
			return p
		}
		cluster.Wrap(p.replica.Fence)
		p.owned, fence = p.replica, p.replica
	}
	scheme, err := controller.Scheme()
	if err != nil {
		return part{err: err}
	}
	p.mgr, err = ctrl.NewManager(cluster, ctrl.Options{
		Scheme: scheme, Cache: kube.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"}, NewClient: newClient,
		// Values only: the manager ends running tasks in its own order.
		BaseContext:             func() context.Context { return context.WithoutCancel(ctx) },
		GracefulShutdownTimeout: new(shard.Patience + time.Second),
	})
	if err != nil {
		return part{err: err}
	}
	p.backend, p.err = cloud.backend(ctx, fence)
	return p
}

// run runs the process until ctx ends.
func (p part) run(ctx context.Context, o controller.Options) error {
	if p.err != nil {
		return p.err
	}
	o.Shards = p.owned
	if err := controller.Setup(ctx, p.mgr, o); err != nil {
		return err
	}
	if p.replica != nil {
		if err := errors.Join(p.replica.Setup(p.mgr), p.share()); err != nil {
			return err
		}
	}
	return p.mgr.Start(ctx)
}

// share has the backend use the part of the cloud's limits that belongs to the process.
func (p part) share() error {
	b, is := p.backend.(*openstack.Backend)
	if !is {
		return nil
	}
	set := func() { b.SetShare(p.replica.Share()) }
	set()
	p.replica.Follow(func(context.Context, kube.Keys, bool) { set() }, func(kube.Keys) { set() })
	return nil
}
