// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

func TestAnUnknownProviderIsLearned(t *testing.T) {
	f := newFront(t, recent) // where new pools ask for affinity
	f.rename = "acme"
	f.before = func(w http.ResponseWriter, r *http.Request, body object) bool {
		text := fmt.Sprint(body)
		switch {
		case r.Method == http.MethodGet || !strings.HasPrefix(r.URL.Path, "/load-balancer/"):
			return false
		case strings.HasSuffix(r.URL.Path, "/failover"):
			return says(w, 501, "Provider 'acme' does not support a requested action: This provider does not support failover.")
		case strings.Contains(text, "loadbalancer:map") && strings.Contains(text, "listeners:"):
			return says(w, 501, "Provider 'acme' does not support a requested option: fully populated.")
		case strings.Contains(text, "allowed_cidrs:["), strings.Contains(text, "protocol:UDP"), strings.Contains(text, "SOURCE_IP"):
			return says(w, 501, "Provider 'acme' does not support a requested option")
		}
		return false
	}
	target := f.services(t).target(t, "acme")
	b, ctx := target.Backend, t.Context()
	lb := balanced(target, "10.252.0.200", 1, 2)
	f.asked(false)
	made, err := b.CreateLoadBalancer(ctx, serviceOwner, lb)
	if err != nil || len(made.Listeners) != 0 || f.asked(true)["POST loadbalancers"] != 1 {
		t.Errorf("CreateLoadBalancer = %+v, %v; want a bare one by one request", made, err)
	}
	lb.ID = made.ID
	if _, err := b.CreateListener(ctx, lb.ID, lb.Listeners[0]); err != nil {
		t.Fatal(err)
	}
	f.asked(false)
	var zero int32
	affine := sdn.Pool{AffinitySeconds: &zero}
	for what, l := range map[string]sdn.Listener{
		"source ranges":    {Protocol: "TCP", Port: 81, SourceRanges: []string{"10.0.0.0/8"}},
		"UDP":              {Protocol: "UDP", Port: 82},
		"session affinity": {Protocol: "TCP", Port: 83, Pool: &affine},
	} {
		for range 2 {
			if _, err := b.CreateListener(ctx, lb.ID, l); !errors.Is(err, sdn.ErrUnsupported) {
				t.Errorf("CreateListener with %s: %v, want ErrUnsupported", what, err)
			}
		}
		if got := f.asked(true); got["POST listeners"] > 2 || got["POST pools"] > 1 {
			t.Errorf("requests %v; want what was refused not to be asked for again", got)
		}
	}
	if err := b.FailOver(ctx, lb.ID); !errors.Is(err, sdn.ErrUnsupported) {
		t.Errorf("FailOver: %v, want ErrUnsupported", err)
	}
	features, err := b.Features(ctx, "acme")
	must(t, err)
	if !features.SourceRanges || features.Affinity || features.FailOver || strings.Contains(fmt.Sprint(features.Protocols), "UDP") {
		t.Errorf("Features = %+v, want them without what was refused, but for source ranges: without those all could come in", features)
	}
}

// Which provider those get who ask for none: an old name of the same is no other.
func TestTheUsualProvider(t *testing.T) {
	for _, test := range []struct {
		listed []string
		want   string
		unsure bool
	}{
		{[]string{"ovn"}, "ovn", false},
		{[]string{"acme"}, "acme", false},
		{[]string{"octavia", "amphora"}, "amphora", false},
		{[]string{"octavia", "amphora", "ovn"}, "amphora", true},
		{[]string{"ovn", "acme"}, "acme", true},
	} {
		f := newFront(t)
		f.before = func(w http.ResponseWriter, r *http.Request, _ object) bool {
			if !strings.HasSuffix(r.URL.Path, "/lbaas/providers") {
				return false
			}
			var all []object
			for _, name := range test.listed {
				all = append(all, object{"name": name, "description": ""})
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(object{"providers": all})
			return true
		}
		b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one"})
		must(t, err)
		got, err := b.Features(t.Context(), "")
		if err != nil || got.Provider != test.want || got.Unsure != test.unsure {
			t.Errorf("Features of the default provider, of %v: %s, unsure %t, %v; want %s, %t", test.listed, got.Provider, got.Unsure, err, test.want, test.unsure)
		}
		if named, err := b.Features(t.Context(), test.listed[0]); err != nil || named.Unsure {
			t.Errorf("Features of %s: %+v, %v; want them to be sure", test.listed[0], named, err)
		}
		if old, err := b.Features(t.Context(), "octavia"); err == nil && old.Balances("SOURCE_IP_PORT") {
			t.Errorf("Features of amphora by its old name: %+v", old)
		}
	}
}

// A flavor's provider is known once there is a load balancer of it; one for which
// what is below it was not meant is made bare.
func TestTheProviderOfAFlavor(t *testing.T) {
	f := newFront(t, recent) // where amphorae come with their children
	r := f.services(t)
	target := r.target(t, "")
	b, ctx := target.Backend, t.Context()
	var profile struct {
		Profile struct{ ID string } `json:"flavorprofile"`
	}
	_, err := r.balancer.Post(ctx, r.balancer.ServiceURL("lbaas", "flavorprofiles"), object{"flavorprofile": object{"name": "p", "provider_name": "amphora", "flavor_data": "{}"}}, &profile, nil)
	must(t, err)
	var flavor struct{ Flavor struct{ ID string } }
	_, err = r.balancer.Post(ctx, r.balancer.ServiceURL("lbaas", "flavors"), object{"flavor": object{"name": "f", "flavor_profile_id": profile.Profile.ID, "enabled": true}}, &flavor, nil)
	must(t, err)
	lb := balanced(target, "", 2, 2)
	lb.FlavorID = flavor.Flavor.ID
	for i, want := range []int{0, 2, 2, 0} {
		lb.VIP.IP = fmt.Sprintf("10.252.0.%d", 200+i)
		if i == 3 { // it cannot do what others can
			lb.Listeners[0].Pool.Algorithm = "SOURCE_IP_PORT"
		}
		f.asked(true)
		made, err := b.CreateLoadBalancer(ctx, serviceOwner, lb)
		if got := f.asked(true); err != nil || made.Provider != "amphora" || len(made.Listeners) != want || got["POST loadbalancers"] != 1 {
			t.Errorf("CreateLoadBalancer number %d of a flavor = %+v, %v, by %v; want %d listeners", i+1, made, err, got, want)
		}
		lb.ID = made.ID
		for now := made; err == nil && now.Provisioning != sdn.ProvisioningActive; {
			now, err = b.LoadBalancer(ctx, made.ID)
		}
		must(t, err)
	}
	if usual, err := b.Features(ctx, ""); err != nil || !usual.Unsure {
		t.Errorf("Features of the default provider = %+v, %v; want them to be a guess still", usual, err)
	}
}

// What an unknown provider refuses, one thing after another, in every order.
func TestRefusalsAreLearned(t *testing.T) {
	f := newFront(t)
	f.rename = "acme"
	f.before = func(w http.ResponseWriter, r *http.Request, body object) bool {
		text := fmt.Sprint(body)
		refused := strings.Contains(text, "type:HTTP") || strings.Contains(text, "LEAST_CONNECTIONS") || strings.Contains(text, "10.252.1.") || strings.Contains(text, "allowed_cidrs:[")
		return refused && r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, "/load-balancer/") &&
			says(w, 501, "Provider 'acme' does not support a requested option")
	}
	target := f.services(t).target(t, "acme")
	b, ctx := target.Backend, t.Context()
	wanted := balanced(target, "10.252.0.200", 1, 1)
	lb, err := b.CreateLoadBalancer(ctx, serviceOwner, wanted)
	must(t, err)
	l, err := b.CreateListener(ctx, lb.ID, wanted.Listeners[0])
	must(t, err)
	pool := *l.Pool
	monitored, least := pool, pool
	monitored.Monitor = &v1.MonitorSpec{Type: "HTTP", Delay: 5, Timeout: 3, MaxRetries: 2, MaxRetriesDown: 2}
	least.Algorithm = "LEAST_CONNECTIONS"
	far := sdn.Member{Name: "a/far", IP: "10.252.1.9", Port: 80, SubnetID: target.Far.ID}
	for what, call := range map[string]func() error{
		"a monitor":         func() error { return b.UpdatePool(ctx, lb.ID, pool.ID, monitored) },
		"LEAST_CONNECTIONS": func() error { return b.UpdatePool(ctx, lb.ID, pool.ID, least) },
		"a far member":      func() error { return b.ChangeMembers(ctx, lb.ID, pool.ID, []sdn.Member{far}, nil) },
	} {
		f.asked(true)
		for range 3 {
			if err := call(); !errors.Is(err, sdn.ErrUnsupported) {
				t.Errorf("%s: %v, want ErrUnsupported", what, err)
			}
		}
		if got := f.asked(true); len(got) != 1 {
			t.Errorf("%s was asked for by %v, want one request", what, got)
		}
	}
	features, err := b.Features(ctx, "acme")
	must(t, err)
	if features.FarMembers || features.Balances("LEAST_CONNECTIONS") || slices.Contains(features.Monitors, "HTTP") || !slices.Contains(features.Monitors, "TCP") {
		t.Errorf("Features = %+v, want them without what was refused", features)
	}
	near := endpoints(target, 3)[2:]
	if err := b.ChangeMembers(ctx, lb.ID, pool.ID, near, nil); err != nil {
		t.Errorf("ChangeMembers with one of the VIP's subnet: %v", err)
	}
	if features, err = b.Features(ctx, "amphora"); err == nil && !features.FarMembers {
		t.Errorf("Features of another provider = %+v, want them untouched", features)
	}
}

// A provider that takes another algorithm than is usual is found out; one that takes
// none still has some to be asked for.
func TestAlgorithmsAreLearned(t *testing.T) {
	f := newFront(t)
	f.rename = "acme"
	takes := "SOURCE_IP"
	f.before = func(w http.ResponseWriter, r *http.Request, body object) bool {
		pool, _ := body["pool"].(object)
		return pool != nil && pool["lb_algorithm"] != takes && says(w, 501, "Provider 'acme' does not support a requested option")
	}
	target := f.services(t).target(t, "acme")
	b, ctx := target.Backend, t.Context()
	lb, err := b.CreateLoadBalancer(ctx, serviceOwner, balanced(target, "10.252.0.200", 0, 0))
	must(t, err)
	for i := range 6 {
		l := sdn.Listener{Protocol: "TCP", Port: int32(80 + i), Pool: &sdn.Pool{}}
		_, err := b.CreateListener(ctx, lb.ID, l)
		if i < 2 != errors.Is(err, sdn.ErrUnsupported) || i >= 2 && err != nil {
			t.Errorf("CreateListener number %d: %v, want ErrUnsupported once of each", i, err)
		}
	}
	takes = ""
	for i := range 6 {
		if _, err := b.CreateListener(ctx, lb.ID, sdn.Listener{Protocol: "TCP", Port: int32(90 + i), Pool: &sdn.Pool{}}); !errors.Is(err, sdn.ErrUnsupported) {
			t.Errorf("CreateListener: %v, want ErrUnsupported", err)
		}
	}
	features, err := b.Features(ctx, "acme")
	if err != nil || features.Algorithm == "" || !features.Balances(features.Algorithm) {
		t.Errorf("Features = %+v, %v; want an algorithm", features, err)
	}
}

// A known provider, too, may refuse something below a load balancer, such as a member of another IP
// family. Then the load balancer is made bare, as soon as its VIP is free.
func TestARefusedLoadBalancerIsBare(t *testing.T) {
	f := newFront(t)
	taken := true
	f.before = func(w http.ResponseWriter, r *http.Request, body object) bool {
		switch {
		case r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/lbaas/loadbalancers"):
			return false
		case strings.Contains(fmt.Sprint(body), "protocol:SCTP"):
			return says(w, 501, "Provider 'ovn' does not support a requested option: SCTP")
		case taken:
			return says(w, 500, "Provider 'ovn' reports error: IP address 10.252.0.200 already allocated in subnet s")
		}
		return false
	}
	target := f.services(t).target(t, "ovn")
	lb := balanced(target, "10.252.0.200", 1, 1)
	lb.Listeners[0].Protocol = "SCTP"
	for range 2 {
		f.asked(true)
		_, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb)
		if errors.Is(err, sdn.ErrConflict) != taken || err != nil && !taken {
			t.Errorf("CreateLoadBalancer with its VIP taken (%t): %v", taken, err)
		}
		if got := f.asked(true)["POST loadbalancers"]; got != 2 {
			t.Errorf("%d requests, want 2", got)
		}
		taken = false
	}
}

// That source ranges were refused once does not mean that the next load balancer may be made without.
func TestSourceRangesAreNotLearnedAway(t *testing.T) {
	f := newFront(t)
	f.rename = "acme"
	f.before = func(w http.ResponseWriter, r *http.Request, body object) bool {
		return strings.Contains(fmt.Sprint(body), "allowed_cidrs:[1") && strings.HasPrefix(r.URL.Path, "/load-balancer/") &&
			says(w, 501, "Provider 'acme' does not support a requested option: allowed_cidrs")
	}
	target := f.services(t).target(t, "acme")
	b, ctx := target.Backend, t.Context()
	for i := range 3 {
		lb := balanced(target, fmt.Sprintf("10.252.0.%d", 200+i), 1, 1)
		lb.Listeners[0].SourceRanges = []string{"10.0.0.0/8"}
		made, err := b.CreateLoadBalancer(ctx, serviceOwner, lb)
		if err != nil || len(made.Listeners) != 0 {
			t.Errorf("CreateLoadBalancer with ranges = %+v, %v; want a bare one, which nobody gets through", made, err)
		}
		f.asked(true)
		if _, err := b.CreateListener(ctx, made.ID, lb.Listeners[0]); !errors.Is(err, sdn.ErrUnsupported) {
			t.Errorf("CreateListener with ranges: %v, want ErrUnsupported", err)
		}
		if got := f.asked(true); got["POST listeners"] != 1 {
			t.Errorf("requests %v, want the provider to be asked each time", got)
		}
		open := lb.Listeners[0]
		open.SourceRanges = nil
		l, err := b.CreateListener(ctx, made.ID, open)
		must(t, err)
		if err := b.UpdateListener(ctx, made.ID, l.ID, lb.Listeners[0]); !errors.Is(err, sdn.ErrUnsupported) {
			t.Errorf("UpdateListener with ranges: %v, want ErrUnsupported: it stays open to all", err)
		}
	}
}

// A cloud without Octavia is asked for nothing, and its catalogue read again after a
// while only.
func TestNoOctavia(t *testing.T) {
	f := newFake(t)
	b := f.backend("one", func(c *openstack.Config) { c.CacheAge = time.Hour })
	for range 5 {
		_, err := b.ListLoadBalancers(t.Context())
		if !errors.Is(err, sdn.ErrNoService) || errors.Is(err, sdn.ErrUnavailable) || !strings.Contains(err.Error(), "load-balancer") {
			t.Errorf("ListLoadBalancers without an Octavia: %v, want ErrNoService naming the service", err)
		}
	}
	if got := f.counts(); len(got) != 1 || got["POST v3/auth/tokens"] != 1 {
		t.Errorf("requests %v, want one login", got)
	}
}

// An Octavia that is installed later is found, without a new token being due.
func TestOctaviaComesLater(t *testing.T) {
	f := newFront(t)
	var there atomic.Bool
	f.before = func(w http.ResponseWriter, r *http.Request, _ object) bool {
		if there.Load() || !strings.HasSuffix(r.URL.Path, "/auth/tokens") {
			return false
		}
		kept := httptest.NewRecorder()
		f.cloud.ServeHTTP(kept, r)
		maps.Copy(w.Header(), kept.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(kept.Code)
		_, _ = w.Write(bytes.ReplaceAll(kept.Body.Bytes(), []byte(`"load-balancer"`), []byte(`"none"`)))
		return true
	}
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", CacheAge: 50 * time.Millisecond})
	must(t, err)
	if _, err := b.ListLoadBalancers(t.Context()); !errors.Is(err, sdn.ErrNoService) {
		t.Errorf("ListLoadBalancers without an Octavia: %v, want ErrNoService", err)
	}
	there.Store(true)
	time.Sleep(50 * time.Millisecond)
	if _, err := b.ListLoadBalancers(t.Context()); err != nil {
		t.Errorf("ListLoadBalancers once there is one: %v", err)
	}
}

func TestNoRouters(t *testing.T) {
	f := newFront(t)
	f.before = func(w http.ResponseWriter, r *http.Request, _ object) bool {
		if !strings.Contains(r.URL.Path, "/floatingips") {
			return false
		}
		refuse(w, 404, "HTTPNotFound", "The resource could not be found.")
		return true
	}
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one"})
	must(t, err)
	for call, err := range map[string]error{
		"ListFloatingIPs":  second(b.ListFloatingIPs(t.Context(), "")),
		"CreateFloatingIP": second(b.CreateFloatingIP(t.Context(), serviceOwner, sdn.FloatingIPRequest{NetworkID: "n"})),
		"DeleteFloatingIP": b.DeleteFloatingIP(t.Context(), sdntest.MissingID, ""),
	} {
		if !errors.Is(err, sdn.ErrNoService) || errors.Is(err, sdn.ErrUnavailable) || errors.Is(err, sdn.ErrNotFound) {
			t.Errorf("%s of a Neutron without routers: %v, want ErrNoService", call, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
