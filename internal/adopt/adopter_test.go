// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package adopt_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/adopt"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// server is a client of the API server that the tests share, nil without one.
var server client.WithWatch

func TestMain(m *testing.M) {
	os.Exit(apitest.Run(m, func(env *envtest.Environment) (err error) {
		scheme := runtime.NewScheme()
		if err := v1.AddToScheme(scheme); err != nil {
			return err
		}
		server, err = client.NewWithWatch(env.Config, client.Options{Scheme: scheme})
		return err
	}))
}

// left is a cloud in which an earlier Kuryr has left two ports bound to a node,
// two on another's trunk, and two that no pool can be told of.
type left struct {
	cloud  *memory.Cloud
	nodes  []adopt.Node
	strays []sdn.Port
}

func leave(t *testing.T) *left {
	t.Helper()
	apitest.Need(t)
	l := &left{cloud: memory.New(
		memory.Subnet{ID: "sub6", NetworkID: "net", Prefix: netip.MustParsePrefix("fd00::/64"), MTU: 1442},
		memory.Subnet{ID: "sub4", NetworkID: "net", Prefix: netip.MustParsePrefix("10.1.0.0/16"), MTU: 1442},
	)}
	l.cloud.AddMachine(memory.Machine{PortID: "trunk", SubnetID: "nodes", Address: "192.168.0.9", Trunk: true})
	for _, n := range someNodes() {
		n.Key.ProjectID = "" // that of the credential
		l.nodes = append(l.nodes, n)
	}
	for _, r := range []sdn.PortRequest{{Host: "metal"}, {ParentPortID: "trunk"}, {}} {
		r.SubnetIDs, r.SecurityGroupIDs = []string{"sub6", "sub4"}, []string{"old"}
		l.strays = append(l.strays, l.cloud.AddStray(r), l.cloud.AddStray(r))
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		var ports v1.KuryrPortList
		if err := server.List(ctx, &ports); err != nil {
			t.Error(err)
		}
		for i := range ports.Items {
			ports.Items[i].Finalizers = nil
			_ = server.Update(ctx, &ports.Items[i])
		}
		for _, o := range []client.Object{&v1.KuryrPort{}, &v1.KuryrPortPool{}} {
			if err := server.DeleteAllOf(ctx, o); err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

// adopt runs what the command runs: a look, a plan, and its deeds.
func (l *left) adopt(ctx context.Context, c client.Client) (adopt.Result, error) {
	backend := l.cloud.Backend("cluster")
	strays, err := backend.Strays(ctx, "")
	if err != nil {
		return adopt.Result{}, err
	}
	var ports v1.KuryrPortList
	if err := c.List(ctx, &ports); err != nil {
		return adopt.Result{}, err
	}
	objects := map[string]bool{}
	for i := range ports.Items {
		objects[ports.Items[i].Name] = true
	}
	a := adopt.Adopter{Cloud: backend, Client: c, Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }}
	return a.Do(ctx, adopt.Plan(adopt.State{Strays: strays, Nodes: l.nodes, Objects: objects}))
}

func kuryrPorts(t *testing.T) map[string]v1.KuryrPort {
	t.Helper()
	var list v1.KuryrPortList
	if err := server.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]v1.KuryrPort{}
	for _, p := range list.Items {
		out[p.Name] = p
	}
	return out
}

func TestAdopterWritesPortsDown(t *testing.T) {
	l := leave(t)
	got, err := l.adopt(t.Context(), server)
	if diff := cmp.Diff(adopt.Result{Adopted: 4, Deleted: 2}, got); diff != "" || err != nil {
		t.Fatalf("Do: %v (-want +got):\n%s", err, diff)
	}
	ports := kuryrPorts(t)
	for i, p := range l.strays[:4] {
		node := l.nodes[i/2]
		object, there := ports[p.ID]
		if !there {
			t.Fatalf("port %s has no KuryrPort", p.ID)
		}
		want := v1.KuryrPortSpec{
			Pool: pool.Name(node.Key), NodeName: node.Name, NetworkID: "net", SecurityGroupIDs: []string{"old"}, VIF: p.VIF,
		}
		slices.Reverse(want.VIF.Addresses) // as the pool has its subnets
		if diff := cmp.Diff(want, object.Spec); diff != "" {
			t.Errorf("spec of KuryrPort (-want +got):\n%s", diff)
		}
		if object.Annotations["kuryr.openstack.org/released-at"] != "2026-01-02T03:04:05Z" || !slices.Contains(object.Finalizers, v1.PortFinalizer) {
			t.Errorf("metadata of KuryrPort: %v, %v", object.Annotations, object.Finalizers)
		}
		mine, err := l.cloud.Backend("cluster").Port(t.Context(), p.ID)
		if want := (sdn.Owner{Kind: "kuryrportpool", Name: want.Pool}); err != nil || mine.Owner != want {
			t.Errorf("owner of port: %v, %v, want %v", mine.Owner, err, want)
		}
		var object2 v1.KuryrPortPool
		if err := server.Get(t.Context(), client.ObjectKey{Name: want.Pool}, &object2); err != nil || object2.Spec.Key.NodeName != node.Name {
			t.Errorf("KuryrPortPool: %v, %v", object2.Spec.Key, err)
		}
	}
	if len(ports) != 4 || l.cloud.Ports() != 4 {
		t.Errorf("%d KuryrPorts and %d ports, want 4 and 4", len(ports), l.cloud.Ports())
	}
	if got, err := l.adopt(t.Context(), server); got != (adopt.Result{}) || err != nil {
		t.Errorf("Do once more: %v, %v, want nothing", got, err)
	}
}

// A port that changes hands between the look and the deed is left alone.
func TestAdopterLeavesWhatChanged(t *testing.T) {
	l := leave(t)
	change := sync.OnceFunc(func() { // before any of those that are made at once
		l.cloud.TakeStray(l.strays[0].ID, "pod")
		l.cloud.TakeStray(l.strays[4].ID, "pod")
		l.cloud.RemovePort(l.strays[2].ID)
	})
	l.cloud.Before = func(_ context.Context, call string, _ int) error {
		if call == memory.Claim || call == memory.DeleteStray {
			change()
		}
		return nil
	}
	got, err := l.adopt(t.Context(), server)
	if diff := cmp.Diff(adopt.Result{Adopted: 2, Deleted: 1, Skipped: 3}, got); diff != "" || err != nil {
		t.Errorf("Do: %v (-want +got):\n%s", err, diff)
	}
	for _, i := range []int{0, 4} {
		if !l.cloud.HasPort(l.strays[i].ID) {
			t.Errorf("a port that a pod got was deleted")
		}
		if _, there := kuryrPorts(t)[l.strays[i].ID]; there {
			t.Errorf("a port that a pod got was adopted")
		}
	}
}

var errStopped = errors.New("the process is stopped")

// Stopped at any write, to the SDN or the API server, before or after it took
// effect, what is left is a stray for the next run, or claimed for a pool that
// has an object: a controller adopts that. None is lost, and none deleted that
// was to be adopted.
func TestAdopterStopsAnywhere(t *testing.T) {
	apitest.Need(t) // each life would skip, and none would be the last
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			if stoppedAt(t, n, after) {
				break
			}
		}
	}
}

// stoppedAt stops a run at its n-th write and checks what is left, before and
// after another run. It returns whether the run had fewer writes.
func stoppedAt(t *testing.T, n int, after bool) (over bool) {
	t.Run(fmt.Sprintf("%d, after it: %t", n, after), func(t *testing.T) {
		l := leave(t)
		clock := writes{stopAt: n, after: after}
		l.cloud.Before = func(_ context.Context, call string, _ int) error { return clock.before(call) }
		l.cloud.After = func(_ context.Context, call string, _ int) error { return clock.done(call) }
		c := interceptor.NewClient(server, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if err := clock.before("Create"); err != nil {
					return err
				}
				return errors.Join(c.Create(ctx, o, options...), clock.done("Create"))
			},
		})
		_, err := l.adopt(t.Context(), c)
		over = !clock.stopped()
		if (err == nil) != over {
			t.Errorf("stopped %t: %v", !over, err)
		}
		clock.reset()
		checkClaims(t, l)
		if _, err := l.adopt(t.Context(), server); err != nil {
			t.Errorf("Do once more: %v", err)
		}
		checkClaims(t, l)
		strays, err := l.cloud.Backend("cluster").Strays(t.Context(), "")
		if err != nil || len(strays) > 0 || l.cloud.Ports() != 4 {
			t.Errorf("after a second run: %d strays, %d ports, %v; want none and 4", len(strays), l.cloud.Ports(), err)
		}
	})
	return over || t.Failed()
}

// checkClaims checks that what is claimed belongs to a pool that there is, and
// that every KuryrPort is of a port that is claimed.
func checkClaims(t *testing.T, l *left) {
	t.Helper()
	claimed := map[string]bool{}
	for _, i := range l.cloud.Inventory() {
		if i.Cluster == "" {
			continue
		}
		claimed[i.Port.ID] = true
		if err := server.Get(t.Context(), client.ObjectKey{Name: i.Port.Owner.Name}, &v1.KuryrPortPool{}); err != nil {
			t.Errorf("port %s is claimed for a pool that is not there: %v", i.Port.ID, err)
		}
	}
	for name := range kuryrPorts(t) {
		if !claimed[name] {
			t.Errorf("KuryrPort %s is of a port that is not claimed", name)
		}
	}
}
