// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// holders knows which KuryrLoadBalancers have floating IPs that bear no mark of them: a
// status does not name one that is withheld. What a process before knew is lost. Its
// methods are safe for concurrent use; the zero value is ready.
type holders struct {
	mu  sync.Mutex
	all map[ctrl.Request]holding
}

type holding struct {
	uid types.UID
	ip  string
}

// note says what a KuryrLoadBalancer has; nil: nothing.
func (h *holders) note(klb *v1.KuryrLoadBalancer, has *v1.PublicIPStatus) {
	if has == nil || has.Made { // which nobody else can have
		h.forget(kube.RequestOf(klb))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[ctrl.Request]holding{}
	}
	h.all[kube.RequestOf(klb)] = holding{klb.UID, has.IP}
}

func (h *holders) forget(req ctrl.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, req)
}

func (h *holders) has(klb *v1.KuryrLoadBalancer, address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[kube.RequestOf(klb)] == holding{klb.UID, address}
}

// before returns the KuryrLoadBalancer, as namespace/name, that comes before another for
// the floating IP that it asks for by its address; empty if none does.
func (r *Reconciler) before(ctx context.Context, klb *v1.KuryrLoadBalancer) (string, error) {
	if klb.Spec.PublicIP == nil || klb.Spec.PublicIP.Address == "" {
		return "", nil
	}
	all, err := kube.LoadBalancers(ctx, r.client)
	if err != nil {
		return "", err
	}
	first := balancer.Before(klb, slices.Collect(maps.Values(all)), func(o *v1.KuryrLoadBalancer) bool {
		return r.held.has(o, klb.Spec.PublicIP.Address)
	})
	if first == nil {
		return "", nil
	}
	return first.Namespace + "/" + first.Name, nil
}
