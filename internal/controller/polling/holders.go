// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package polling

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// Holders knows which KuryrLoadBalancers have a floating IP without Kuryr's mark. A status does not
// name a floating IP that is withheld. The knowledge does not survive a restart. Its methods are
// safe for concurrent use. The zero value is ready for use.
type Holders struct {
	mu  sync.Mutex
	all map[ctrl.Request]holding
}

type holding struct {
	uid types.UID
	ip  string
}

// Note records the floating IP that a KuryrLoadBalancer has. nil means that it has none.
func (h *Holders) Note(klb *v1.KuryrLoadBalancer, has *v1.PublicIPStatus) {
	if has == nil || has.Made { // a floating IP that Kuryr made has one holder
		h.Forget(kube.RequestOf(klb))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[ctrl.Request]holding{}
	}
	h.all[kube.RequestOf(klb)] = holding{klb.UID, has.IP}
}

// Forget records that a KuryrLoadBalancer has no floating IP any more.
func (h *Holders) Forget(req ctrl.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, req)
}

// Has reports whether a KuryrLoadBalancer has this floating IP.
func (h *Holders) Has(klb *v1.KuryrLoadBalancer, address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[kube.RequestOf(klb)] == holding{klb.UID, address}
}
