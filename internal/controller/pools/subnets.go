// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// subnets knows the current MTU, gateways and routes of the pods' subnets. A port keeps those
// of the time when it was created, so free ports are replaced after a change. The SDN is asked
// once a period, first a period after the start: no pod waits for that.
//
// Of the subnets that Kuryr makes, one for each namespace perhaps, the SDN is asked only if a port
// differs from what the KuryrNetwork says. The SDN's answer decides, because a new port is made
// from data that may be as old.
type subnets struct {
	cloud    sdn.Details // nil: changes are not seen
	settings *settings.Live

	mu       sync.Mutex
	known    map[string]v1.VIF // see sdn.Details
	suspects map[string]bool   // subnets of KuryrNetworks to read next time
}

// lookAtSubnets reads the subnets, and plans all pools if one has changed.
func (r *Reconciler) lookAtSubnets(ctx context.Context) error {
	if r.Shards.Share() == 0 {
		r.subnets.forget() // what is known then may be old when nodes are gained
		return nil
	}
	if r.Details == nil || !r.subnets.look(ctx) {
		return nil
	}
	return r.requeueAll(ctx)
}

// forget forgets the subnets.
func (s *subnets) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
	clear(s.suspects)
}

// look reads the subnets, and reports whether one has changed. If the SDN has no answer for a
// subnet, its ports stay.
func (s *subnets) look(ctx context.Context) (changed bool) {
	s.mu.Lock()
	ids := append(s.settings.Rules().AllSubnetIDs(), slices.Sorted(maps.Keys(s.suspects))...)
	clear(s.suspects)
	s.mu.Unlock()
	now := map[string]v1.VIF{}
	for _, id := range ids {
		vif, err := s.cloud.Details(ctx, id)
		if err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("cannot read a subnet", "subnet", id, "error", err.Error())
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

// outdated reports whether a new port would differ from this one, as far as is known. n is the
// KuryrNetwork of the pool; nil: it has none.
func (s *subnets) outdated(vif *v1.VIF, n *v1.KuryrNetwork) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, known := differs(vif, func(id string) (v1.VIF, bool) {
		now, known := s.known[id]
		return now, known
	})
	if known || n == nil || s.cloud == nil {
		return is
	}
	if is, known := differs(vif, func(id string) (v1.VIF, bool) { return described(n, id) }); is && known {
		for _, a := range vif.Addresses {
			s.suspects[a.SubnetID] = true
		}
	}
	return false
}

// differs compares what a port has of its subnets with what these say now. It returns false, false
// if that is not known of each.
func differs(vif *v1.VIF, of func(id string) (v1.VIF, bool)) (is, known bool) {
	var mtu int32
	var routes []v1.Route
	seen := map[string]bool{}
	for _, a := range vif.Addresses {
		now, known := of(a.SubnetID)
		if !known {
			return false, false
		}
		address := now.Addresses[0]
		if address.IP = a.IP; address != a {
			return true, true
		}
		if mtu = now.MTU; !seen[a.SubnetID] {
			routes = append(routes, now.Routes...)
		}
		seen[a.SubnetID] = true
	}
	routes = routes[:min(len(routes), v1.MaxRoutes)]
	return mtu != vif.MTU || !slices.Equal(inOrder(routes), inOrder(vif.Routes)), true
}

// described returns what a KuryrNetwork says of a subnet that Kuryr has made.
func described(n *v1.KuryrNetwork, id string) (vif v1.VIF, known bool) {
	i := slices.IndexFunc(n.Status.Subnets, func(s v1.NetworkSubnetStatus) bool { return s.ID == id })
	if i < 0 || n.Status.MTU == 0 || len(n.Spec.SubnetIDs) > 0 {
		return v1.VIF{}, false
	}
	s := &n.Status.Subnets[i]
	prefix, err := netip.ParsePrefix(s.CIDR)
	if err != nil {
		return v1.VIF{}, false
	}
	vif = v1.VIF{MTU: n.Status.MTU, Addresses: []v1.Address{{SubnetID: id, PrefixLength: int32(prefix.Bits()), Gateway: s.Gateway}}}
	for _, r := range n.Spec.Routes {
		if to, err := netip.ParsePrefix(r.Destination); err == nil && to.Addr().Is4() == prefix.Addr().Is4() {
			vif.Routes = append(vif.Routes, r)
		}
	}
	return vif, true
}

// elsewhere reports whether a port has an address of a subnet from which new ports of the pool
// get none: the subnet was removed from a list in pods.subnetIDs.
func (v *view) elsewhere(vif *v1.VIF) bool {
	return slices.ContainsFunc(vif.Addresses, func(a v1.Address) bool {
		return a.SubnetID != "" && !slices.ContainsFunc(v.key.SubnetIDs, func(id string) bool {
			return id == a.SubnetID || slices.Contains(v.more[id], a.SubnetID)
		})
	})
}

// inOrder sorts routes: their order does not matter.
func inOrder(routes []v1.Route) []v1.Route {
	out := slices.Clone(routes)
	slices.SortFunc(out, func(a, b v1.Route) int {
		return cmp.Or(cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Gateway, b.Gateway))
	})
	return out
}
