// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

const outsideNet, otherOutside = "5f1c5aac-0000-4000-8000-0000000000f1", "5f1c5aac-0000-4000-8000-0000000000f2"

var toVIPs = []config.Route{{Destination: "10.96.0.0/16", Gateway: "198.51.100.3"}}

// newRouterBed is a netBed in mode flat whose namespaces have routers of their own.
func newRouterBed(t *testing.T, change ...func(*settings.Settings)) *netBed {
	t.Helper()
	b := newNetBed(t, "flat", append([]func(*settings.Settings){func(s *settings.Settings) {
		s.Networks.RouterID, s.Networks.Router = "", &config.Router{ExternalNetworkID: outsideNet, SNAT: new(false), Routes: toVIPs}
	}}, change...)...)
	b.cloud.AddSubnet(memory.Subnet{ID: "outside", NetworkID: outsideNet, Prefix: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("198.51.100.1"), External: true})
	b.cloud.AddSubnet(memory.Subnet{ID: "other", NetworkID: otherOutside, Prefix: netip.MustParsePrefix("203.0.113.0/24"), Gateway: netip.MustParseAddr("203.0.113.1"), External: true})
	return b
}

// onlyRouter returns the only router that Kuryr has made, and the number of its interfaces.
func (b *netBed) onlyRouter() (sdn.OwnRouter, int) {
	if all := b.cloud.Routers(); len(all) == 1 && all[0].Cluster == "cluster" {
		return all[0].Router, all[0].RouterInterfaces
	}
	return sdn.OwnRouter{}, 0
}

// nothingLeft reports whether Kuryr has neither a KuryrNetwork of the namespace nor anything for one
// in the cloud.
func (b *netBed) nothingLeft() bool {
	return b.kn(b.namespace) == nil && len(b.owned()) == 0 && len(b.cloud.Routers()) == 0
}

// The first pod of a namespace brings a router with its network, with few calls. Its status has the
// router's addresses and the routes of nodes by them. With the namespace all of it goes.
func TestARouterOfANamespace(t *testing.T) {
	b := newRouterBed(t, func(s *settings.Settings) { s.Orphans.Interval.Duration = time.Hour })
	b.start()
	b.makeNamespace(b.namespace, nil)
	pod := b.waiting(b.namespace, "first")
	kn := b.ready(b.namespace)
	r, ifaces := b.onlyRouter()
	want := sdn.OwnRouter{
		ID: kn.Status.RouterID, Name: kn.Spec.NamespaceUID + "/" + b.namespace, Owner: sdn.Owner{Kind: sdn.KindNetwork, Namespace: b.namespace, Name: b.namespace},
		Gateway: sdn.Gateway{NetworkID: outsideNet, SNAT: new(false)}, Addresses: r.Addresses, Routes: []v1.Route{{Destination: "10.96.0.0/16", Gateway: "198.51.100.3"}},
	}
	if diff := cmp.Diff(want, r, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || ifaces != 1 || len(r.Addresses) != 1 {
		t.Fatalf("the router has %d interfaces (-want +got):\n%s", ifaces, diff)
	}
	outside := r.Addresses[0].String()
	if !slices.Equal(kn.Status.RouterAddresses, []string{outside}) ||
		!slices.Equal(kn.Status.NodeRoutes, []v1.Route{{Destination: kn.Status.Subnets[0].CIDR, Gateway: outside}}) {
		t.Errorf("status %+v; want routes of nodes by %s", kn.Status, outside)
	}
	for call, want := range map[string]int{
		memory.CreateNetwork: 1, memory.CreateSubnet: 1, memory.CreateRouter: 1, memory.UpdateRouter: 1, memory.AddRouterInterface: 1,
		memory.GetRouter: 0, memory.ListRouters: 0, memory.GetRouterAddresses: 0,
	} {
		if got := b.cloud.Calls(call); got != want {
			t.Errorf("%d calls of %s, want %d", got, call, want)
		}
	}
	b.delete(pod)
	b.deleteNetworkOf(b.namespace)
	b.eventually("nothing is left", b.nothingLeft)
}

// Without a router of a namespace's own the cloud is asked for no routers.
func TestNoRoutersAreAskedFor(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.waiting(b.namespace, "first")
	b.ready(b.namespace)
	looked := b.cloud.Calls(memory.ListNetworks)
	b.eventuallyIn(15*time.Second, "the collector looks again", func() bool { return b.cloud.Calls(memory.ListNetworks) > looked })
	for _, call := range []string{memory.ListRouters, memory.GetRouter, memory.CreateRouter} {
		if n := b.cloud.Calls(call); n != 0 {
			t.Errorf("%d calls of %s, want none", n, call)
		}
	}
}

// Gateway, SNAT and routes follow the configuration while pods wait for ports in the network; what
// another user changes is repaired, and an emptied status is filled again.
func TestARouterThatChanges(t *testing.T) {
	b := newRouterBed(t)
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.waiting(b.namespace, "first")
	kn := b.ready(b.namespace)
	b.set(func(s *settings.Settings) {
		s.Networks.Router = &config.Router{ExternalNetworkID: otherOutside, SNAT: new(true)}
	})
	b.eventually("the router has another gateway", func() bool {
		r, ifaces := b.onlyRouter()
		now := b.kn(b.namespace)
		return r.ID == kn.Status.RouterID && r.Gateway.NetworkID == otherOutside && *r.Gateway.SNAT && len(r.Routes) == 0 && ifaces == 1 &&
			len(now.Status.NodeRoutes) == 1 && now.Status.NodeRoutes[0].Gateway == r.Addresses[0].String()
	})
	b.ready(b.namespace)
	b.cloud.EditRouter(kn.Status.RouterID, func(r *sdn.OwnRouter) {
		r.Gateway.SNAT, r.Routes = new(false), []v1.Route{{Destination: "10.0.0.0/8", Gateway: "203.0.113.9"}}
	})
	made := b.cloud.Calls(memory.CreateRouter)
	if err := b.client.Status().Patch(t.Context(), kn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
		t.Fatal(err)
	}
	b.eventually("the router is found and repaired", func() bool {
		r, _ := b.onlyRouter()
		now := b.kn(b.namespace)
		return r.ID == now.Status.RouterID && r.Gateway.SNAT != nil && *r.Gateway.SNAT && len(r.Routes) == 0 && now.Status.NetworkID == kn.Status.NetworkID &&
			b.reason(b.namespace, v1.ConditionReady) == v1.ReasonReady
	})
	if n := b.cloud.Calls(memory.CreateRouter); n != made {
		t.Errorf("%d routers were made, want %d", n, made)
	}
}

// A namespace without a router says why, and what to do.
func TestARouterThatTheCloudRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		refuse       func(*netBed)
		allow        func(*netBed)
		reason, word string
	}{
		"the quota is used up": {
			func(b *netBed) { b.cloud.SetRouterQuota(0) }, func(b *netBed) { b.cloud.SetRouterQuota(-1) }, v1.ReasonOverQuota, "routers",
		},
		"the credential may not set SNAT": {
			func(b *netBed) { b.cloud.ForbidSNAT(true) }, func(b *netBed) {
				b.set(func(s *settings.Settings) { s.Networks.Router = &config.Router{ExternalNetworkID: outsideNet} })
			},
			v1.ReasonForbidden, "Leave out router.snat",
		},
		"the external network is full": {
			func(b *netBed) { b.fail(memory.CreateRouter, sdn.ErrExternalAddresses) }, func(b *netBed) { b.fail("", nil) }, v1.ReasonExternalNetworkFull, "router.externalNetworkID",
		},
		"the network is not external": {
			func(b *netBed) {
				b.set(func(s *settings.Settings) { s.Networks.Router = &config.Router{ExternalNetworkID: network} })
			},
			func(b *netBed) {
				b.set(func(s *settings.Settings) { s.Networks.Router = &config.Router{ExternalNetworkID: outsideNet} })
			},
			v1.ReasonRejected, "router.externalNetworkID",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wording(t)
			b := newRouterBed(t)
			c.refuse(b)
			b.start()
			b.makeNamespace(b.namespace, nil)
			b.waiting(b.namespace, "first")
			b.eventually("the KuryrNetwork says why it waits", func() bool { return b.says(b.namespace, v1.ConditionReady, c.reason, c.word) })
			if len(b.owned()) != 1 || len(b.cloud.Routers()) != 0 {
				t.Errorf("the cloud has networks %+v and routers %+v, want the network alone", b.owned(), b.cloud.Routers())
			}
			c.allow(b)
			b.eventuallyIn(15*time.Second, "the network is ready", func() bool {
				kn := b.kn(b.namespace)
				return kn != nil && b.reason(b.namespace, v1.ConditionReady) == v1.ReasonReady && kn.Status.RouterID != ""
			})
		})
	}
}

// A router that no KuryrNetwork names is deleted after the grace period, unless it has an interface.
// Those of others stay.
func TestRoutersThatAreLeftOver(t *testing.T) {
	b := newRouterBed(t)
	owner, gateway := sdn.Owner{Kind: sdn.KindNetwork, Namespace: "gone", Name: "gone"}, sdn.Gateway{NetworkID: outsideNet}
	for _, cluster := range []string{"cluster", "other"} {
		if _, err := b.cloud.Backend(cluster).CreateRouter(t.Context(), owner, sdn.RouterSpec{Name: "u/gone", Gateway: gateway}); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
	b.eventuallyIn(15*time.Second, "the router is deleted", func() bool {
		all := b.cloud.Routers()
		return len(all) == 1 && all[0].Cluster == "other"
	})
	if !b.cloud.HasRouter(netRouter) {
		t.Error("a router of somebody else was deleted")
	}
}

// A controller that is stopped before or after each of its writes about a router leaves nothing, and
// makes nothing twice.
func TestRoutersWhileTheControllerIsStopped(t *testing.T) {
	for _, call := range []string{memory.CreateRouter, memory.UpdateRouter, memory.AddRouterInterface, memory.DeleteNetwork, memory.DeleteRouter} {
		for when, after := range map[string]bool{"before": false, "after": true} {
			t.Run(when+" "+call, func(t *testing.T) {
				b := newRouterBed(t)
				restart := b.stopsAt(call, after)
				leaving := call == memory.DeleteNetwork || call == memory.DeleteRouter
				b.start()
				b.makeNamespace(b.namespace, nil)
				pod := b.waiting(b.namespace, "first")
				if !leaving {
					restart()
				}
				kn := b.ready(b.namespace)
				if r, ifaces := b.onlyRouter(); r.ID != kn.Status.RouterID || ifaces != 1 || len(r.Routes) != 1 || len(b.owned()) != 1 {
					t.Errorf("the cloud has routers %+v and networks %+v; want router %s with an interface", b.cloud.Routers(), b.owned(), kn.Status.RouterID)
				}
				b.delete(pod)
				b.deleteNetworkOf(b.namespace)
				if leaving {
					restart()
				}
				b.eventually("nothing is left", b.nothingLeft)
			})
		}
	}
}

// A change of the gateway that the cloud refuses takes nothing away: the router keeps its gateway and
// the routes to the cluster IPs, and condition Progressing says why. It is not tried all the time.
func TestAGatewayThatIsRefused(t *testing.T) {
	const full = "5f1c5aac-0000-4000-8000-0000000000f3"
	for name, c := range map[string]struct {
		router config.Router
		reason string
	}{
		"a missing network":                   {config.Router{ExternalNetworkID: "5f1c5aac-0000-4000-8000-00000000dead", Routes: toVIPs}, v1.ReasonRejected},
		"next hops in the former network":     {config.Router{ExternalNetworkID: otherOutside, Routes: toVIPs}, v1.ReasonRejected},
		"a full network with next hops there": {config.Router{ExternalNetworkID: full, Routes: []config.Route{{Destination: "10.96.0.0/16", Gateway: "192.0.2.1"}}}, v1.ReasonExternalNetworkFull},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRouterBed(t)
			b.cloud.AddSubnet(memory.Subnet{ID: "full", NetworkID: full, Prefix: netip.MustParsePrefix("192.0.2.0/31"), External: true})
			b.start()
			b.makeNamespace(b.namespace, nil)
			b.waiting(b.namespace, "first")
			b.ready(b.namespace)
			before, _ := b.onlyRouter()
			b.set(func(s *settings.Settings) { s.Networks.Router = &c.router })
			b.eventually("condition Progressing says why", func() bool { return b.reason(b.namespace, v1.ConditionProgressing) == c.reason })
			tries := b.cloud.Calls(memory.UpdateRouter)
			for range 3 {
				b.delete(b.waiting(b.namespace, "next")) // something happens in the namespace
			}
			is, ifaces := b.onlyRouter()
			if diff := cmp.Diff(before.Routes, is.Routes); diff != "" || is.Gateway.NetworkID != outsideNet || ifaces != 1 {
				t.Errorf("after the refusal the router has gateway %+v and %d interfaces, routes (-want +got):\n%s", is.Gateway, ifaces, diff)
			}
			if now := b.cloud.Calls(memory.UpdateRouter); now != tries || b.reason(b.namespace, v1.ConditionReady) != v1.ReasonReady {
				t.Errorf("%d more calls of UpdateRouter, and Ready is %s; want none, and %s", now-tries, b.reason(b.namespace, v1.ConditionReady), v1.ReasonReady)
			}
			b.set(func(s *settings.Settings) {
				s.Networks.Router = &config.Router{ExternalNetworkID: otherOutside}
			})
			b.eventually("another change is made at once", func() bool {
				r, _ := b.onlyRouter()
				return r.Gateway.NetworkID == otherOutside && len(r.Routes) == 0
			})
		})
	}
}

// A controller that is stopped within a change of gateway and routes is followed by one that ends the
// change.
func TestAGatewayChangeThatIsInterrupted(t *testing.T) {
	for step := 1; step <= 4; step++ { // gateway (refused), no routes, gateway, routes
		t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
			b := newRouterBed(t)
			b.start()
			b.makeNamespace(b.namespace, nil)
			b.waiting(b.namespace, "first")
			b.ready(b.namespace)
			restart := b.stopsAtThe(b.cloud.Calls(memory.UpdateRouter)+step, memory.UpdateRouter, true)
			b.set(func(s *settings.Settings) {
				s.Networks.Router = &config.Router{ExternalNetworkID: otherOutside, Routes: []config.Route{{Destination: "10.96.0.0/16", Gateway: "203.0.113.3"}}}
			})
			restart()
			b.eventually("gateway and routes are the new ones", func() bool {
				r, ifaces := b.onlyRouter()
				return r.Gateway.NetworkID == otherOutside && ifaces == 1 && cmp.Equal(r.Routes, []v1.Route{{Destination: "10.96.0.0/16", Gateway: "203.0.113.3"}})
			})
			b.ready(b.namespace)
		})
	}
}

// Routes that cannot come back, because the controller was stopped in the middle of a change that is
// refused, are named in the condition.
func TestRoutesThatAreLost(t *testing.T) {
	b := newRouterBed(t)
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.waiting(b.namespace, "first")
	kn := b.ready(b.namespace)
	b.stop()
	b.cloud.EditRouter(kn.Status.RouterID, func(r *sdn.OwnRouter) { r.Routes = nil })
	const full = "5f1c5aac-0000-4000-8000-0000000000f3"
	b.cloud.AddSubnet(memory.Subnet{ID: "full", NetworkID: full, Prefix: netip.MustParsePrefix("192.0.2.0/31"), External: true})
	b.set(func(s *settings.Settings) {
		s.Networks.Router = &config.Router{ExternalNetworkID: full, Routes: []config.Route{{Destination: "10.96.0.0/16", Gateway: "192.0.2.1"}}}
	})
	b.start()
	b.eventually("condition Progressing names what is lost", func() bool {
		return b.says(b.namespace, v1.ConditionProgressing, v1.ReasonExternalNetworkFull, "has lost its gateway or its routes")
	})
	if r, _ := b.onlyRouter(); r.Gateway.NetworkID != outsideNet {
		t.Errorf("the router has gateway %+v, want that in network %s back", r.Gateway, outsideNet)
	}
}

// A router that a namespace shares with others, in place of its own, waits until the namespace has no
// pods. Then another network has it, and the router of its own is gone.
func TestARouterOfItsOwnThatIsGivenUp(t *testing.T) {
	b := newRouterBed(t)
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.waiting(b.namespace, "first")
	b.ready(b.namespace)
	b.set(func(s *settings.Settings) { s.Networks.RouterID, s.Networks.Router = netRouter, nil })
	b.eventually("the change waits", func() bool { return b.reason(b.namespace, v1.ConditionPlanned) == v1.ReasonWaitsForPods })
	first := &corev1.Pod{}
	first.Namespace, first.Name = b.namespace, "first"
	b.delete(first)
	b.eventually("network and router are deleted", b.nothingLeft)
	b.waiting(b.namespace, "second")
	if next := b.ready(b.namespace); next.Spec.Router != nil || next.Status.RouterID != netRouter || len(next.Status.RouterAddresses) != 0 {
		t.Errorf("the next KuryrNetwork is %+v, %+v", next.Spec, next.Status)
	}
}

// Whatever router a status names, the deletion of a KuryrNetwork deletes the router with its mark,
// and no other. The collector does not run meanwhile.
func TestARouterThatTheStatusDoesNotName(t *testing.T) {
	for name, named := range map[string]string{
		"one that does not exist": "5f1c5aac-0000-4000-8000-0000000000ff", "that of somebody else": netRouter, "none": "",
	} {
		t.Run(name, func(t *testing.T) {
			b := newRouterBed(t, func(s *settings.Settings) { s.Orphans.Interval.Duration = time.Hour })
			b.start()
			b.makeNamespace(b.namespace, nil)
			pod := b.waiting(b.namespace, "first")
			kn := b.ready(b.namespace)
			b.stop()
			b.delete(pod)
			if err := b.client.Status().Patch(t.Context(), kn, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"routerID":%q}}`, named))); err != nil {
				t.Fatal(err)
			}
			b.delete(kn)
			b.start()
			b.eventually("the KuryrNetwork is deleted", func() bool { return b.kn(b.namespace) == nil })
			if all := b.cloud.Routers(); len(all) != 0 || len(b.owned()) != 0 || !b.cloud.HasRouter(netRouter) {
				t.Errorf("the cloud has routers %+v and networks %+v of Kuryr, want none, and that of somebody else", all, b.owned())
			}
		})
	}
}
