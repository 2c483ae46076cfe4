// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// subnets knows what the pods' subnets are like by now. A port has the MTU, gateways and
// routes of when it was made, and in a pool it may get old: those that are free are made
// anew after a change. The SDN is asked now and then, and first some time after the
// start: nothing waits for that.
type subnets struct {
	cloud    sdn.Details // nil: nobody tells
	settings *settings.Live
	every    time.Duration
	changed  func(ctx context.Context) error // plans all pools

	mu    sync.Mutex
	known map[string]v1.VIF // see sdn.Details
}

// run looks until ctx ends.
func (s *subnets) run(ctx context.Context) error {
	for s.cloud != nil && kube.Pause(ctx, s.every) {
		if !s.look(ctx) {
			continue
		}
		if err := s.changed(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "planning all pools after their subnets have changed")
		}
	}
	return nil
}

// look asks for all subnets, and reports whether one is not as it was known. Of one that
// the SDN does not tell of nothing is known: its ports stay.
func (s *subnets) look(ctx context.Context) (changed bool) {
	now := map[string]v1.VIF{}
	for _, id := range s.settings.Load().Pods.AllSubnetIDs() {
		vif, err := s.cloud.Details(ctx, id)
		if err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("could not ask what a subnet is like", "subnet", id, "error", err.Error())
			continue
		}
		now[id] = vif
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = !equality.Semantic.DeepEqual(now, s.known)
	s.known = now
	return changed
}

// outdated reports whether a port that is made now would differ, as far as is known.
func (s *subnets) outdated(vif *v1.VIF) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var mtu int32
	var routes []v1.Route
	seen := map[string]bool{}
	for _, a := range vif.Addresses {
		now, known := s.known[a.SubnetID]
		if !known {
			return false
		}
		is := now.Addresses[0]
		if is.IP = a.IP; is != a {
			return true
		}
		if mtu = now.MTU; !seen[a.SubnetID] {
			routes = append(routes, now.Routes...)
		}
		seen[a.SubnetID] = true
	}
	return mtu != vif.MTU || !slices.Equal(inOrder(routes), inOrder(vif.Routes))
}

// elsewhere reports whether a port has an address of a subnet that ports of the pool get
// none of any more: it was taken out of an entry of pods.subnetIDs that is a list.
func (v *view) elsewhere(vif *v1.VIF) bool {
	return slices.ContainsFunc(vif.Addresses, func(a v1.Address) bool {
		return a.SubnetID != "" && !slices.ContainsFunc(v.key.SubnetIDs, func(id string) bool {
			return id == a.SubnetID || slices.Contains(v.site.Rules.Pods.MoreSubnetIDs[id], a.SubnetID)
		})
	})
}

// inOrder sorts routes: their order says nothing.
func inOrder(routes []v1.Route) []v1.Route {
	out := slices.Clone(routes)
	slices.SortFunc(out, func(a, b v1.Route) int {
		return cmp.Or(cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Gateway, b.Gateway))
	})
	return out
}
