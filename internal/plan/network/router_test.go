// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var vips = []v1.Route{{Destination: "10.96.0.0/16", Gateway: "192.0.2.3"}}

// routed is the spec of a flat network with a router of its own.
func routed() *v1.KuryrNetworkSpec {
	spec := dual()
	spec.RouterID, spec.Router = "", &v1.NetworkRouter{ExternalNetworkID: "public", SNAT: new(false), Routes: vips}
	return spec
}

// ownRouter is the router of routed, complete.
func ownRouter() sdn.OwnRouter {
	return sdn.OwnRouter{
		ID: "own", Name: "u1/shop", ProjectID: "p", Gateway: sdn.Gateway{NetworkID: "public", SNAT: new(false)},
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.9")}, Routes: vips,
	}
}

func TestMissingRouter(t *testing.T) {
	gateway := sdn.Gateway{NetworkID: "public", SNAT: new(false)}
	for name, c := range map[string]struct {
		spec func(*v1.NetworkRouter)
		is   func(*sdn.OwnRouter)
		want network.RouterWork
	}{
		"nothing":            {},
		"the router":         {is: func(r *sdn.OwnRouter) { *r = sdn.OwnRouter{} }, want: network.RouterWork{Create: &sdn.RouterSpec{Name: "u1/shop", ProjectID: "p", Gateway: gateway}}},
		"SNAT":               {is: func(r *sdn.OwnRouter) { r.Gateway.SNAT = new(true) }, want: network.RouterWork{Update: &sdn.RouterUpdate{Gateway: &gateway}}},
		"SNAT not asked":     {spec: func(r *v1.NetworkRouter) { r.SNAT = nil }, is: func(r *sdn.OwnRouter) { r.Gateway.SNAT = new(true) }},
		"routes":             {is: func(r *sdn.OwnRouter) { r.Routes = nil }, want: network.RouterWork{Update: &sdn.RouterUpdate{Routes: &vips}}},
		"no routes any more": {spec: func(r *v1.NetworkRouter) { r.Routes = nil }, want: network.RouterWork{Update: &sdn.RouterUpdate{Routes: new([]v1.Route(nil))}}},
		"the gateway": {is: func(r *sdn.OwnRouter) { r.Gateway, r.Addresses, r.Routes = sdn.Gateway{}, nil, nil },
			want: network.RouterWork{Update: &sdn.RouterUpdate{Gateway: &gateway, Routes: &vips}}},
		"another external network": {is: func(r *sdn.OwnRouter) { r.Gateway.NetworkID = "former" },
			want: network.RouterWork{Update: &sdn.RouterUpdate{Gateway: &gateway, Routes: &vips}}},
	} {
		spec, is := routed(), ownRouter()
		if c.spec != nil {
			c.spec(spec.Router)
		}
		if c.is != nil {
			c.is(&is)
		}
		if diff := cmp.Diff(c.want, network.MissingRouter("shop", spec, is), comparePrefixes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := network.MissingRouter("shop", dual(), sdn.OwnRouter{}); got != (network.RouterWork{}) {
		t.Errorf("with a router that is there: %+v, want none to make", got)
	}
}

// A router of its own is in the status before it has an interface: it is found again by its ID.
func TestStatusWithARouterOfItsOwn(t *testing.T) {
	is := made()
	outside := []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("fd00:ff::9")}
	got := network.Status(routed(), is, network.Router{ID: "own", Outside: outside})
	if got.RouterID != "own" || !cmp.Equal(got.RouterAddresses, []string{"192.0.2.9", "fd00:ff::9"}) || len(got.NodeRoutes) != 0 || network.Complete(routed(), &got) {
		t.Errorf("without interfaces: %+v; want the router, no routes of nodes, and not complete", got)
	}
	for i := range is.Subnets {
		is.Subnets[i].RouterIDs = []string{"own"}
	}
	got = network.Status(routed(), is, network.Router{ID: "own", Outside: outside})
	want := []v1.Route{{Destination: "10.0.0.0/16", Gateway: "192.0.2.9"}, {Destination: "fd00::/64", Gateway: "fd00:ff::9"}}
	if diff := cmp.Diff(want, got.NodeRoutes); diff != "" || !network.Complete(routed(), &got) {
		t.Errorf("with interfaces: %+v, routes of nodes (-want +got):\n%s", got, diff)
	}
	if work := network.Missing("shop", routed(), made(), ""); len(work.RouterInterfaces) != 0 {
		t.Errorf("without the router there are interfaces to make: %+v", work)
	}
	if work := network.Missing("shop", routed(), made(), "own"); len(work.RouterInterfaces) != 2 {
		t.Errorf("with the router: %+v, want an interface in each of two subnets", work)
	}
}

// Gateway, SNAT and routes of a router change while pods have ports; another router is another
// network.
func TestPlansWithARouterOfItsOwn(t *testing.T) {
	in := flat()
	in.Choice.RouterID, in.Choice.Router = "", routed().Router
	plan := network.Next(in)
	if plan.Reason != "" || plan.Spec == nil || plan.Spec.RouterID != "" || !cmp.Equal(plan.Spec.Router, routed().Router) {
		t.Fatalf("a new network: %+v", plan)
	}
	in.Current, in.InUse = plan.Spec, true
	in.Choice.Router = &v1.NetworkRouter{ExternalNetworkID: "another", SNAT: new(true)}
	if got := network.Next(in); got.Reason != "" || !cmp.Equal(got.Spec.Router, in.Choice.Router) {
		t.Errorf("another gateway: %+v, want it changed in place", got)
	}
	in.Choice.Router, in.Choice.RouterID = nil, "r"
	if got := network.Next(in); got.Reason != v1.ReasonWaitsForPods || !strings.Contains(got.Why, "router: want r, have one that Kuryr makes") {
		t.Errorf("a router that is there, with pods: %+v", got)
	}
	in.InUse = false
	if got := network.Next(in); !got.Delete {
		t.Errorf("a router that is there, without pods: %+v, want another network", got)
	}
	in.Choice.Mode, in.Choice.Router, in.Choice.RouterID, in.Current = v1.NetworkGiven, routed().Router, "", nil
	if got := network.Next(in); got.Spec == nil || got.Spec.Router != nil {
		t.Errorf("a given network: %+v, want no router to make", got)
	}
}
