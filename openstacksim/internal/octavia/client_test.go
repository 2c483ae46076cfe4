// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/apiversions"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/monitors"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/providers"

	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

// client returns gophercloud's client of a service whose changes end at once.
func client(t *testing.T) (*gophercloud.ServiceClient, *world) {
	w := newWorld(t, func(o *octavia.Options) { o.After = func(_ time.Duration, f func()) { f() } })
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.Handle(rw, r, tenant) }))
	t.Cleanup(server.Close)
	return &gophercloud.ServiceClient{
		ProviderClient: &gophercloud.ProviderClient{TokenID: "t"},
		Endpoint:       server.URL + "/", ResourceBase: server.URL + "/v2.0/", Type: "load-balancer",
	}, w
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestGophercloud(t *testing.T) {
	ctx := t.Context()
	c, w := client(t)
	lb := must[*loadbalancers.LoadBalancer](t)(loadbalancers.Create(ctx, c, loadbalancers.CreateOpts{Name: "lb", VipSubnetID: subnetID, Tags: []string{"a"}}).Extract())
	if lb.ProvisioningStatus != "PENDING_CREATE" {
		t.Errorf("created: %s", lb.ProvisioningStatus)
	}
	lb = must[*loadbalancers.LoadBalancer](t)(loadbalancers.Get(ctx, c, lb.ID).Extract())
	if lb.ProvisioningStatus != "ACTIVE" || lb.VipPortID == "" || lb.Provider != "ovn" || lb.CreatedAt.IsZero() {
		t.Errorf("got: %+v", lb)
	}
	li := must[*listeners.Listener](t)(listeners.Create(ctx, c, listeners.CreateOpts{LoadbalancerID: lb.ID, Protocol: "TCP", ProtocolPort: 80}).Extract())
	po := must[*pools.Pool](t)(pools.Create(ctx, c, pools.CreateOpts{ListenerID: li.ID, Protocol: "TCP", LBMethod: "SOURCE_IP_PORT"}).Extract())
	subnet := subnetID
	batch := []pools.BatchUpdateMemberOpts{{Address: "10.0.5.1", ProtocolPort: 80, SubnetID: &subnet}, {Address: "10.0.5.2", ProtocolPort: 80, SubnetID: &subnet}}
	if err := pools.BatchUpdateMembers(ctx, c, po.ID, batch).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	page := must[[]pools.Member](t)(pools.ExtractMembers(must[pools.MemberPage](t)(members(t, c, po.ID))))
	if len(page) != 2 || page[0].OperatingStatus != "NO_MONITOR" {
		t.Errorf("members: %+v", page)
	}
	name := "web"
	if got := must[*listeners.Listener](t)(listeners.Update(ctx, c, li.ID, listeners.UpdateOpts{Name: &name}).Extract()); got.Name != name || got.DefaultPoolID != po.ID {
		t.Errorf("updated: %+v", got)
	}
	hm := must[*monitors.Monitor](t)(monitors.Create(ctx, c, monitors.CreateOpts{PoolID: po.ID, Type: "TCP", Delay: 5, Timeout: 2, MaxRetries: 2}).Extract())
	if err := monitors.Delete(ctx, c, hm.ID).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	stats := must[*loadbalancers.Stats](t)(loadbalancers.GetStats(ctx, c, lb.ID).Extract())
	if stats.TotalConnections != 0 {
		t.Errorf("stats: %+v", stats)
	}
	tree := must[*loadbalancers.StatusTree](t)(loadbalancers.GetStatuses(ctx, c, lb.ID).Extract())
	if n := len(tree.Loadbalancer.Listeners[0].Pools[0].Members); n != 2 {
		t.Errorf("members in the tree: %d", n)
	}
	if err := loadbalancers.Delete(ctx, c, lb.ID, nil).ExtractErr(); !gophercloud.ResponseCodeIs(err, http.StatusBadRequest) {
		t.Errorf("deleted with children: %v", err)
	}
	if err := loadbalancers.Delete(ctx, c, lb.ID, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	if _, err := loadbalancers.Get(ctx, c, lb.ID).Extract(); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Errorf("got after it is deleted: %v", err)
	}
	w.empty(t)
}

func members(t *testing.T, c *gophercloud.ServiceClient, pool string) (pools.MemberPage, error) {
	all, err := pools.ListMembers(c, pool, pools.ListMembersOpts{}).AllPages(t.Context())
	if err != nil {
		return pools.MemberPage{}, err
	}
	return all.(pools.MemberPage), nil
}

func TestGophercloudDiscovery(t *testing.T) {
	c, _ := client(t)
	all, err := providers.List(c, nil).AllPages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := must[[]providers.Provider](t)(providers.ExtractProviders(all))
	if len(got) != 2 || got[0].Name != "ovn" || got[1].Name != "amphora" {
		t.Errorf("providers: %+v", got)
	}
	versions, err := apiversions.List(c).AllPages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := must[[]apiversions.APIVersion](t)(apiversions.ExtractAPIVersions(versions))
	if len(known) != 27 || known[26].ID != "v2.26" || known[26].Status != "CURRENT" {
		t.Errorf("versions: %+v", known)
	}
}
