// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// A cloud may show fewer than asked for on a page (pagination_max_limit).
func TestPagesOfTheCloudsOwnSize(t *testing.T) {
	const most, want = 2, 5
	f := newFront(t)
	target := f.services(t, func(c *openstack.Config) { c.PageSize = 500 }).target(t, "ovn")
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

// What a page ends with may be deleted before the next is asked for. The list is read
// from its beginning then, whatever the cloud says: the simulator answers as Neutron
// does, 404 or an empty page, as it pages each kind, and Octavia 400.
func TestListsBeginAnew(t *testing.T) {
	f := newFront(t, recent)
	target := f.services(t, func(c *openstack.Config) { c.PageSize = 1 }).target(t, "amphora")
	ctx := t.Context()
	b := target.Backend
	for i := range 4 {
		owner := serviceOwner
		owner.Name += strconv.Itoa(i)
		_, err := b.CreateFloatingIP(ctx, owner, sdn.FloatingIPRequest{NetworkID: target.ExternalNetwork, ProjectID: target.ProjectID})
		must(t, err)
		_, err = b.EnsureSecurityGroup(ctx, owner, sdn.SecurityGroup{Name: "web", ProjectID: target.ProjectID})
		must(t, err)
		_, err = b.CreatePorts(ctx, owner, sdn.PortRequest{SubnetIDs: []string{target.Subnet.ID}, ProjectID: target.ProjectID}, 1)
		must(t, err)
		if i < 2 {
			_, err = b.CreateLoadBalancer(ctx, owner, balanced(target, fmt.Sprintf("10.252.0.20%d", i), 2, 2))
			must(t, err)
		}
	}
	var mu sync.Mutex
	gone := map[string]int{} // of each list
	most := 1
	f.before = func(w http.ResponseWriter, r *http.Request, _ object) bool {
		marker, list := r.URL.Query().Get("marker"), path.Base(r.URL.Path)
		mu.Lock()
		defer mu.Unlock()
		if marker == "" || gone[list] >= most {
			return false
		}
		gone[list]++
		if strings.Contains(r.URL.Path, "/lbaas/") {
			return says(w, http.StatusBadRequest, "Supplied pagination marker '%s' is not valid.", marker)
		}
		remove := r.Clone(ctx)
		remove.Method, remove.URL.RawQuery = http.MethodDelete, ""
		remove.URL.Path += "/" + marker
		said := httptest.NewRecorder()
		if f.cloud.ServeHTTP(said, remove); said.Code == http.StatusConflict {
			gone[list]-- // it is of a load balancer
		} else if said.Code >= 300 {
			t.Errorf("deleting one of %s: %d %s", list, said.Code, said.Body)
		}
		return false
	}
	b = target.Fresh(t) // which knows of nothing
	addresses, err := b.ListFloatingIPs(ctx, target.ProjectID)
	if err != nil || len(addresses) != 3 {
		t.Errorf("ListFloatingIPs shows %d, %v; want the 3 that are left", len(addresses), err)
	}
	ports, err := b.ListPorts(ctx)
	if err != nil || len(ports) != 3 {
		t.Errorf("ListPorts shows %d, %v; want the 3 that are left", len(ports), err)
	}
	groups, err := b.ListSecurityGroups(ctx)
	if err != nil || len(groups) != 3 {
		t.Errorf("ListSecurityGroups shows %d, %v; want the 3 that are left", len(groups), err)
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
	for _, list := range []string{"ports", "floatingips", "security-groups", "loadbalancers", "listeners", "pools", "members"} {
		if gone[list] != 1 {
			t.Errorf("of %s %d were gone, want 1", list, gone[list])
		}
	}
	most = 100
	if _, err := b.ListLoadBalancers(ctx); !errors.Is(err, sdn.ErrUnavailable) || errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid) {
		t.Errorf("ListLoadBalancers whose pages shift all the time: %v, want ErrUnavailable", err)
	}
}

// Neutron shows the first page again behind a row that is gone, where it looks that up
// as an object.
func TestPageThatBeginsAgain(t *testing.T) {
	f := newFront(t)
	target := f.services(t, func(c *openstack.Config) { c.PageSize = 2 }).target(t, "ovn")
	b, ctx := target.Backend, t.Context()
	for i := range 5 {
		owner := serviceOwner
		owner.Name += strconv.Itoa(i)
		_, err := b.EnsureSecurityGroup(ctx, owner, sdn.SecurityGroup{Name: "web", ProjectID: target.ProjectID})
		must(t, err)
	}
	again := 1
	f.before = func(_ http.ResponseWriter, r *http.Request, _ object) bool {
		if q := r.URL.Query(); q.Has("marker") && again > 0 {
			again--
			q.Del("marker")
			r.URL.RawQuery = q.Encode()
		}
		return false
	}
	groups, err := b.ListSecurityGroups(ctx)
	if err != nil || len(groups) != 5 {
		t.Errorf("ListSecurityGroups shows %d, %v; want 5", len(groups), err)
	}
}

// What is below a load balancer may go while it is read: that it is gone itself is
// another matter.
func TestChildGoesWhileRead(t *testing.T) {
	f := newFront(t, recent)
	target := f.services(t).target(t, "amphora")
	b, ctx := target.Backend, t.Context()
	made, err := b.CreateLoadBalancer(ctx, serviceOwner, balanced(target, "10.252.0.200", 1, 2))
	must(t, err)
	f.before = func(w http.ResponseWriter, r *http.Request, _ object) bool {
		if id, below := strings.CutSuffix(r.URL.Path, "/members"); below {
			return says(w, http.StatusNotFound, "pool %s not found.", path.Base(id))
		}
		return false
	}
	if _, err := target.Fresh(t).LoadBalancer(ctx, made.ID); !errors.Is(err, sdn.ErrUnavailable) || errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("LoadBalancer whose pool goes meanwhile: %v, want ErrUnavailable", err)
	}
}
