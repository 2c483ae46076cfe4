// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net/http"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// TestNamespacesSweepReal is a sample of TestTenantsWhileWritesMeetTheirFate on the Neutron and the
// Octavia of OS_CLOUD. The credential must be admin there. KURYR_SWEEP_POINTS is the number of
// writes; three if it is not set. All of them are to the cloud, and a process ends after each.
//
// Everything that it creates is in projects of its own, and is removed. Before that nothing may be
// left of what the controllers have created.
func TestNamespacesSweepReal(t *testing.T) {
	points := 3
	if os.Getenv("KURYR_SWEEP_POINTS") != "" {
		points = sweepPoints(t)
	}
	api := newRealAPI(t)
	if api.at["load-balancer"] == "" {
		sdntest.Missing(t, "the cloud of OS_CLOUD has no Octavia: no load balancers to try")
	}
	s := sweepOf(t)
	s.Kinds = []client.ObjectList{&v1.KuryrLoadBalancerList{}, &v1.KuryrNetworkList{}}
	s.Node, s.Patience, s.Sample = api.host(t), 3*time.Minute, points
	places := make(chan *tenancy, len(s.Clusters))
	for range s.Clusters {
		places <- api.placeOfTenants(t, s.Node)
	}
	s.Begin = func(w *crashtest.World) crashtest.Life {
		place := <-places
		w.T.Cleanup(func() { places <- place })
		l := newTenants(w, place.in(w))
		if !w.Undisturbed() { // a real cloud takes time for each list
			l.settings.Orphans.Interval, l.settings.Orphans.Grace = metav1.Duration{Duration: time.Second}, metav1.Duration{Duration: 2 * time.Second}
		}
		return l.life()
	}
	ofCloud := crashtest.StoppedAfter
	ofCloud.Name, ofCloud.To = "stopped after one to the cloud", crashtest.TheCloud
	s.Run(t, ofCloud)
}

// placeOfTenants creates three projects, two of them for tenants, and has them removed. Before the
// removal it checks that the controllers have left nothing there.
func (a *realAPI) placeOfTenants(t *testing.T, host string) *tenancy {
	t.Helper()
	b := &openstackBalancing{openstackCloud: a.bare(t), provider: a.provider(t)}
	t.Cleanup(b.remove)
	b.furnish(host)
	b.route()
	var tenants []string
	for range 2 {
		id := make([]byte, 16)
		_, _ = rand.Read(id)
		tenants = append(tenants, hex.EncodeToString(id))
	}
	for _, project := range tenants { // before the networks that their routers are at
		one := *b.openstackCloud
		one.project = project
		t.Cleanup((&openstackBalancing{openstackCloud: &one}).removeTenant)
	}
	c := tenancyOf(b, tenants...)
	t.Cleanup(func() { (&openstackCloud{t: t, api: a, token: a.token, project: b.project}).removeAll("subnetpool") })
	before := c.count()
	t.Cleanup(func() {
		after, left := c.count(), c.nets()
		t.Logf("projects %s, %v had %v before, and have %v now", c.project, c.tenants, before, after)
		if !maps.Equal(before, after) || len(left) > 0 {
			t.Errorf("the controllers have left something: there was %v in the cloud, and is %v with the networks %v", before, after, left)
		}
	})
	return c
}

// removeTenant removes all resources of a tenant's project, whoever created them.
func (b *openstackBalancing) removeTenant() {
	b.removeAll("floatingip")
	b.removeBalancers()
	routers, _ := b.list("router")
	subnets, _ := b.list("subnet")
	for _, router := range routers {
		for _, subnet := range subnets { // most have no interface there any more
			_, _ = b.ask(http.MethodPut, "/networking/v2.0/routers/"+router["id"].(string)+"/remove_router_interface", map[string]any{"subnet_id": subnet["id"]}, &struct{}{})
		}
	}
	for _, kind := range []string{"router", "port", "subnet", "network", "subnetpool", "security-group"} {
		b.removeAll(kind)
	}
}

// in returns a place for one life.
func (c *tenancy) in(w *crashtest.World) *tenancy {
	mine := *c
	mine.openstackBalancing = c.openstackBalancing.in(w, tenantKinds)
	mine.api = &mine
	return &mine
}
