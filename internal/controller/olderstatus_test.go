// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestStatusOfAnOlderVersion: a controller finds statuses without the lists on which it bases
// decisions. It changes nothing in the cloud, repeats no Event and writes the same conditions. It
// adds the lists that have entries, and writes no other status.
func TestStatusOfAnOlderVersion(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 100 * time.Millisecond })
	b.start()
	at := func(ip string) func(*v1.KuryrLoadBalancerSpec) {
		return func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = ip }
	}
	b.balancer("plain", public, at("10.96.0.11"))
	b.balancer("kept", public, at("10.96.0.12"))
	b.balancer("limited", at("10.96.0.13"), func(s *v1.KuryrLoadBalancerSpec) {
		s.Listeners[0].Monitor = &v1.MonitorSpec{Type: "TCP", Delay: 5, Timeout: 3, MaxRetries: 1, MaxRetriesDown: 3}
	})
	b.realised("kept")
	b.respec("kept", func(s *v1.KuryrLoadBalancerSpec) {
		s.FlavorID, s.PublicIP.NetworkID = "big", "5f1c5aac-0000-4000-8000-0000000000f9"
	})
	b.eventOn("kept", "NotChanged")
	b.cloud.EditLoadBalancer(b.realised("limited").Status.LoadBalancers[0].ID, func(lb *sdn.LoadBalancer) {
		for i := range lb.Listeners {
			lb.Listeners[i].Pool.MonitorBroken = true
		}
	})
	b.eventOn("limited", "NotSupported")
	before := map[string]*v1.KuryrLoadBalancer{}
	names := []string{"plain", "kept", "limited"}
	for _, name := range names {
		before[name] = b.realised(name)
	}
	if n := len(before["kept"].Status.NotChanged); n != 2 {
		t.Fatalf("notChanged lists %d, want the flavor and the network", n)
	}
	b.stop()
	for _, name := range names {
		b.forgetLists(name)
	}
	old := b.klb("plain").ResourceVersion
	told, writes := b.balancerEvents(), b.writes()
	b.start()
	for _, name := range []string{"kept", "limited"} {
		b.eventually("the status of "+name+" has its lists", func() bool {
			return equality.Semantic.DeepEqual(b.klb(name).Status, before[name].Status)
		})
	}
	b.never("something is told again", func() bool { return b.balancerEvents() != told })
	if now := b.klb("plain").ResourceVersion; now != old {
		t.Errorf("a status that has nothing to list was written")
	}
	if diff := cmp.Diff(writes, b.writes()); diff != "" {
		t.Errorf("the cloud was changed (-before +now):\n%s", diff)
	}
}

// forgetLists turns a status into one of a version without these fields.
func (b *bed) forgetLists(name string) {
	b.t.Helper()
	klb := b.klb(name)
	none := []byte(`{"status": {"notChanged": null, "unsupported": null, "unreachedMembers": null}}`)
	if len(klb.Status.NotChanged) > 0 {
		none = []byte(`{"status": {"notChanged": null, "unsupported": null, "unreachedMembers": null, "publicIP": {"networkID": null}}}`)
	}
	if err := b.client.Status().Patch(b.t.Context(), klb, client.RawPatch(types.MergePatchType, none)); err != nil {
		b.t.Fatal(err)
	}
}

// balancerEvents is the number of Events, including repetitions.
func (b *bed) balancerEvents() (n int) {
	b.t.Helper()
	var list eventsv1.EventList
	if err := b.client.List(b.t.Context(), &list); err != nil {
		b.t.Fatal(err)
	}
	for _, e := range list.Items {
		if n++; e.Series != nil {
			n += int(e.Series.Count)
		}
	}
	return n
}
