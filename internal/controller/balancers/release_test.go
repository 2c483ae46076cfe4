// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// frees is a cloud that only frees VIPs.
type frees struct {
	sdn.LoadBalancers
	freed []string
}

func (f *frees) FreeVIP(_ context.Context, _ string, vip v1.VIPAddress, _ string) error {
	f.freed = append(f.freed, vip.IP)
	return nil
}

// TestFreesOnlyVIPsWithoutLoadBalancer: a VIP that had a load balancer is not freed: its port went with
// the load balancer, and another Service may have the address by now.
func TestFreesOnlyVIPsWithoutLoadBalancer(t *testing.T) {
	cloud := &frees{}
	klb := &v1.KuryrLoadBalancer{}
	klb.Spec.VIPs = []v1.VIPAddress{{IP: "10.96.0.10"}, {IP: "fd00:96::10"}}
	klb.Status.LoadBalancers = []v1.LoadBalancerStatus{{ID: "lb", IP: "10.96.0.10"}}
	v := &reconciliation{Reconciler: &Reconciler{Options: Options{Shards: kube.Alone{}, Cloud: Cloud{LoadBalancers: cloud}}}, klb: klb}
	if err := v.freeVIPs(t.Context(), nil); err != nil || !slices.Equal(cloud.freed, []string{"fd00:96::10"}) {
		t.Errorf("it freed %q, %v; want the VIP without a load balancer", cloud.freed, err)
	}
}

// holds holds all cluster IPs at once.
type holds struct{ asked int }

func (h *holds) Hold(context.Context, *v1.KuryrLoadBalancer, []string) (time.Duration, error) {
	h.asked++
	return 0, nil
}

// TestHoldWaitsForTheFloatingIP: a deleted Service stays as long as it may have a floating IP, however
// long Octavia takes, also if its status names no load balancer.
func TestHoldWaitsForTheFloatingIP(t *testing.T) {
	var s settings.Settings
	s.Services.ReleaseAfter = metav1.Duration{Duration: time.Minute}
	deleted := metav1.NewTime(time.Now().Add(-time.Hour))
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", DeletionTimestamp: &deleted}}
	cloud := &listed{all: []sdn.LoadBalancerSummary{{ID: "lb", Owner: ownerOf(klb)}}}
	for name, tc := range map[string]struct {
		placed, none, want bool
	}{
		"may have one": {false, false, false},
		"withdrawn":    {true, false, true},
		"has none":     {false, true, true},
	} {
		holder := &holds{}
		v := &reconciliation{
			Reconciler: &Reconciler{Options: Options{Shards: kube.Alone{}, Cloud: Cloud{LoadBalancers: cloud}, Settings: settings.NewLive(s), Holder: holder, Now: time.Now}},
			klb:        klb, memory: &memory{knownAddress: knownAddress{noAddress: tc.none}},
		}
		v.round.Address.Placed = tc.placed
		if held, err := v.hold(t.Context()); err != nil || held != tc.want || (holder.asked > 0) != tc.want {
			t.Errorf("%s: hold = %t, %v, after %d requests to hold; want %t", name, held, err, holder.asked, tc.want)
		}
	}
}
