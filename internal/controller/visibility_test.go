// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// lessShown is a backend whose credential sees no port while less is set.
type lessShown struct {
	sdn.Backend
	less *atomic.Bool
}

func (l lessShown) ListPorts(ctx context.Context) ([]sdn.PortSummary, error) {
	if l.less.Load() {
		return nil, nil
	}
	return l.Backend.ListPorts(ctx)
}

func (l lessShown) Port(ctx context.Context, id string) (sdn.Port, error) {
	if l.less.Load() {
		return sdn.Port{}, fmt.Errorf("reading port %s: %w", id, sdn.ErrNotFound)
	}
	return l.Backend.Port(ctx, id)
}

func (l lessShown) UpdatePort(ctx context.Context, id string, u sdn.PortUpdate) error {
	if l.less.Load() {
		return fmt.Errorf("updating port %s: %w", id, sdn.ErrNotFound)
	}
	return l.Backend.UpdatePort(ctx, id, u)
}

func (l lessShown) DeletePort(ctx context.Context, id string) error {
	if l.less.Load() {
		return nil
	}
	return l.Backend.DeletePort(ctx, id)
}

func (l lessShown) DeleteUnchangedPort(ctx context.Context, id string, revision int) error {
	if l.less.Load() {
		return nil
	}
	return l.Backend.DeleteUnchangedPort(ctx, id, revision)
}

func (l lessShown) CreatePorts(ctx context.Context, o sdn.Owner, r sdn.PortRequest, n int) ([]sdn.Port, error) {
	if l.less.Load() {
		return nil, fmt.Errorf("creating %d ports: %w", n, sdn.ErrForbidden)
	}
	return l.Backend.CreatePorts(ctx, o, r, n)
}

func (l lessShown) Sees(ctx context.Context, project, network string) error {
	if l.less.Load() {
		return fmt.Errorf("no port of project %q is shown: %w", project, sdn.ErrForbidden)
	}
	return l.Backend.Sees(ctx, project, network)
}

// TestLessShownIsNotGone: a credential has lost its role and sees no port. No pod loses its
// network, and no port is left over.
func TestLessShownIsNotGone(t *testing.T) {
	b := idleBed(t)
	var less atomic.Bool
	b.backend = lessShown{b.cloud.Backend("cluster"), &less}
	b.set(func(s *settings.Settings) {
		s.Pools.Min, s.Pools.Batch, s.Pools.TTL = 4, 5, metav1.Duration{Duration: time.Hour}
	})
	b.start()
	pod := b.pod("web")
	port := b.bound(pod)
	b.attach(port, true)
	b.settled(5)

	less.Store(true)
	ends := b.free()
	b.delete(ends)
	b.eventually("a KuryrPort that goes says why it stays", func() bool {
		var now v1.KuryrPort
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(ends), &now); err != nil {
			return false
		}
		ready := meta.FindStatusCondition(now.Status.Conditions, v1.ConditionReady)
		return ready != nil && ready.Reason == v1.ReasonForbidden
	})
	time.Sleep(4 * time.Second) // several comparisons, a grace period apart
	if n := len(b.ports()); n != 5 || b.cloud.Ports() != 5 {
		t.Errorf("%d KuryrPorts and %d ports after the credential was shown none, want 5 and 5", n, b.cloud.Ports())
	}
	if now := b.portOf(pod); now == nil || now.Status.Phase != v1.PortBound {
		t.Errorf("the running pod has %+v, want its bound port", now)
	}

	less.Store(false)
	b.eventually("the KuryrPort that goes is gone", func() bool { return !b.cloud.HasPort(ends.Name) })
	b.settled(5)
}

// TestPortThatIsThereAgain: a port that was reported missing and is shown again is in order,
// without a restart.
func TestPortThatIsThereAgain(t *testing.T) {
	b := idleBed(t)
	var less atomic.Bool
	hiding := lessShown{b.cloud.Backend("cluster"), &less}
	b.backend = believer{hiding}
	b.start()
	pod := b.pod("web")
	port := b.bound(pod)
	b.attach(port, true)
	less.Store(true)
	b.eventOn("web", "PortMissing")
	b.eventually("the port has failed", func() bool { return b.portOf(pod).Labels[v1.PortStatusLabel] == string(v1.PortFailed) })
	time.Sleep(500 * time.Millisecond) // and no reconcile is in progress
	less.Store(false)
	b.eventually("the port is bound again", func() bool { return b.portOf(pod).Status.Phase == v1.PortBound })
}

// believer takes a port that it does not see for gone.
type believer struct{ lessShown }

func (believer) Sees(context.Context, string, string) error { return nil }
