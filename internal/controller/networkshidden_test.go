// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// hiding is a backend whose credential sees no network and no subnet while less is set, and is of the
// project that it asks about.
type hiding struct {
	*memory.Backend
	less *atomic.Bool
}

func (h hiding) Network(ctx context.Context, id string) (sdn.Network, error) {
	if h.less.Load() {
		return sdn.Network{}, fmt.Errorf("reading network %s: %w", id, sdn.ErrNotFound)
	}
	return h.Backend.Network(ctx, id)
}

func (h hiding) ListNetworks(ctx context.Context) ([]sdn.NetworkSummary, error) {
	if h.less.Load() {
		return nil, nil
	}
	return h.Backend.ListNetworks(ctx)
}

func (h hiding) Subnet(ctx context.Context, id string) (sdn.Subnet, error) {
	if h.less.Load() {
		return sdn.Subnet{}, fmt.Errorf("reading subnet %s: %w", id, sdn.ErrNotFound)
	}
	return h.Backend.Subnet(ctx, id)
}

func (h hiding) Sees(ctx context.Context, project, network string) error {
	if h.less.Load() && network != "" {
		return fmt.Errorf("network %s is not shown: %w", network, sdn.ErrForbidden)
	}
	return h.Backend.Sees(ctx, project, network)
}

// A cloud that hides networks from the credential shows none. The KuryrNetwork stays until the cloud
// shows its network again, or shows the network of pods and not that one.
func TestANetworkThatTheCloudHides(t *testing.T) {
	for name, c := range map[string]struct {
		status string // of the KuryrNetwork
	}{
		"of the status":        {""},
		"that no status names": {`{"status":{"networkID":null,"subnets":null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newNetBed(t, "flat", func(*settings.Settings) {})
			var less atomic.Bool
			b.backend = hiding{b.cloud.Backend("cluster"), &less}
			b.start()
			b.makeNamespace(b.namespace, nil)
			pod := b.waiting(b.namespace, "first")
			kn := b.ready(b.namespace)
			less.Store(true)
			if c.status != "" {
				if err := b.client.Status().Patch(t.Context(), kn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(c.status))); err != nil {
					t.Fatal(err)
				}
			}
			b.delete(pod)
			b.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
			b.deleteNetworkOf(b.namespace)
			b.eventually("the KuryrNetwork says that the cloud may hide its network", func() bool { return b.reason(b.namespace, v1.ConditionReady) == v1.ReasonForbidden })
			b.never("the KuryrNetwork is gone", func() bool { return b.kn(b.namespace) == nil })
			if n := b.cloud.Calls(memory.CreateNetwork); n != 1 || len(b.owned()) != 1 {
				t.Errorf("%d networks were made, the cloud has %d; want one", n, len(b.owned()))
			}
			less.Store(false)
			b.eventually("nothing is left", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
		})
	}
}

// A network that was deleted together with its project, or by hand, holds up no namespace.
func TestANetworkThatIsGoneHoldsUpNothing(t *testing.T) {
	b := newNetBed(t, "flat", func(s *settings.Settings) { s.Orphans.Interval.Duration = 0 })
	b.start()
	b.makeNamespace(b.namespace, nil)
	pod := b.waiting(b.namespace, "first")
	kn := b.ready(b.namespace)
	b.delete(pod)
	b.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
	b.cloud.RemoveNetwork(kn.Status.NetworkID)
	b.deleteNetworkOf(b.namespace)
	b.eventually("the KuryrNetwork is gone", func() bool { return b.kn(b.namespace) == nil })
}
