// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

func (f networks) routerSpec(snat *bool) sdn.RouterSpec {
	return sdn.RouterSpec{Name: f.name(), ProjectID: f.ProjectID, Gateway: sdn.Gateway{NetworkID: f.ExternalID, SNAT: snat}}
}

// router makes a router that goes at the end of the test.
func (f networks) router(snat *bool) sdn.OwnRouter {
	f.t.Helper()
	r, err := f.Backend.CreateRouter(f.ctx(), f.owner, f.routerSpec(snat))
	f.must("CreateRouter", err)
	f.routerGoes(r.ID)
	return r
}

func (f networks) routerGoes(id string) {
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), callTimeout)
		defer cancel()
		if err := f.Backend.DeleteRouter(ctx, id); err != nil {
			f.t.Errorf("removing router %s after the test: %v", id, err)
		}
	})
}

// isRouter checks that a router is the case's own, with this gateway and these routes, and an address
// in the external network.
func (f networks) isRouter(what string, r sdn.OwnRouter, snat bool, routes ...v1.Route) {
	f.t.Helper()
	want := sdn.OwnRouter{
		ID: r.ID, Name: f.name(), Owner: f.owner, ProjectID: f.ProjectID, Gateway: sdn.Gateway{NetworkID: f.ExternalID, SNAT: &snat}, Addresses: r.Addresses, Routes: routes,
	}
	if diff := cmp.Diff(want, r, byValue); diff != "" || r.ID == "" {
		f.t.Errorf("%s: (-want +got)\n%s", what, diff)
	}
	if len(r.Addresses) != 1 || !f.External.Contains(r.Addresses[0]) {
		f.t.Errorf("%s: the addresses are %v, want one in %s", what, r.Addresses, f.External)
	}
}

// listedRouters are the IDs of this case's routers that b lists.
func (f networks) listedRouters(b Networks) (ids []string) {
	f.t.Helper()
	all, err := b.ListRouters(f.ctx())
	f.must("ListRouters", err)
	for _, r := range all {
		if r.Owner == f.owner {
			ids = append(ids, r.ID)
			if r.Name != f.name() || r.ProjectID != f.ProjectID || r.Created.IsZero() || time.Since(r.Created).Abs() > time.Hour {
				f.t.Errorf("ListRouters shows %+v", r)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

func routerIsComplete(t *testing.T, f networks) {
	var want []string
	for what, snat := range map[string]*bool{"as the cloud chooses": nil, "with SNAT": new(true), "without SNAT": new(false)} {
		r := f.router(snat)
		f.isRouter("CreateRouter "+what, r, snat == nil || *snat)
		seen, err := f.Fresh(t).Router(f.ctx(), r.ID)
		f.must("Router", err)
		f.isRouter("Router "+what, seen, snat == nil || *snat)
		if got, err := f.Backend.RouterAddresses(f.ctx(), r.ID); err != nil || !slices.Equal(got, r.Addresses) {
			t.Errorf("RouterAddresses = %v, %v; want %v", got, err, r.Addresses)
		}
		want = append(want, r.ID)
	}
	slices.Sort(want)
	for _, b := range []Networks{f.Backend, f.Fresh(t)} {
		if got := f.listedRouters(b); !slices.Equal(got, want) {
			t.Errorf("ListRouters shows %v of the owner, want %v", got, want)
		}
	}
	f.must("DeleteRouter", f.Fresh(t).DeleteRouter(f.ctx(), want[0]))
	f.must("DeleteRouter again", f.Backend.DeleteRouter(f.ctx(), want[0]))
	if f.Cloud.HasRouter(t, want[0]) {
		t.Error("the router is still there")
	}
	f.wants("Router of one that is deleted", second(f.Backend.Router(f.ctx(), want[0])), sdn.ErrNotFound, "")
}

func routerIsUpdated(_ *testing.T, f networks) {
	r := f.router(new(true))
	next := f.External.Addr().Next() // the subnet's gateway
	routes := []v1.Route{{Destination: "10.96.0.0/16", Gateway: next.String()}, {Destination: "10.97.0.0/16", Gateway: next.Next().Next().String()}}
	update := func(what string, b Networks, u sdn.RouterUpdate, snat bool, routes ...v1.Route) {
		f.t.Helper()
		got, err := b.UpdateRouter(f.ctx(), r.ID, u)
		f.must(what, err)
		seen, err := f.Backend.Router(f.ctx(), r.ID)
		f.must("Router", err)
		for _, is := range []*sdn.OwnRouter{&got, &seen} {
			slices.SortFunc(is.Routes, func(a, b v1.Route) int { return slices.Compare([]byte(a.Destination), []byte(b.Destination)) })
			f.isRouter(what, *is, snat, routes...)
		}
	}
	update("UpdateRouter to no SNAT", f.Backend, sdn.RouterUpdate{Gateway: &sdn.Gateway{NetworkID: f.ExternalID, SNAT: new(false)}}, false)
	update("UpdateRouter with routes", f.Fresh(f.t), sdn.RouterUpdate{Routes: &routes}, false, routes...)
	one := routes[:1]
	update("UpdateRouter with both", f.Backend, sdn.RouterUpdate{Gateway: &sdn.Gateway{NetworkID: f.ExternalID, SNAT: new(true)}, Routes: &one}, true, one...)
	update("UpdateRouter with nothing", f.Backend, sdn.RouterUpdate{}, true, one...)
	bad := []v1.Route{{Destination: "10.98.0.0/16", Gateway: "192.0.2.77"}}
	_, err := f.Backend.UpdateRouter(f.ctx(), r.ID, sdn.RouterUpdate{Routes: &bad})
	f.wants("UpdateRouter with a gateway that is no neighbour", err, sdn.ErrInvalid, sdn.FieldRouterRoutes)
	none := []v1.Route{}
	update("UpdateRouter without routes", f.Backend, sdn.RouterUpdate{Routes: &none}, true)
	update("UpdateRouter before its end", f.Backend, sdn.RouterUpdate{Routes: &one}, true, one...) // routes do not keep it
}

// routerKeepsWhatServes: after a change of its gateway that is refused, a router has the gateway and
// the routes of before, or those that were wanted if it had none.
func routerKeepsWhatServes(t *testing.T, f networks) {
	r := f.router(nil)
	fullID, full := f.Cloud.MakeFullNetwork(t)
	next, beyond := f.External.Addr().Next().String(), full.Addr().Next().String()
	routes := []v1.Route{{Destination: "10.96.0.0/16", Gateway: next}}
	f.must("UpdateRouter with routes", second(f.Backend.UpdateRouter(f.ctx(), r.ID, sdn.RouterUpdate{Routes: &routes})))
	refused := func(what string, networkID string, wanted []v1.Route, want error, field sdn.Field) {
		f.t.Helper()
		got, err := f.Backend.UpdateRouter(f.ctx(), r.ID, sdn.RouterUpdate{Gateway: &sdn.Gateway{NetworkID: networkID}, Routes: &wanted})
		f.wants("UpdateRouter to "+what, err, want, field)
		seen, err := f.Backend.Router(f.ctx(), r.ID)
		f.must("Router", err)
		f.isRouter("UpdateRouter to "+what+" returns", got, true, routes...)
		f.isRouter("after UpdateRouter to "+what, seen, true, routes...)
	}
	refused("a gateway in a missing network", MissingID, routes, sdn.ErrInvalid, sdn.FieldExternalNetwork)
	refused("a gateway in a network that is not external", f.network().ID, routes, sdn.ErrInvalid, sdn.FieldExternalNetwork)
	refused("a gateway without a way to the next hops", fullID, routes, sdn.ErrInvalid, sdn.FieldRouterRoutes)
	refused("a gateway in a full network", fullID, []v1.Route{{Destination: "10.96.0.0/16", Gateway: beyond}}, sdn.ErrExternalAddresses, "")
	refused("a gateway in a full network, without routes", fullID, nil, sdn.ErrExternalAddresses, "")
	wrong := []v1.Route{{Destination: "10.96.0.0/16", Gateway: "192.0.2.77"}}
	refused("the same gateway, with a next hop elsewhere", f.ExternalID, wrong, sdn.ErrInvalid, sdn.FieldRouterRoutes)
	// What an interrupted change has removed comes back, although the change is still refused.
	f.must("UpdateRouter without routes", second(f.Backend.UpdateRouter(f.ctx(), r.ID, sdn.RouterUpdate{Routes: &[]v1.Route{}})))
	refused("a gateway in a missing network, after an interruption", MissingID, routes, sdn.ErrInvalid, sdn.FieldExternalNetwork)
}

// routerInUse: a router with an interface stays.
func routerInUse(t *testing.T, f networks) {
	r, n := f.router(nil), f.network()
	s := f.subnet(f.spec(n, "10.250.0.0/24"))
	f.must("AddRouterInterface", f.Backend.AddRouterInterface(f.ctx(), r.ID, s.ID))
	if got := f.seen(n.ID).Subnets; len(got) != 1 || !slices.Equal(got[0].RouterIDs, []string{r.ID}) {
		t.Errorf("the network has %+v, want one subnet with router %s", got, r.ID)
	}
	f.wants("DeleteRouter with an interface", f.Backend.DeleteRouter(f.ctx(), r.ID), sdn.ErrConflict, "")
	f.must("RemoveRouterInterface", f.Backend.RemoveRouterInterface(f.ctx(), r.ID, s.ID))
	f.must("DeleteRouter", f.Backend.DeleteRouter(f.ctx(), r.ID))
}

func routerOfMissing(_ *testing.T, f networks) {
	f.wants("Router", second(f.Backend.Router(f.ctx(), MissingID)), sdn.ErrNotFound, "")
	f.wants("UpdateRouter", second(f.Backend.UpdateRouter(f.ctx(), MissingID, sdn.RouterUpdate{})), sdn.ErrNotFound, "")
	f.must("DeleteRouter", f.Backend.DeleteRouter(f.ctx(), MissingID))
	for what, id := range map[string]string{"a missing network": MissingID, "a network that is not external": f.network().ID} {
		spec := f.routerSpec(nil)
		spec.Gateway.NetworkID = id
		_, err := f.Backend.CreateRouter(f.ctx(), f.owner, spec)
		f.wants("CreateRouter with a gateway in "+what, err, sdn.ErrInvalid, sdn.FieldExternalNetwork)
	}
	if got := f.listedRouters(f.Backend); len(got) != 0 {
		f.t.Errorf("ListRouters shows %v, want none", got)
	}
	r := f.router(nil)
	_, err := f.Backend.UpdateRouter(f.ctx(), r.ID, sdn.RouterUpdate{Gateway: &sdn.Gateway{NetworkID: MissingID}})
	f.wants("UpdateRouter with a gateway in a missing network", err, sdn.ErrInvalid, sdn.FieldExternalNetwork)
}

// otherRouters: neither the router of another cluster nor one without a mark is within reach.
func otherRouters(t *testing.T, f networks) {
	r := f.router(new(true))
	for b, id := range map[Networks]string{f.Other: r.ID, f.Backend: f.RouterID} {
		f.wants("Router", second(b.Router(f.ctx(), id)), sdn.ErrNotFound, "")
		_, err := b.UpdateRouter(f.ctx(), id, sdn.RouterUpdate{Gateway: &sdn.Gateway{NetworkID: f.ExternalID, SNAT: new(false)}})
		f.wants("UpdateRouter", err, sdn.ErrNotFound, "")
		f.must("DeleteRouter", b.DeleteRouter(f.ctx(), id))
		all, err := b.ListRouters(f.ctx())
		f.must("ListRouters", err)
		if slices.ContainsFunc(all, func(s sdn.RouterSummary) bool { return s.ID == id }) || !f.Cloud.HasRouter(t, id) {
			t.Errorf("router %s is listed, or gone", id)
		}
	}
	seen, err := f.Backend.Router(f.ctx(), r.ID)
	f.must("Router", err)
	f.isRouter("the router after all", seen, true)
}

func routerQuota(t *testing.T, f networks) {
	f.Cloud.LimitRouters(t, 1)
	r := f.router(nil)
	_, err := f.Backend.CreateRouter(f.ctx(), f.owner, f.routerSpec(nil))
	f.wants("CreateRouter over quota", err, sdn.ErrProjectQuota, "")
	if got := f.listedRouters(f.Backend); !slices.Equal(got, []string{r.ID}) {
		t.Errorf("ListRouters shows %v, want %s", got, r.ID)
	}
}

func routerAnswerIsLost(t *testing.T, f networks) {
	if !f.Cloud.LoseAnswer(t) {
		t.Skip("SKIPPED: this cloud loses no answers")
	}
	_, err := f.Backend.CreateRouter(f.ctx(), f.owner, f.routerSpec(nil))
	f.wants("CreateRouter whose answer is lost", err, sdn.ErrUnavailable, "")
	ids := f.listedRouters(f.Backend)
	if len(ids) != 1 {
		t.Fatalf("ListRouters shows %v of the owner, want the one router", ids)
	}
	f.routerGoes(ids[0])
}

func routersCancelled(t *testing.T, f networks) {
	r := f.router(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for call, err := range map[string]error{
		"CreateRouter": second(f.Backend.CreateRouter(ctx, f.owner, f.routerSpec(nil))),
		"Router":       second(f.Backend.Router(ctx, r.ID)),
		"ListRouters":  second(f.Backend.ListRouters(ctx)),
		"UpdateRouter": second(f.Backend.UpdateRouter(ctx, r.ID, sdn.RouterUpdate{})),
		"DeleteRouter": f.Backend.DeleteRouter(ctx, r.ID),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v, want context.Canceled", call, err)
		}
	}
	if !f.Cloud.HasRouter(t, r.ID) {
		t.Error("the router is gone")
	}
}
