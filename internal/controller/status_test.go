// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"sync/atomic"
	"testing"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// versions counts the writes of a KuryrPort from now on, up to the one that says that it is active.
// active is closed then.
func (b *bed) versions(name string) (n *atomic.Int32, active <-chan struct{}) {
	b.t.Helper()
	n = new(atomic.Int32)
	done := make(chan struct{})
	informer, err := b.manager.GetCache().GetInformer(b.t.Context(), &v1.KuryrPort{})
	if err != nil {
		b.t.Fatal(err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(old, now any) {
		before, after := old.(*v1.KuryrPort), now.(*v1.KuryrPort)
		if after.Name == name && before.ResourceVersion != after.ResourceVersion {
			n.Add(1)
			if after.Status.Active && !before.Status.Active {
				close(done)
			}
		}
	}})
	if err != nil {
		b.t.Fatal(err)
	}
	return n, done
}

// oneWarmPort starts with a free port.
func (b *bed) oneWarmPort() {
	b.t.Helper()
	b.current.Pools.TTL.Duration, b.current.Orphans = time.Hour, noLooks
	b.settings = settings.NewLive(b.current)
	b.warmPool(node, 1)
	b.start()
}

// A warm port costs three writes until its pod runs: the pod's name in the spec, the daemon's
// report, and one status of the controller for both.
func TestStatusOfAStartIsWrittenOnce(t *testing.T) {
	b := idleBed(t)
	b.gap = time.Hour
	b.oneWarmPort()
	writes, active := b.versions(b.ports()[0].Name)
	pod := b.pod("web")
	b.eventually("the pod has the port", func() bool { return b.portOf(pod) != nil })
	b.attach(b.portOf(pod), true)
	await(t.Context(), active)
	if s := b.portOf(pod).Status; s.Phase != v1.PortBound {
		t.Errorf("the port is active and its phase %s", s.Phase)
	}
	if n := writes.Load(); n != 3 {
		t.Errorf("%d writes of the KuryrPort, want 3", n)
	}
}

// A pod that is not plugged has its port in the status, too, a little later.
func TestStatusWaitsNoLongerThanTheGap(t *testing.T) {
	b := idleBed(t)
	b.gap = 300 * time.Millisecond
	b.oneWarmPort()
	b.bound(b.pod("web"))
}
