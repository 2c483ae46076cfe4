// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// TestReplicas: while pods come and go, the replica that owns the most is killed, is told to end, and loses
// its node: with one replica that works, and with all. Others own its keys then, those of the others never
// move, and every pod runs. It logs how long each took. With -short, one of three that work is killed.
func TestReplicas(t *testing.T) {
	f := onBed(t)
	bed := f.nodeNames(t.Context(), t)
	f.pools(t, map[string]any{"min": 3, "max": 20, "batch": 5, "ttl": "10m", "cooldown": "2s"})
	t.Cleanup(func() { f.scaleController(t, 1) })
	f.scaleController(t, min(3, len(bed)))
	for _, mode := range []struct {
		name   string
		active int
	}{{"all work", 0}, {"one of them works", 1}} {
		t.Run(mode.name, func(t *testing.T) {
			f.change(t, func(document map[string]any) { document["controllers"] = map[string]any{"active": mode.active} })
			for _, fault := range []struct {
				name string
				do   func(testing.TB, *corev1.Pod)
			}{{"killed", f.killPod}, {"told to end", f.endPod}, {"its node is gone", f.pullNode}} {
				t.Run(fault.name, func(t *testing.T) { f.replicaGoes(t, mode.active, fault.do) })
				if testing.Short() {
					return
				}
			}
		})
		if testing.Short() {
			return
		}
	}
}

// replicaGoes has the replica go that owns the most, while pods come and go on all nodes but its own.
func (f *fixture) replicaGoes(t *testing.T, active int, fault func(testing.TB, *corev1.Pod)) {
	f.placed(t, active)
	members, before := f.sharing(t)
	var victim string
	for uid, owned := range before.Owners {
		if victim == "" || owned.Len() > before.Owners[victim].Len() {
			victim = uid
		}
	}
	pod := &corev1.Pod{}
	if err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: kuryrNamespace, Name: members[victim]}, pod); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := &coming{fixture: f, t: t}
	var work sync.WaitGroup
	slots := 0
	for _, node := range f.nodeNames(t.Context(), t) {
		if node != pod.Spec.NodeName {
			work.Go(func() { c.slot(ctx, fmt.Sprintf("%s-%d", node, time.Now().Unix()), node) })
			slots++
		}
	}
	c.warm(t, 4*slots)
	began := time.Now()
	fault(t, pod)
	told := time.Since(began)
	soon, took, silent := f.takenOver(t, began, victim, members[victim], before)
	time.Sleep(10 * time.Second)
	stop()
	work.Wait()
	others := shard.All().Minus(before.Owners[victim])
	t.Logf("%d of %d buckets had another owner after %.1f s (%d of them one second after the fault, which took %.1f s), %.1f s after its last renewal; %d pods ran; the longest that one waited for its port: %.1f s on nodes of %s, %.1f s on those of others",
		before.Owners[victim].Len(), shard.All().Len(), took.Seconds(), soon, told.Seconds(), silent.Seconds(), len(c.ran),
		c.slowest(before.Owners[victim], began).Seconds(), pod.Name, c.slowest(others, began).Seconds())
	f.nodesAreBack(t)
}

// takenOver waits until only members that live own something, and all. What the others had stays theirs but for
// the few that an even share moves. It returns how many buckets another one owned after a second, how long
// it took until all had, and how long since the last renewal of the victim's Lease, which it still lived at.
func (f *fixture) takenOver(t testing.TB, began time.Time, victim, name string, before shard.Table) (soon int, took, silent time.Duration) {
	t.Helper()
	second, renewed := time.Now().Add(time.Second), began
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: kuryrNamespace, Name: "kuryr-controller-" + name}
		if err := f.Client.Get(ctx, key, lease); err == nil && lease.Spec.RenewTime != nil {
			renewed = lease.Spec.RenewTime.Time
		}
		members, now := f.sharing(t)
		var all shard.Set
		for uid, set := range now.Owners {
			if members[uid] != "" {
				all = all.Or(set)
			}
		}
		for uid, had := range before.Owners {
			lost := had.Minus(now.Owners[uid]).Len()
			if uid != victim && members[uid] != "" && lost > shard.All().Len()/16 && len(members) < len(before.Owners) {
				t.Errorf("%s, which lives, has lost %d buckets", members[uid], lost)
			}
		}
		if time.Now().Before(second) {
			soon = before.Owners[victim].And(all.Minus(now.Owners[victim])).Len()
		}
		if now.Owners[victim].Len() == 0 && all == shard.All() {
			return soon, time.Since(began), time.Since(renewed)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("nobody took over")
	return 0, 0, 0
}

// sharing returns the replicas by the UID of their Leases, and who owns which buckets.
func (f *fixture) sharing(t testing.TB) (members map[string]string, table shard.Table) {
	t.Helper()
	var leases coordinationv1.LeaseList
	if err := f.Client.List(t.Context(), &leases, client.InNamespace(kuryrNamespace)); err != nil {
		t.Fatal(err)
	}
	members = map[string]string{}
	for _, l := range leases.Items {
		switch {
		case l.Name == "kuryr-controller":
			if err := json.Unmarshal([]byte(l.Annotations["openstack.org/owners"]), &table); err != nil {
				t.Fatalf("reading the table: %v", err)
			}
		case strings.HasPrefix(l.Name, "kuryr-controller-"):
			members[string(l.UID)] = *l.Spec.HolderIdentity
		}
	}
	return members, table
}

// placed waits until so many replicas own something as should (0: all), and all is owned.
func (f *fixture) placed(t testing.TB, active int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	err := cluster.Until(ctx, func() error {
		members, table := f.sharing(t)
		want := min(active, len(members))
		if active == 0 {
			want = len(members)
		}
		var all shard.Set
		for uid, set := range table.Owners {
			if members[uid] == "" {
				return fmt.Errorf("%s owns %d buckets and has no Lease", uid, set.Len())
			}
			all = all.Or(set)
		}
		if len(members) < 2 || len(table.Owners) != want || all != shard.All() || table.Active != active {
			return fmt.Errorf("of %d replicas %d own something, want %d; %d buckets have an owner; active is %d", len(members), len(table.Owners), want, all.Len(), table.Active)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// killPod kills the controller, and its pod goes: kubelet would start the container again.
func (f *fixture) killPod(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	f.kill(t, pod.Spec.NodeName, "controller")
	if err := f.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) endPod(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	if err := f.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// pullNode is a power cut of the pod's node.
func (f *fixture) pullNode(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	if _, err := cluster.Bed(t.Context(), "stop", pod.Spec.NodeName); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.nodesAreBack(t) })
}

// nodesAreBack starts the nodes that are stopped, and waits until they and all replicas are ready.
func (f *fixture) nodesAreBack(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	err := cluster.Until(ctx, func() error {
		for _, node := range f.nodeNames(ctx, t) {
			if _, err := f.OnNode(ctx, node, "true"); err != nil {
				if _, err := cluster.Bed(ctx, "start", node); err != nil {
					return err
				}
			}
		}
		return f.allReady(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// allReady reports a node or a pod of Kuryr's that is not ready.
func (f *fixture) allReady(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := f.Client.List(ctx, &nodes); err != nil {
		return err
	}
	for _, n := range nodes.Items {
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("node %s is not ready", n.Name)
		}
	}
	var pods corev1.PodList
	if err := f.Client.List(ctx, &pods, client.InNamespace(kuryrNamespace)); err != nil {
		return err
	}
	for _, p := range pods.Items {
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) || p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is not ready", p.Name)
		}
	}
	return nil
}

func (f *fixture) nodeNames(ctx context.Context, t testing.TB) []string {
	t.Helper()
	var nodes corev1.NodeList
	if err := f.Client.List(ctx, &nodes); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
	}
	return names
}

// coming are pods that come and go one after another.
type coming struct {
	*fixture
	t   *testing.T
	mu  sync.Mutex
	ran []waited
}

// waited is how long a pod has waited for its port.
type waited struct {
	node  string
	began time.Time
	took  time.Duration
}

// warm waits until so many pods had a port: then pools have more free ones than these need, and make none.
func (c *coming) warm(t testing.TB, pods int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	err := cluster.Until(ctx, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.ran) < pods {
			return fmt.Errorf("%d pods had a port, want %d", len(c.ran), pods)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c *coming) slot(ctx context.Context, name, node string) {
	for n := 0; ctx.Err() == nil; n++ {
		one, cancel := context.WithTimeout(c.t.Context(), 2*patience)
		err := c.life(one, fmt.Sprintf("%s-%d", name, n), node)
		cancel()
		if err != nil {
			c.t.Errorf("%s on %s: %v", name, node, err)
			return
		}
		time.Sleep(time.Second)
	}
}

// life makes a pod, waits until it has its port and runs, and deletes it.
func (c *coming) life(ctx context.Context, name, node string) error {
	pod, err := c.Pod(ctx, c.namespace, name, node)
	if err != nil {
		return fmt.Errorf("making it: %w", err)
	}
	began := time.Now()
	if err := cluster.Until(ctx, func() error { return c.hasPort(ctx, pod) }); err != nil {
		return err
	}
	c.mu.Lock()
	c.ran = append(c.ran, waited{node, began, time.Since(began)})
	c.mu.Unlock()
	err = cluster.Until(ctx, func() error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod is %s", pod.Status.Phase)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.Client.Delete(ctx, pod)
}

// hasPort reports why a pod has no port. It reads the pod's node anew.
func (f *fixture) hasPort(ctx context.Context, pod *corev1.Pod) error {
	if err := f.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return err
	}
	_, err := f.KuryrPortOf(ctx, pod)
	return err
}

// slowest returns the longest wait on nodes of these buckets, of pods that came after a time.
func (c *coming) slowest(of shard.Set, after time.Time) (longest time.Duration) {
	for _, w := range c.ran {
		if w.began.After(after) && of.Has(shard.Bucket("node", w.node)) {
			longest = max(longest, w.took)
		}
	}
	return longest
}

// TestForgedTable: a replica that nobody knows, with a Lease that is renewed, is written into the table as
// the owner of all, again and again. The true replicas believe the table: no pod gets a port meanwhile. When
// that Lease is gone, pods run again without a person (the old implementation's test_auto_fencing).
func TestForgedTable(t *testing.T) {
	f := onBed(t)
	f.Client.Delete(t.Context(), forged(""))
	other := forged("x")
	if err := f.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Client.Delete(context.Background(), forged("")) })
	forge := func() {
		other.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		if err := f.Client.Update(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		table := &coordinationv1.Lease{}
		table.Namespace, table.Name = kuryrNamespace, "kuryr-controller"
		text := string(must(json.Marshal(shard.Table{Owners: map[string]shard.Set{string(other.UID): shard.All()}, Active: 1}))(t))
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{"openstack.org/owners": text}}}
		if err := f.Client.Patch(t.Context(), table, client.RawPatch(types.MergePatchType, must(json.Marshal(patch))(t))); err != nil {
			t.Fatal(err)
		}
	}
	forge()
	pod := must(f.Pod(t.Context(), f.namespace, "fenced", nodes[0]))(t)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Second) {
		forge()
		if err := f.hasPort(t.Context(), pod); err == nil {
			t.Fatal("the pod has a port, though another replica owns its node")
		}
	}
	f.Client.Delete(t.Context(), forged(""))
	began := time.Now()
	f.running(t, pod.Name)
	t.Logf("the pod ran %.1f s after the forger was gone", time.Since(began).Seconds())
}

func forged(holder string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	l.Namespace, l.Name = kuryrNamespace, "kuryr-controller-forged"
	l.Spec.HolderIdentity = &holder
	return l
}

// TestReplicaMore: a second replica comes, and goes. It takes nothing from the one that works, and pods of
// before, meanwhile and after reach each other (the old implementation's test_scale_up_controller and
// test_scale_down_controller).
func TestReplicaMore(t *testing.T) {
	f := onBed(t)
	f.scaleController(t, 1)
	members, before := f.sharing(t)
	first := f.pods(t, "first")[0]
	t.Cleanup(func() { f.scaleController(t, 1) })
	f.scaleController(t, 2)
	f.placed(t, 1)
	now, table := f.sharing(t)
	if len(members) != 1 || len(now) != 2 || !maps.Equal(before.Owners, table.Owners) {
		t.Errorf("of %v %v owned what %v of %v owns now", members, before.Owners, table.Owners, now)
	}
	second := f.pods(t, "second")[0]
	all(t, f.between(first, second), f.between(second, first))
	f.scaleController(t, 1)
	third := f.pods(t, "third")[0]
	all(t, f.between(first, third), f.between(third, second))
	f.delete(t, first, second, third)
	f.atRest(t)
}
