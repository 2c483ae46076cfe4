// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// listed is a cloud that only lists load balancers.
type listed struct {
	sdn.LoadBalancers
	all   []sdn.LoadBalancerSummary
	err   error
	lists []time.Duration // when, since the start
	takes time.Duration
	began time.Time
}

func (l *listed) ListLoadBalancers(context.Context) ([]sdn.LoadBalancerSummary, error) {
	l.lists = append(l.lists, time.Since(l.began))
	time.Sleep(l.takes)
	return l.all, l.err
}

// waitsFor returns a Reconciler that waits for load balancers of that cloud.
func waitsFor(l *listed, ids ...string) *Reconciler {
	l.began = time.Now()
	r := &Reconciler{Options: Options{Cloud: Cloud{LoadBalancers: l}, Now: time.Now}}
	r.wait.added, r.wait.busy = kube.NewSignal(), map[string]waiting{}
	for _, id := range ids {
		r.wait.add(id, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: id}}, time.Now(), time.Now())
	}
	return r
}

// TestPartOfAList: a list that lacks the load balancers of a project ends the wait for those that are
// done, and for those that it does not show: their visits find out.
func TestPartOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := waitsFor(&listed{
			all: []sdn.LoadBalancerSummary{{ID: "done", Provisioning: sdn.ProvisioningActive}, {ID: "busy", Provisioning: sdn.ProvisioningCreating}},
			err: &sdn.PartialError{Lacks: map[string]error{"red": sdn.ErrLogin}},
		}, "done", "busy", "red")
		if err := r.listBusy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := slices.Collect(maps.Keys(r.wait.busy)); !slices.Equal(left, []string{"busy"}) {
			t.Errorf("it still waits for %q, want the busy one alone", left)
		}
	})
}

// TestListsWhileBusy: the time between two lists grows while nothing changes, a new load balancer is
// listed soon, and nothing is listed while none is busy.
func TestListsWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &listed{all: []sdn.LoadBalancerSummary{{ID: "a", Provisioning: sdn.ProvisioningCreating}, {ID: "b", Provisioning: sdn.ProvisioningCreating}}}
		r := waitsFor(cloud)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- kube.Every("test", r.wait.period, r.listBusy, r.wait.added)(ctx)
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(cloud.lists) > 0 {
			t.Errorf("lists at %v while none is busy", cloud.lists)
		}
		add := func(id string) {
			cloud.began, cloud.lists = time.Now(), nil
			r.wait.add(id, ctrl.Request{NamespacedName: client.ObjectKey{Name: id}}, time.Now(), time.Now())
		}
		add("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(cloud.lists); n < 14 || n > 20 || cloud.lists[0] != waitSoonest {
			t.Errorf("lists at %v, want the first after %s, and every %s in the end", cloud.lists, waitSoonest, waitLatest)
		}
		add("b")
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(cloud.lists); n < 3 || cloud.lists[0] != waitSoonest {
			t.Errorf("lists at %v after another one was added, want the first after %s", cloud.lists, waitSoonest)
		}
		cloud.takes, cloud.all = 500*time.Millisecond, nil // both are done
		time.Sleep(time.Hour)
		add("c")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(cloud.lists) != 1 || cloud.lists[0] != waitSoonest {
			t.Errorf("lists at %v an hour after slow ones, want one after %s", cloud.lists, waitSoonest)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
