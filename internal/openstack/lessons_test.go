// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// refusing is a cloud with a provider that nobody knows, which answers 501 to writes
// that say so. What it does not like is to be learned by what it cannot do only.
func refusing(t *testing.T, is func(method, text string) bool) (*openstack.Backend, sdn.LoadBalancer) {
	f := newFront(t)
	f.rename = "acme"
	target := f.services(t).target(t, "acme")
	wanted := balanced(target, "10.252.0.200", 1, 1)
	lb, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, wanted)
	must(t, err)
	_, err = target.Backend.CreateListener(t.Context(), lb.ID, wanted.Listeners[0])
	must(t, err)
	f.before = func(w http.ResponseWriter, r *http.Request, body object) bool {
		return r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, "/load-balancer/") && is(r.Method, fmt.Sprint(body)) &&
			says(w, 501, "Provider 'acme' does not support a requested option")
	}
	return target.Backend.(*openstack.Backend), lb
}

func TestAnOptionIsNotAProtocol(t *testing.T) {
	b, lb := refusing(t, func(_, text string) bool {
		return strings.Contains(text, "timeout_client_data:5") || strings.Contains(text, "connection_limit:5")
	})
	ctx, five, few := t.Context(), int64(5), int32(5)
	plain, err := b.CreateListener(ctx, lb.ID, sdn.Listener{Protocol: "UDP", Port: 53})
	must(t, err)
	for i, l := range []sdn.Listener{{TimeoutClientData: &five}, {ConnectionLimit: &few}} {
		for range 3 {
			l.Protocol, l.Port = "SCTP", int32(1000+i)
			if _, err := b.CreateListener(ctx, lb.ID, l); !errors.Is(err, sdn.ErrUnsupported) {
				t.Errorf("CreateListener with an option: %v, want ErrUnsupported", err)
			}
			l.Protocol = "UDP"
			if err := b.UpdateListener(ctx, lb.ID, plain.ID, l); !errors.Is(err, sdn.ErrUnsupported) {
				t.Errorf("UpdateListener with an option: %v, want ErrUnsupported", err)
			}
		}
	}
	f, err := b.Features(ctx, "acme")
	if err != nil || !slices.Contains(f.Protocols, "UDP") || !slices.Contains(f.Protocols, "SCTP") {
		t.Errorf("Features = %+v, %v; want UDP and SCTP: others have such listeners", f, err)
	}
}

// What is there and works is not taken away from anybody for a refusal.
func TestWhatIsActiveIsNotLearnedAway(t *testing.T) {
	refuses := false
	b, lb := refusing(t, func(method, _ string) bool { return refuses && (method == http.MethodPost || method == http.MethodPut) })
	ctx := t.Context()
	_, err := b.CreateListener(ctx, lb.ID, sdn.Listener{Protocol: "UDP", Port: 53})
	must(t, err)
	now, err := b.LoadBalancer(ctx, lb.ID)
	must(t, err)
	before, err := b.Features(ctx, "acme")
	must(t, err)
	refuses = true
	pool := *now.Listeners[0].Pool
	pool.Name = "another"
	for i := range 3 {
		for what, err := range map[string]error{
			"CreateListener": second(b.CreateListener(ctx, lb.ID, sdn.Listener{Protocol: "UDP", Port: int32(54 + i)})),
			"CreatePool":     second(b.CreatePool(ctx, lb.ID, now.Listeners[1].ID, sdn.Pool{})),
			"UpdatePool":     b.UpdatePool(ctx, lb.ID, pool.ID, pool),
		} {
			if !errors.Is(err, sdn.ErrUnsupported) {
				t.Errorf("%s: %v, want ErrUnsupported", what, err)
			}
		}
	}
	after, err := b.Features(ctx, "acme")
	if err != nil || !slices.Equal(before.Protocols, after.Protocols) || before.Algorithm != after.Algorithm {
		t.Errorf("Features were %+v and are %+v, %v; want the same", before, after, err)
	}
}

// OVN's provider stores affinity always, and heeds it of UDP and SCTP from 2023.1 on.
func TestAffinityOfOVN(t *testing.T) {
	f, newest := newFront(t), ""
	f.before = func(w http.ResponseWriter, r *http.Request, _ object) bool {
		if strings.Trim(r.URL.Path, "/") != "load-balancer" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object{"versions": []object{{"id": "v2.0"}, {"id": newest}}})
		return true
	}
	for version, times := range map[string]bool{"v2.13": false, "v2.26": false, "v2.27": true, "v2.30": true} {
		newest = version
		b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one"})
		must(t, err)
		got, err := b.Features(t.Context(), "ovn")
		if err != nil || !got.Affinity || !got.AffinityUnsure || got.TimesAffinity("UDP") != times || got.TimesAffinity("TCP") {
			t.Errorf("Features(ovn) of Octavia %s = %+v, %v; want affinity that is unsure for TCP, and a timeout for UDP: %t", version, got, err, times)
		}
		if got, err := b.Features(t.Context(), "amphora"); err != nil || !got.Affinity || got.AffinityUnsure {
			t.Errorf("Features(amphora) of Octavia %s = %+v, %v; want affinity", version, got, err)
		}
	}
}

// Octavia before 2025.1 tells its provider of a new pool's affinity only now and then. There such a
// pool has none, so that the caller updates it.
func TestAffinityOfNewPools(t *testing.T) {
	for _, release := range openstacksim.Releases {
		f := newFront(t, func(o *openstacksim.Options) { o.Release = release })
		target := f.services(t).target(t, "ovn")
		wanted := balanced(target, "10.252.0.200", 2, 1)
		for i := range wanted.Listeners {
			wanted.Listeners[i].Pool.AffinitySeconds = new(int32)
		}
		both := wanted.Listeners
		wanted.Listeners = both[:1]
		lb, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, wanted)
		must(t, err)
		second, err := target.Backend.CreateListener(t.Context(), lb.ID, both[1])
		must(t, err)
		for _, l := range []sdn.Listener{lb.Listeners[0], second} {
			if has, want := l.Pool.AffinitySeconds != nil, release != "zed"; has != want {
				t.Errorf("OpenStack %s: pool %s has affinity: %t, want %t", release, l.Pool.Name, has, want)
			}
		}
	}
}

// Where a new pool does not ask for affinity, a refusal of it says nothing about affinity.
func TestAffinityIsNotLearnedWhereItIsNotAsked(t *testing.T) {
	for _, release := range openstacksim.Releases {
		f := newFront(t, func(o *openstacksim.Options) { o.Release = release })
		f.rename = "acme"
		f.before = func(w http.ResponseWriter, r *http.Request, body object) bool {
			_, pool := body["pool"]
			refuses := r.Method == http.MethodPost && (pool || strings.Contains(fmt.Sprint(body), "default_pool"))
			return refuses && says(w, 501, "Provider 'acme' does not support a requested option")
		}
		target := f.services(t).target(t, "acme")
		b, ctx := target.Backend, t.Context()
		lb := balanced(target, "10.252.0.200", 1, 1)
		lb.Listeners[0].Pool.AffinitySeconds = new(int32)
		for i := range 2 {
			lb.VIP.IP = fmt.Sprintf("10.252.0.%d", 200+i)
			made, err := b.CreateLoadBalancer(ctx, serviceOwner, lb)
			must(t, err)
			if i == 0 {
				if _, err := b.CreateListener(ctx, made.ID, lb.Listeners[0]); !errors.Is(err, sdn.ErrUnsupported) {
					t.Errorf("OpenStack %s: CreateListener: %v, want ErrUnsupported", release, err)
				}
				lb.Listeners[0].Pool.AffinitySeconds = nil
			}
		}
		if got, err := b.Features(ctx, "acme"); err != nil || got.Affinity != (release == "zed") {
			t.Errorf("OpenStack %s: Features = %+v, %v; want affinity where it was not asked for", release, got, err)
		}
	}
}

// Zed's worker of amphorae is not told of the children in a request for a load balancer: with
// the Octavia that Zed and 2023.1 have, each child has a request of its own. Other providers, and
// later releases, get all by one.
func TestAmphoraLosesChildren(t *testing.T) {
	for _, test := range []struct {
		provider, release string
		want              int // listeners that come with it
	}{{"amphora", "zed", 0}, {"amphora", "2025.1", 1}, {"ovn", "zed", 1}} {
		f := newFront(t, func(o *openstacksim.Options) { o.Release = test.release })
		target := f.services(t).target(t, test.provider)
		sent := -1
		f.before = func(_ http.ResponseWriter, r *http.Request, body object) bool {
			if in, ok := body["loadbalancer"].(object); ok && r.Method == http.MethodPost {
				children, _ := in["listeners"].([]any)
				sent = len(children)
			}
			return false
		}
		lb, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, balanced(target, "10.252.0.200", 1, 1))
		if err != nil || sent != test.want || len(lb.Listeners) != test.want {
			t.Errorf("%s, %s: made with %d listeners, %d are shown, %v; want %d", test.provider, test.release, sent, len(lb.Listeners), err, test.want)
		}
	}
}
