// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/neutron"
)

// A cloud may show fewer than asked for on a page (pagination_max_limit).
func TestPagesOfTheCloudsOwnSize(t *testing.T) {
	const most, want = 2, 5
	f := newFront(t)
	target := f.services(t, func(c *neutron.Config) { c.PageSize = 500 }).target(t, "ovn")
	b, ctx := target.Backend, t.Context()
	for range want {
		_, err := b.CreateFloatingIP(ctx, serviceOwner, sdn.FloatingIPRequest{NetworkID: target.ExternalNetwork, ProjectID: target.ProjectID})
		must(t, err)
	}
	_, err := b.CreatePorts(ctx, serviceOwner, sdn.PortRequest{SubnetIDs: []string{target.Subnet.ID}, ProjectID: target.ProjectID}, want)
	must(t, err)
	f.before = func(_ http.ResponseWriter, r *http.Request, _ object) bool {
		q := r.URL.Query()
		if n, err := strconv.Atoi(q.Get("limit")); err == nil && n > most {
			q.Set("limit", strconv.Itoa(most))
			r.URL.RawQuery = q.Encode()
		}
		return false
	}
	addresses, err := b.ListFloatingIPs(ctx, target.ProjectID)
	if err != nil || len(addresses) != want {
		t.Errorf("ListFloatingIPs shows %d, %v; want %d", len(addresses), err, want)
	}
	ports, err := b.ListPorts(ctx)
	if err != nil || len(ports) != want {
		t.Errorf("ListPorts shows %d, %v; want %d", len(ports), err, want)
	}
}

// What a page ends with may be deleted before the next is asked for: Neutron answers
// 404 then and Octavia 400, and the list is read from its beginning.
func TestListsBeginAnew(t *testing.T) {
	f := newFront(t)
	target := f.services(t, func(c *neutron.Config) { c.PageSize = 1 }).target(t, "amphora")
	ctx := t.Context()
	b := target.Backend
	for i := range 2 {
		owner := serviceOwner
		owner.Name += strconv.Itoa(i)
		_, err := b.CreateFloatingIP(ctx, owner, sdn.FloatingIPRequest{NetworkID: target.ExternalNetwork, ProjectID: target.ProjectID})
		must(t, err)
		_, err = b.EnsureSecurityGroup(ctx, owner, sdn.SecurityGroup{Name: "web", ProjectID: target.ProjectID})
		must(t, err)
		_, err = b.CreatePorts(ctx, owner, sdn.PortRequest{SubnetIDs: []string{target.Subnet.ID}, ProjectID: target.ProjectID}, 1)
		must(t, err)
		_, err = b.CreateLoadBalancer(ctx, owner, balanced(target, fmt.Sprintf("10.252.0.20%d", i), 2, 2))
		must(t, err)
	}
	var mu sync.Mutex
	refused := map[string]bool{}
	f.before = func(w http.ResponseWriter, r *http.Request, _ object) bool {
		marker, list := r.URL.Query().Get("marker"), path.Base(r.URL.Path)
		mu.Lock()
		defer mu.Unlock()
		if marker == "" || refused[list] {
			return false
		}
		refused[list] = true
		if strings.Contains(r.URL.Path, "/lbaas/") {
			return says(w, http.StatusBadRequest, "Supplied pagination marker '%s' is not valid.", marker)
		}
		refuse(w, http.StatusNotFound, map[string]string{
			"ports": "PortNotFound", "floatingips": "FloatingIPNotFound", "security-groups": "SecurityGroupNotFound",
		}[list], "%s could not be found.", marker)
		return true
	}
	b = target.Fresh(t) // which knows of nothing
	addresses, err := b.ListFloatingIPs(ctx, target.ProjectID)
	if err != nil || len(addresses) != 2 {
		t.Errorf("ListFloatingIPs shows %d, %v; want 2", len(addresses), err)
	}
	ports, err := b.ListPorts(ctx)
	if err != nil || len(ports) != 2 {
		t.Errorf("ListPorts shows %d, %v; want 2", len(ports), err)
	}
	groups, err := b.ListSecurityGroups(ctx)
	if err != nil || len(groups) != 2 {
		t.Errorf("ListSecurityGroups shows %d, %v; want 2", len(groups), err)
	}
	all, err := b.ListLoadBalancers(ctx)
	if err != nil || len(all) != 2 {
		t.Fatalf("ListLoadBalancers shows %d, %v; want 2", len(all), err)
	}
	lb, err := b.LoadBalancer(ctx, all[0].ID)
	if err != nil || len(lb.Listeners) != 2 {
		t.Fatalf("LoadBalancer shows %d listeners, %v; want 2", len(lb.Listeners), err)
	}
	for _, l := range lb.Listeners {
		if len(l.Pool.Members) != 2 {
			t.Errorf("LoadBalancer shows %d members of port %d, want 2", len(l.Pool.Members), l.Port)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, list := range []string{"ports", "floatingips", "security-groups", "loadbalancers", "listeners", "pools", "members"} {
		if !refused[list] {
			t.Errorf("no second page of %s was asked for", list)
		}
	}
}
