// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

func oldNeutron(o *openstacksim.Options) { o.LBaaSv2 = true }

// A Neutron that serves load balancers itself is busy after each call; a Service is
// realised, and goes, by calling again.
func TestLBaaSv2GoesOnWhereItWasStopped(t *testing.T) {
	f := newFront(t, oldNeutron)
	r := newRealServices(t, true)
	r.change = append(r.change, func(c *openstack.Config) { c.RequestsPerSecond = 5000 })
	target := r.target(t, "")
	b, ctx := target.Backend, t.Context()
	want := balanced(target, "10.252.0.200", 2, 3)
	made, err := b.CreateLoadBalancer(ctx, serviceOwner, want)
	if err != nil || len(made.Listeners) != 0 || made.ProjectID != target.ProjectID {
		t.Fatalf("CreateLoadBalancer = %+v, %v; want a bare one of the project", made, err)
	}
	simulated{f.cloud}.dial(t, "{balancers: [{kind: listener, action: create, delay: 1s}, {kind: member, delay: 200ms}, {delay: 20ms}]}")
	var pool string
	for stops := 0; pool == ""; stops++ {
		l, err := b.CreateListener(ctx, made.ID, want.Listeners[0])
		if l.ID == "" && stops < 100 {
			continue // busy with being made
		}
		if !errors.As(err, new(*sdn.PendingError)) || l.Pool != nil {
			t.Fatalf("CreateListener = %+v, %v; want it made, and then a PendingError", l, err)
		}
		for ; pool == ""; time.Sleep(time.Millisecond) {
			p, err := b.CreatePool(ctx, made.ID, l.ID, *want.Listeners[0].Pool)
			if err != nil && !errors.As(err, new(*sdn.PendingError)) {
				t.Fatalf("CreatePool = %v", err)
			}
			pool = p.ID
		}
	}
	stops := 0
	for ; stops < 10_000; stops++ {
		err = b.ChangeMembers(ctx, made.ID, pool, want.Listeners[0].Pool.Members, nil)
		if !errors.As(err, new(*sdn.PendingError)) {
			break
		}
	}
	lb, again := b.LoadBalancer(ctx, made.ID)
	if err != nil || again != nil || stops == 0 || len(lb.Listeners) != 1 || len(lb.Listeners[0].Pool.Members) != 3 {
		t.Errorf("ChangeMembers after %d times busy: %v; the load balancer is %+v, %v", stops, err, lb, again)
	}
	for err = b.DeleteLoadBalancer(ctx, made.ID); errors.As(err, new(*sdn.PendingError)); err = b.DeleteLoadBalancer(ctx, made.ID) {
		stops++
	}
	if all, again := b.ListLoadBalancers(ctx); err != nil || again != nil || len(all) != 0 {
		t.Errorf("DeleteLoadBalancer: %v, %v; left: %+v", err, again, all)
	}
	if got := f.cloud.Objects(); got["listeners"]+got["pools"]+got["loadbalancers"] != 0 {
		t.Errorf("left in the cloud: %v", got)
	}
}

func TestLBaaSv2Refuses(t *testing.T) {
	f := newFront(t, oldNeutron)
	r := newRealServices(t, true)
	target := r.target(t, "")
	b, ctx := target.Backend, t.Context()
	for i := range 11 {
		_, err := b.CreateLoadBalancer(ctx, serviceOwner, balanced(target, fmt.Sprintf("10.252.0.%d", 100+i), 0, 0))
		if want := i == 10; errors.Is(err, sdn.ErrQuota) != want || err != nil && !want {
			t.Errorf("CreateLoadBalancer number %d: %v, want ErrQuota: %t", i+1, err, want)
		}
	}
	zoned := balanced(target, "10.252.0.200", 0, 0)
	zoned.AvailabilityZone = "az1"
	if _, err := b.CreateLoadBalancer(ctx, serviceOwner, zoned); !errors.Is(err, sdn.ErrUnsupported) || !strings.Contains(err.Error(), "az1") {
		t.Errorf("CreateLoadBalancer in a zone: %v, want ErrUnsupported naming it", err)
	}
	features, err := b.Features(ctx, "")
	if err != nil || features.Provider != "haproxy" || features.ManyProtocols || features.SourceRanges || features.FailOver {
		t.Errorf("Features of the default provider = %+v, %v", features, err)
	}
	f.before = func(w http.ResponseWriter, r *http.Request, _ object) bool {
		if !strings.Contains(r.URL.Path, "/lbaas/") {
			return false
		}
		refuse(w, 404, "HTTPNotFound", "The resource could not be found.")
		return true
	}
	if _, err := b.ListLoadBalancers(ctx); !errors.Is(err, sdn.ErrNoService) || errors.Is(err, sdn.ErrUnavailable) {
		t.Errorf("ListLoadBalancers of a Neutron without LBaaS: %v, want ErrNoService", err)
	}
}

func TestUnknownLoadBalancerAPI(t *testing.T) {
	newFront(t)
	_, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", LoadBalancerAPI: "haproxy"})
	if err == nil || !strings.Contains(err.Error(), `"haproxy"`) {
		t.Errorf("New with an API that is none: %v, want an error naming it", err)
	}
}
