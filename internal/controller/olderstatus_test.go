// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// TestStatusOfAnOlderVersion: a controller finds a status without the lists of later versions. It
// changes nothing in the cloud, sends no Event and does not write the status.
func TestStatusOfAnOlderVersion(t *testing.T) {
	b := balancerBed(t)
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 100 * time.Millisecond })
	b.start()
	b.balancer("plain", public, func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.11" })
	b.realised("plain")
	b.stop()
	b.forgetLists("plain")
	old := b.klb("plain").ResourceVersion
	told, writes := b.balancerEvents(), b.writes()
	b.start()
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
