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

// Holders knows which KuryrLoadBalancers have floating IPs that bear no mark of them: a
// status does not name one that is withheld. What a process before knew is lost. Its
// methods are safe for concurrent use; the zero value is ready.
type Holders struct {
	mu  sync.Mutex
	all map[ctrl.Request]holding
}

type holding struct {
	uid types.UID
	ip  string
}

// Note says what a KuryrLoadBalancer has; nil: nothing.
func (h *Holders) Note(klb *v1.KuryrLoadBalancer, has *v1.PublicIPStatus) {
	if has == nil || has.Made { // which nobody else can have
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

// Forget notes that a KuryrLoadBalancer has nothing any more.
func (h *Holders) Forget(req ctrl.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, req)
}

// Has reports whether a KuryrLoadBalancer has an address.
func (h *Holders) Has(klb *v1.KuryrLoadBalancer, address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[kube.RequestOf(klb)] == holding{klb.UID, address}
}
