// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// tear removes the finalizer of a KuryrNetwork, as a person may; status also empties the status.
func (b *netBed) tear(kn *v1.KuryrNetwork, status bool) {
	b.t.Helper()
	if status {
		if err := b.client.Status().Patch(b.t.Context(), kn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.client.Patch(b.t.Context(), kn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		b.t.Fatal(err)
	}
}

// A namespace has one network, also if somebody removes the finalizer of its KuryrNetwork, with its
// status, or the object: the network in the cloud is found by its mark, and its router.
func TestAKuryrNetworkThatLostItsFinalizer(t *testing.T) {
	for name, lose := range map[string]func(*netBed, *v1.KuryrNetwork){
		"finalizer":            func(b *netBed, kn *v1.KuryrNetwork) { b.tear(kn, false) },
		"finalizer and status": func(b *netBed, kn *v1.KuryrNetwork) { b.tear(kn, true) },
		"object":               func(b *netBed, kn *v1.KuryrNetwork) { b.delete(kn); b.tear(kn, false) },
	} {
		for _, mode := range []string{"namespace", "flat"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				b := newNetBed(t, mode, func(s *settings.Settings) {
					s.Services.CheckInterval.Duration = 200 * time.Millisecond
					s.Networks.RouterID, s.Networks.Router = "", &config.Router{ExternalNetworkID: outsideNet}
				})
				b.cloud.AddSubnet(memory.Subnet{ID: "outside", NetworkID: outsideNet, Prefix: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("198.51.100.1"), External: true})
				b.start()
				b.makeNamespace(b.namespace, nil)
				first := b.bound(b.pod("first", inNamespace(b.namespace)))
				kn := b.ready(b.namespace)
				lose(b, kn)
				b.eventually("the KuryrNetwork has its finalizer and names a network", func() bool {
					is := b.kn(b.namespace)
					return is != nil && is.DeletionTimestamp.IsZero() && len(is.Finalizers) > 0 && is.Status.NetworkID != "" && (name != "object" || is.UID != kn.UID)
				})
				again := b.ready(b.namespace)
				looks := b.cloud.Calls(memory.GetNetwork)
				b.eventually("the network is compared with the cloud again", func() bool { return b.cloud.Calls(memory.GetNetwork) > looks+1 })
				second := b.bound(b.pod("second", inNamespace(b.namespace)))
				if got := b.owned(); len(got) != 1 || again.Status.NetworkID != kn.Status.NetworkID || second.Spec.NetworkID != first.Spec.NetworkID {
					t.Errorf("the cloud has %d networks, the KuryrNetwork names %s, the second pod is in %s; want one, and that of the first pod, %s",
						len(got), again.Status.NetworkID, second.Spec.NetworkID, first.Spec.NetworkID)
				}
				if got := b.cloud.Calls(memory.CreateRouter); got != 1 || again.Status.RouterID != kn.Status.RouterID {
					t.Errorf("%d routers were made, the KuryrNetwork names %s, want one, %s", got, again.Status.RouterID, kn.Status.RouterID)
				}
			})
		}
	}
}

// Many namespaces that need networks at once do not each ask for the networks of all.
func TestNewNetworksShareTheirLists(t *testing.T) {
	const namespaces = 24
	b := newNetBed(t, "flat", func(s *settings.Settings) { s.Orphans.Interval.Duration = time.Hour })
	release := b.block(memory.ListNetworks)
	b.start()
	for i := range namespaces {
		b.makeNamespace(fmt.Sprint(b.namespace, "-", i), nil)
		b.waiting(fmt.Sprint(b.namespace, "-", i), "first")
	}
	b.eventually("all are planned", func() bool {
		for i := range namespaces {
			if b.kn(fmt.Sprint(b.namespace, "-", i)) == nil {
				return false
			}
		}
		return true
	})
	release()
	for i := range namespaces {
		b.ready(fmt.Sprint(b.namespace, "-", i))
	}
	if got := b.cloud.Calls(memory.ListNetworks); got > namespaces/2 {
		t.Errorf("%d new networks cost %d lists of all networks, want at most %d", namespaces, got, namespaces/2)
	}
}
