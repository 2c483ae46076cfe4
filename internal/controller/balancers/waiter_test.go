// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
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
	mu    sync.Mutex // synctest.Wait orders nothing that the test does after it
	all   []sdn.LoadBalancerSummary
	err   error
	lists []time.Duration // when, since the start
	takes time.Duration
	began time.Time
}

func (l *listed) ListLoadBalancers(context.Context) ([]sdn.LoadBalancerSummary, error) {
	l.mu.Lock()
	l.lists = append(l.lists, time.Since(l.began))
	takes, all, err := l.takes, l.all, l.err
	l.mu.Unlock()
	time.Sleep(takes)
	return all, err
}

// sent returns when lists were sent, since the start.
func (l *listed) sent() []time.Duration {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lists)
}

// restart lets the time since the start begin now, and the cloud answer so, after that time.
func (l *listed) restart(takes time.Duration, all ...sdn.LoadBalancerSummary) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.lists, l.takes, l.all = time.Now(), nil, takes, all
}

// waitsFor returns a Reconciler that waits for load balancers of that cloud.
func waitsFor(l *listed, ids ...string) *Reconciler {
	l.began = time.Now()
	r := &Reconciler{Options: Options{Shards: kube.Alone{}, Cloud: Cloud{LoadBalancers: l}, Now: time.Now}}
	r.wait.added, r.wait.busy = kube.NewSignal(), map[string]waiting{}
	for _, id := range ids {
		r.wait.add(id, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: id}}, time.Now(), time.Now())
	}
	return r
}

// TestPartOfAList: a list that lacks the load balancers of a project ends the wait for those that are
// done, and for those that it does not show: their reconciliations find out.
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
		a := sdn.LoadBalancerSummary{ID: "a", Provisioning: sdn.ProvisioningCreating}
		b := sdn.LoadBalancerSummary{ID: "b", Provisioning: sdn.ProvisioningCreating}
		cloud := &listed{all: []sdn.LoadBalancerSummary{a, b}}
		r := waitsFor(cloud)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- kube.Every("test", r.wait.period, r.listBusy, r.wait.added)(ctx)
		}()
		time.Sleep(time.Hour)
		if sent := cloud.sent(); len(sent) > 0 {
			t.Errorf("lists at %v while none is busy", sent)
		}
		add := func(id string) {
			r.wait.add(id, ctrl.Request{NamespacedName: client.ObjectKey{Name: id}}, time.Now(), time.Now())
		}
		cloud.restart(0, a, b)
		add("a")
		time.Sleep(time.Minute)
		if sent := cloud.sent(); len(sent) < 14 || len(sent) > 20 || sent[0] != waitSoonest {
			t.Errorf("lists at %v, want the first after %s, and every %s in the end", sent, waitSoonest, waitLatest)
		}
		cloud.restart(0, a, b)
		add("b")
		time.Sleep(time.Second)
		if sent := cloud.sent(); len(sent) < 3 || sent[0] != waitSoonest {
			t.Errorf("lists at %v after another one was added, want the first after %s", sent, waitSoonest)
		}
		cloud.restart(500 * time.Millisecond) // both are done
		time.Sleep(time.Hour)
		cloud.restart(500 * time.Millisecond)
		add("c")
		time.Sleep(time.Minute)
		if sent := cloud.sent(); len(sent) != 1 || sent[0] != waitSoonest {
			t.Errorf("lists at %v an hour after slow ones, want one after %s", sent, waitSoonest)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestUnansweredList: a list that failed ends no wait.
func TestUnansweredList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := waitsFor(&listed{err: sdn.ErrUnavailable}, "busy")
		if err := r.listBusy(t.Context()); !errors.Is(err, sdn.ErrUnavailable) {
			t.Errorf("listBusy = %v, want ErrUnavailable", err)
		}
		if len(r.wait.busy) != 1 {
			t.Error("it does not wait any more")
		}
	})
}
