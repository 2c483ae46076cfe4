// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// buckets returns the buckets of some namespaces.
func buckets(namespaces ...string) (set shard.Set) {
	for _, n := range namespaces {
		set = set.With(shard.Bucket("namespace", n))
	}
	return set
}

// sharded returns a shelf with resources whose key is the namespace of their name, and the gate of its
// process.
func sharded(there ...string) (*shelf, *Inventory, *shards.Gate) {
	s, gate := &shelf{there: there}, shards.NewGate(nil)
	v := s.inventory()
	v.Shards = gate
	v.follow()
	return s, v, gate
}

func compare(t *testing.T, v *Inventory) {
	t.Helper()
	if _, err := v.once(t.Context()); err != nil {
		t.Error(err)
	}
}

// Two processes share what is left over: each deletes what its keys own, and nothing else. When a key
// moves between two looks, both looks are those of its new owner.
func TestEachProcessCollectsItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s1, v1, gate1 := sharded("a", "b", "c")
		s2, v2, gate2 := sharded("a", "b", "c")
		gate1.Open(t.Context(), buckets("a", "b"), false)
		gate2.Open(t.Context(), buckets("c"), false)
		compare(t, v1)
		compare(t, v2)
		gate1.Close(buckets("b"))
		gate1.Lose(buckets("b"))
		gate2.Open(t.Context(), buckets("b"), false)
		time.Sleep(time.Minute)
		compare(t, v1)
		compare(t, v2)
		if !slices.Equal(s1.deleted, []string{"a"}) || !slices.Equal(s2.deleted, []string{"c"}) {
			t.Errorf("deleted %v and %v, want a and c: b was seen once by each process", s1.deleted, s2.deleted)
		}
		s2.there = []string{"b"}
		time.Sleep(time.Minute)
		compare(t, v2)
		if !slices.Equal(s2.deleted, []string{"c", "b"}) {
			t.Errorf("the second process deleted %v, want b, too", s2.deleted)
		}
	})
}

// A key that is lost and gained again between two looks starts anew. One that is being given away is
// not worked on, and the comparison is repeated.
func TestKeysThatAreLostAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v, gate := sharded("a")
		gate.Open(t.Context(), buckets("a"), false)
		compare(t, v)
		gate.Lose(buckets("a"))
		gate.Open(t.Context(), buckets("a"), true)
		time.Sleep(time.Minute)
		compare(t, v)
		if len(s.deleted) > 0 {
			t.Errorf("deleted %v in the first look since the key was gained", s.deleted)
		}
		gate.Close(buckets("a"))
		time.Sleep(time.Minute)
		if _, err := v.once(t.Context()); err == nil || len(s.deleted) > 0 {
			t.Errorf("deleted %v of a key that is being given away, %v; want an error", s.deleted, err)
		}
		gate.Open(t.Context(), buckets("a"), false)
		time.Sleep(time.Minute)
		compare(t, v)
		if !slices.Equal(s.deleted, []string{"a"}) {
			t.Errorf("deleted %v, want a", s.deleted)
		}
	})
}

// A process without keys does not list. A grace period after it has gained keys it does. Its periods
// grow with the number of processes, so that all together list as often as one.
func TestWhenProcessesLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v, gate := sharded()
		s.every = 10 * time.Minute
		gate.Renew(0, 3)
		var turn sync.Mutex // as in TestWhenToLook
		var looks []time.Duration
		began := time.Now()
		v.comparison = looking{s, func(context.Context) (Findings, error) {
			turn.Lock()
			defer turn.Unlock()
			looks = append(looks, time.Since(began))
			return Findings{}, nil
		}}
		go func() { _ = v.Run(t.Context()) }()
		time.Sleep(20*time.Minute + time.Second)
		gate.Open(t.Context(), buckets("a"), true)
		time.Sleep(time.Hour + 10*time.Minute)
		gate.Lose(buckets("a"))
		time.Sleep(time.Hour)
		synctest.Wait()
		turn.Lock()
		defer turn.Unlock()
		want := []time.Duration{21 * time.Minute, 51 * time.Minute, 81 * time.Minute}
		for i := range want {
			want[i] += time.Second
		}
		if !slices.Equal(looks, want) {
			t.Errorf("looks after %v, want %v", looks, want)
		}
	})
}

// portsOfPools is the collection of ports of a cluster with one pool.
func portsOfPools(t *testing.T, node string) (*ports, func(pool, host string) sdn.PortSummary) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	pool := &v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1.KuryrPortPoolSpec{Key: v1.PoolKey{NodeName: node}}}
	r := &ports{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).Build()}
	return r, func(pool, host string) sdn.PortSummary {
		return sdn.PortSummary{Owner: sdn.Owner{Kind: sdn.KindPool, Name: pool}, Host: host}
	}
}

// A port belongs to the node of its pool. Without the pool its host is the node.
func TestKeysOfPorts(t *testing.T) {
	r, summary := portsOfPools(t, "node")
	keys, err := r.keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pool, host string
		want       kube.Key
	}{
		{"pool", "", kube.OnNode("node")}, {"pool", "elsewhere", kube.OnNode("node")},
		{"gone", "host", kube.OnNode("host")}, {"gone", "", kube.OnNode("gone")},
	} {
		if got := keys(summary(c.pool, c.host)); got != c.want {
			t.Errorf("the key of a port of pool %q on host %q is %v, want %v", c.pool, c.host, got, c.want)
		}
	}
}

// regrouped records what the applier is told.
type regrouped struct{ lost, groups []string }

func (r *regrouped) Lost(name string)    { r.lost = append(r.lost, name) }
func (r *regrouped) Regroup(name string) { r.groups = append(r.groups, name) }

// grouping is a cloud with two ports, of which one has other groups than its KuryrPort.
type grouping struct{ sdn.Ports }

func (grouping) ListPorts(context.Context) ([]sdn.PortSummary, error) {
	return []sdn.PortSummary{{ID: "right", SecurityGroupIDs: []string{"b", "a"}}, {ID: "wrong", SecurityGroupIDs: []string{"a", "x"}}}, nil
}

// A grace period after keys were taken over from a process that crashed, one comparison finds ports with
// other security groups. Others do not.
func TestGroupsAreComparedAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, applier := shards.NewGate(nil), &regrouped{}
		live := settings.NewLive(settings.Settings{Orphans: config.Orphans{Grace: metav1.Duration{Duration: time.Minute}}})
		from, objects := &portsSource{}, manyObjects{ports: make([]v1.KuryrPort, 2)}
		for i, name := range []string{"right", "wrong"} {
			p := &objects.ports[i]
			p.Name, p.Spec.NodeName, p.Spec.SecurityGroupIDs = name, "node", []string{"a", "b"}
			p.Status.Phase = v1.PortBound
		}
		from.client = objects
		v := Ports(from, PortOptions{Cloud: grouping{}, Settings: live, Shards: gate, Supply: idle{}, Visibility: idle{}, Applier: applier})
		compareFor := func(why string, want ...string) {
			t.Helper()
			applier.groups = nil
			compare(t, v)
			if !slices.Equal(applier.groups, want) || len(applier.lost) > 0 {
				t.Errorf("%s: groups of %v are wrong, %v are lost; want %v", why, applier.groups, applier.lost, want)
			}
		}
		gate.Open(t.Context(), shard.Set{}.With(shard.Bucket("node", "node")), true)
		compareFor("at once")
		time.Sleep(time.Minute)
		compareFor("after the grace period", "wrong")
		compareFor("again")
		gate.Open(t.Context(), shard.Set{}.With(shard.Bucket("node", "node")), false)
		time.Sleep(time.Minute)
		compareFor("after a hand-over")
	})
}

type portsSource struct{ client client.Client }

func (s *portsSource) GetClient() client.Client    { return s.client }
func (s *portsSource) GetAPIReader() client.Reader { return s.client }
