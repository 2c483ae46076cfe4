// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// A namespace that the configuration leaves in the common network may still have the KuryrNetwork of
// a tenant. After a start its pods wait until KuryrNetworks are read.
func TestPodsWaitUntilKuryrNetworksAreRead(t *testing.T) {
	b := apartBed(t)
	open := make(chan struct{})
	b.newClient = through(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if r, is := obj.(*authorizationv1.SelfSubjectAccessReview); is && r.Spec.ResourceAttributes.Resource == "kuryrnetworks" {
			select {
			case <-open:
			case <-ctx.Done():
			}
		}
		return c.Create(ctx, obj, opts...)
	}})
	blue := b.team("blue")
	b.network(blue, "blue-project", blueNet, blueSubnet)
	b.label(blue, "team", "")
	b.start()
	b.followed(blue)
	pods := []*corev1.Pod{b.pod("tenant", inNamespace("blue")), b.pod("common")}
	b.never("a pod has a port, in whatever network", func() bool { return len(b.ports()) > 0 })
	close(open)
	for i, want := range []string{blueNet, network} {
		if port := b.bound(pods[i]); port.Spec.NetworkID != want {
			t.Errorf("pod %s has a port in network %s, want %s", pods[i].Name, port.Spec.NetworkID, want)
		}
	}
}

// A status that somebody changes by hand is compared with the cloud at once. No port is made in a
// network that it names, also while the cloud does not answer.
func TestAStatusThatNamesAForeignNetwork(t *testing.T) {
	const foreign, foreignSubnet = "5f1c5aac-0000-4000-8000-0000000c0000", "5f1c5aac-0000-4000-8000-0000000c0001"
	b := newNetBed(t, "flat")
	b.cloud.AddSubnet(memory.Subnet{ID: foreignSubnet, NetworkID: foreign, Prefix: netip.MustParsePrefix("10.99.0.0/24"), MTU: 1442})
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.bound(b.pod("first", inNamespace(b.namespace)))
	kn := b.ready(b.namespace)
	release := b.block(memory.GetNetwork)
	defer release()
	edited := kn.DeepCopy()
	patch := fmt.Appendf(nil, `{"status":{"networkID":%q,"subnets":[{"id":%q,"ipVersion":4,"cidr":"10.99.0.0/24","routed":true}]}}`, foreign, foreignSubnet)
	if err := b.client.Status().Patch(t.Context(), edited, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	b.followed(edited)
	second := b.pod("second", inNamespace(b.namespace))
	b.never("the pod has a port by the edited status", func() bool { return b.portOf(second) != nil })
	release()
	if port := b.bound(second); port.Spec.NetworkID != kn.Status.NetworkID {
		t.Errorf("the pod has a port in network %s, want %s", port.Spec.NetworkID, kn.Status.NetworkID)
	}
	b.eventually("the status names the network again", func() bool { return b.kn(b.namespace).Status.NetworkID == kn.Status.NetworkID })
	if n := b.inNetwork(foreign); n != 0 {
		t.Errorf("the foreign network has %d ports, want none", n)
	}
}

// A status that somebody changes and changes back is trusted again, once the cloud has been asked.
func TestAStatusThatIsPutBack(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.bound(b.pod("first", inNamespace(b.namespace)))
	kn := b.ready(b.namespace)
	edit := func(mtu int32) {
		t.Helper()
		is := kn.DeepCopy()
		if err := b.client.Status().Patch(t.Context(), is, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"mtu":%d}}`, mtu))); err != nil {
			t.Fatal(err)
		}
		b.followed(is)
	}
	edit(kn.Status.MTU - 1)
	edit(kn.Status.MTU)
	b.bound(b.pod("second", inNamespace(b.namespace)))
	b.eventually("the status is that of the cloud", func() bool { return b.kn(b.namespace).Status.MTU == kn.Status.MTU })
}

// inNetwork returns the number of KuryrPorts in a network.
func (b *bed) inNetwork(id string) (n int) {
	for _, p := range b.ports() {
		if p.Spec.NetworkID == id {
			n++
		}
	}
	return n
}
