// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// accepted is how Octavia answers to a change of quotas.
var accepted = &gophercloud.RequestOpts{OkCodes: []int{http.StatusAccepted}}

var serviceOwner = sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "web"}

// balanced is a load balancer at an address of the target's with ports times a
// listener with n members.
func balanced(target sdntest.ServiceTarget, address string, ports, n int) sdn.LoadBalancer {
	lb := sdn.LoadBalancer{Name: "default/web", ProjectID: target.ProjectID, Provider: target.Provider, VIP: v1.VIPAddress{IP: address, SubnetID: target.Subnet.ID}}
	for p := range ports {
		name := fmt.Sprintf("default/web:TCP:%d", 80+p)
		lb.Listeners = append(lb.Listeners, sdn.Listener{Name: name, Protocol: "TCP", Port: int32(80 + p), Pool: &sdn.Pool{Name: name, Members: endpoints(target, n)}})
	}
	return lb
}

func endpoints(target sdntest.ServiceTarget, n int) []sdn.Member {
	var out []sdn.Member
	for i := range n {
		out = append(out, sdn.Member{Name: fmt.Sprintf("default/pod-%d", i), IP: fmt.Sprintf("10.252.0.%d", 10+i), Port: 8080, SubnetID: target.Subnet.ID})
	}
	return out
}

func TestCallsOfLoadBalancers(t *testing.T) {
	for _, provider := range []string{"ovn", "amphora"} {
		t.Run(provider, func(t *testing.T) {
			f := newFront(t, recent)
			target := f.services(t, func(c *openstack.Config) { c.PageSize = 500 }).target(t, provider)
			b, ctx := target.Backend, t.Context()
			step := func(what string, want map[string]int, call func() error) {
				t.Helper()
				must(t, call())
				if diff := cmp.Diff(want, f.asked(true)); diff != "" {
					t.Errorf("requests that write, %s: (-want +got)\n%s", what, diff)
				}
			}
			var lb sdn.LoadBalancer
			step("a load balancer of 3 ports with 30 endpoints", map[string]int{"POST loadbalancers": 1}, func() (err error) {
				lb, err = b.CreateLoadBalancer(ctx, serviceOwner, balanced(target, "10.252.0.200", 3, 30))
				return err
			})
			if _, err := b.LoadBalancer(ctx, lb.ID); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, times := range f.asked(false) {
				n += times
			}
			if n != 6 {
				t.Errorf("%d requests to read it, want 6", n)
			}
			pool, all := lb.Listeners[0].Pool.ID, endpoints(target, 60)
			one, batch := map[string]int{"POST pools/ID/members": 1}, map[string]int{"PUT pools/ID/members": 1}
			step("one endpoint more", one, func() error { return b.ChangeMembers(ctx, lb.ID, pool, all[30:31], nil) })
			step("half of them replaced", batch, func() error { return b.ChangeMembers(ctx, lb.ID, pool, nil, all[:16]) })
			few := batch
			if provider == "ovn" { // which would work at all the others, too
				few = map[string]int{"POST pools/ID/members": 2, "DELETE pools/ID/members/ID": 1}
			}
			step("a few more and less", few, func() error { return b.ChangeMembers(ctx, lb.ID, pool, all[31:33], all[20:21]) })
			step("nothing changes", map[string]int{}, func() error { return b.ChangeMembers(ctx, lb.ID, pool, all[31:33], all[20:21]) })
			now, err := b.LoadBalancer(ctx, lb.ID)
			must(t, err)
			got := now.Listeners[0].Pool.Members
			if len(got) != 16 {
				t.Errorf("%d members are left, want 16", len(got))
			}
			step("one endpoint less", map[string]int{"DELETE pools/ID/members/ID": 1}, func() error { return b.ChangeMembers(ctx, lb.ID, pool, nil, got[:1]) })
			step("all go", map[string]int{"DELETE loadbalancers/ID": 1}, func() error {
				if err := b.DeleteLoadBalancer(ctx, lb.ID); !errors.As(err, new(*sdn.PendingError)) {
					return fmt.Errorf("DeleteLoadBalancer: %w, want a PendingError", err)
				}
				return nil
			})
		})
	}
}

// TestRequestsOfManyMembers: as few as the time allows that each may take.
func TestRequestsOfManyMembers(t *testing.T) {
	batch := map[string]int{"PUT pools/ID/members": 1}
	for provider, want := range map[string]struct {
		made               []int
		most, filled, some map[string]int
	}{
		"amphora": {made: []int{50, 50, 50}, filled: map[string]int{}, some: batch, most: batch},
		"ovn": {
			made: []int{50, 50, 5}, filled: batch, most: batch, // OVN's driver works at all, also at those that go
			some: map[string]int{"POST pools/ID/members": 2, "DELETE pools/ID/members/ID": 2},
		},
	} {
		t.Run(provider, func(t *testing.T) {
			f := newFront(t, recent)
			target := f.services(t, func(c *openstack.Config) { c.PageSize = 500 }).target(t, provider)
			b, ctx := target.Backend, t.Context()
			lb, err := b.CreateLoadBalancer(ctx, serviceOwner, balanced(target, "10.252.0.200", 3, 50))
			must(t, err)
			var made []int
			for _, l := range lb.Listeners {
				made = append(made, len(l.Pool.Members))
			}
			if diff := cmp.Diff(want.made, made); diff != "" {
				t.Errorf("members that a new one comes with (-want +got):\n%s", diff)
			}
			all := endpoints(target, 160)
			step := func(what string, want map[string]int, add, remove []sdn.Member) {
				t.Helper()
				f.asked(true)
				must(t, b.ChangeMembers(ctx, lb.ID, lb.Listeners[2].Pool.ID, add, remove))
				if diff := cmp.Diff(want, f.asked(true)); diff != "" {
					t.Errorf("requests that write, %s: (-want +got)\n%s", what, diff)
				}
			}
			if len(want.filled) > 0 {
				step("the rest", want.filled, all[:50], nil)
			}
			step("two are replaced", want.some, all[50:52], all[:2])
			step("ten are", batch, all[60:70], all[2:12])
			now, err := b.LoadBalancer(ctx, lb.ID)
			must(t, err)
			step("all are", want.most, all[100:150], now.Listeners[2].Pool.Members)
			if now, err = b.LoadBalancer(ctx, lb.ID); err != nil || len(now.Listeners[2].Pool.Members) != 50 {
				t.Errorf("%d members are left, %v; want 50", len(now.Listeners[2].Pool.Members), err)
			}
		})
	}
}

// What takes longer than a request may is made in parts.
func TestVeryManyMembers(t *testing.T) {
	for provider, want := range map[string]struct{ filled, add, remove int }{"ovn": {100, 20, 20}, "amphora": {450, 1, 1}} {
		t.Run(provider, func(t *testing.T) {
			f := newFront(t, recent)
			target := f.services(t, func(c *openstack.Config) { c.PageSize = 500 }).target(t, provider)
			b, ctx := target.Backend, t.Context()
			full := balanced(target, "10.252.0.200", 1, 0)
			for i := range 500 {
				full.Listeners[0].Pool.Members = append(full.Listeners[0].Pool.Members, sdn.Member{IP: fmt.Sprintf("10.252.%d.%d", 2+i/250, i%250), Port: 80, SubnetID: target.Subnet.ID})
			}
			all := full.Listeners[0].Pool.Members
			lb, err := b.CreateLoadBalancer(ctx, serviceOwner, full)
			if err != nil || len(lb.Listeners[0].Pool.Members) != want.filled {
				t.Fatalf("CreateLoadBalancer: %v, with %d members", err, len(lb.Listeners[0].Pool.Members))
			}
			f.asked(false)
			calls := func(add, remove []sdn.Member) (n int) {
				t.Helper()
				for n = 1; ; n++ {
					err := b.ChangeMembers(ctx, lb.ID, lb.Listeners[0].Pool.ID, add, remove)
					if err == nil {
						return n
					}
					if !errors.As(err, new(*sdn.PendingError)) || n > 100 {
						t.Fatalf("ChangeMembers: %v", err)
					}
				}
			}
			if n := calls(all, nil); n != want.add {
				t.Errorf("%d calls to add 400 members, want %d", n, want.add)
			}
			if n := calls(nil, all[100:]); n != want.remove {
				t.Errorf("%d calls to remove 400 members, want %d", n, want.remove)
			}
			now, err := b.LoadBalancer(ctx, lb.ID)
			if err != nil || len(now.Listeners[0].Pool.Members) != 100 {
				t.Errorf("%d members are left, %v; want 100", len(now.Listeners[0].Pool.Members), err)
			}
		})
	}
}

// What has gone is not remembered for ever; nor does that it goes make lists longer.
func TestWhatHasGoneIsForgotten(t *testing.T) {
	for _, behind := range []bool{false, true} {
		f := newFront(t)
		r := f.services(t)
		target := r.target(t, "amphora")
		b, ctx := target.Backend, t.Context()
		list := func() (n int) {
			t.Helper()
			f.asked(false)
			all, err := b.ListLoadBalancers(ctx)
			must(t, err)
			if got := f.asked(false)["GET loadbalancers"]; got > 1 && !behind {
				t.Errorf("%d requests for a list, want 1", got)
			}
			return len(all)
		}
		before := b.(*openstack.Backend).Remembered()
		list()
		lb, err := b.CreateLoadBalancer(ctx, serviceOwner, balanced(target, "10.252.0.200", 2, 3))
		must(t, err)
		for now := lb; now.Provisioning != sdn.ProvisioningActive; {
			now, err = b.LoadBalancer(ctx, lb.ID)
			must(t, err)
		}
		if b.(*openstack.Backend).Remembered() == before {
			t.Error("nothing is remembered of a load balancer")
		}
		if behind {
			must(t, r.sweepBalancers(ctx))
		} else if err := b.DeleteLoadBalancer(ctx, lb.ID); !errors.As(err, new(*sdn.PendingError)) {
			t.Errorf("DeleteLoadBalancer: %v, want a PendingError", err)
		}
		for list() > 0 {
			time.Sleep(time.Millisecond)
		}
		if got := b.(*openstack.Backend).Remembered(); got != before {
			t.Errorf("%d things are remembered of a load balancer that has gone (behind our back: %t)", got-before, behind)
		}
	}
}

// An Octavia of long ago has no tags, and much else besides.
func TestOldOctavia(t *testing.T) {
	f := newFront(t)
	f.before = func(w http.ResponseWriter, r *http.Request, body object) bool {
		path, ours := strings.CutPrefix(r.URL.Path, "/load-balancer/")
		if !ours {
			return false
		}
		if path == "" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"versions": [{"id": "v1", "status": "SUPPORTED"}, {"id": "v2.0", "status": "CURRENT"}]}`))
			return true
		}
		for _, q := range []string{"tags", "fields", "additive_only"} {
			if r.URL.Query().Has(q) {
				return says(w, 400, "Unknown argument: %q", q)
			}
		}
		// The contract's own client makes foreign ones with tags.
		if lb, ok := body["loadbalancer"].(object); ok && lb["name"] == "foreign" {
			return false
		}
		for _, word := range []string{"tags", "allowed_cidrs", "timeout_client_data"} {
			if strings.Contains(fmt.Sprint(body), word+":") {
				return says(w, 400, "Unknown attribute for argument: %s", word)
			}
		}
		return false
	}
	r := f.services(t)
	r.tagless = true
	target := r.target(t, "amphora")
	features, err := target.Backend.Features(t.Context(), "amphora")
	must(t, err)
	if diff := cmp.Diff([]string{"TCP"}, features.Protocols); diff != "" || features.SourceRanges || features.Timeouts || features.ManyProtocols {
		t.Errorf("Features of an Octavia 2.0 = %+v", features)
	}
	sdntest.RunServices(t, func(*testing.T) sdntest.ServiceTarget { return target })
}

// OVN's driver leaves the VIP's port behind when a child of a new load balancer is
// refused, here for a quota of pools.
func TestLeftoverOfARefusedLoadBalancer(t *testing.T) {
	var age atomic.Int64
	f := newFront(t, func(o *openstacksim.Options) {
		o.Now = func() time.Time { return time.Now().Add(-time.Duration(age.Load())) }
	})
	r := f.services(t)
	target := r.target(t, "ovn")
	lb := balanced(target, "10.252.0.200", 1, 1)
	quota := func(pools any) {
		_, err := r.balancer.Put(t.Context(), r.balancer.ServiceURL("lbaas", "quotas", r.project), object{"quota": object{"pool": pools}}, nil, accepted)
		must(t, err)
	}
	quota(0)
	age.Store(int64(time.Hour))
	_, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb)
	if !errors.Is(err, sdn.ErrQuota) {
		t.Fatalf("CreateLoadBalancer: %v, want ErrQuota", err)
	}
	quota(-1)
	age.Store(0)
	if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb); err != nil {
		t.Errorf("CreateLoadBalancer when there is room: %v, want the leftover out of the way", err)
	}
	quota(1)
	lb.VIP.IP = "10.252.0.202"
	for range 2 { // the first leaves nothing in the way of the second
		if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb); !errors.Is(err, sdn.ErrQuota) {
			t.Fatalf("CreateLoadBalancer: %v, want ErrQuota", err)
		}
	}
	quota(-1)
	if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb); err != nil {
		t.Errorf("CreateLoadBalancer when there is room: %v, want its own leftover to be gone", err)
	}
}

// So does an octavia-api that dies in a creation. Its load balancer is not seen, but its port is.
// The next creation removes the port if it cannot be of a load balancer that is being created.
func TestLeftoverOfAKilledCreation(t *testing.T) {
	for _, tc := range []struct {
		name, provider string
		others         bool // another project's
		age            time.Duration
		want           error
	}{
		{"at once", "ovn", false, 0, sdn.ErrConflict},
		{"after a restart", "ovn", false, 15 * time.Second, nil},
		{"of amphora's API", "amphora", false, 15 * time.Second, nil},
		{"in another project", "ovn", true, 5 * time.Minute, sdn.ErrConflict},
		{"in another project, long ago", "ovn", true, time.Hour, sdn.ErrConflict},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var age atomic.Int64
			f := newFront(t, func(o *openstacksim.Options) {
				o.Now = func() time.Time { return time.Now().Add(-time.Duration(age.Load())) }
			})
			r := f.services(t)
			target := r.target(t, tc.provider)
			lb := balanced(target, "10.252.0.230", 1, 1)
			project := r.project
			if tc.others {
				project, _ = f.cloud.Project("k8s")
			}
			if tc.others == (project == lb.ProjectID) {
				t.Fatalf("the leftover is of project %s, the load balancer of %s", project, lb.ProjectID)
			}
			body := object{"loadbalancer": object{"name": "lost", "vip_subnet_id": lb.VIP.SubnetID, "vip_address": lb.VIP.IP, "provider": tc.provider, "project_id": project}}
			must(t, f.cloud.Dial("load-balancer POST /v2/lbaas/loadbalancers: {times: 1, fault: rolled-back}"))
			age.Store(int64(tc.age))
			if _, err := r.balancer.Post(t.Context(), r.balancer.ServiceURL("lbaas", "loadbalancers"), body, nil, nil); err == nil {
				t.Fatal("an octavia-api that is killed has answered")
			}
			age.Store(0)
			if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb); !errors.Is(err, tc.want) {
				t.Errorf("CreateLoadBalancer: %v, want %v", err, tc.want)
			}
		})
	}
}

// So does amphora's API, with a port of another name.
func TestLeftoverOfAmphora(t *testing.T) {
	var age atomic.Int64
	f := newFront(t, func(o *openstacksim.Options) {
		o.Now = func() time.Time { return time.Now().Add(-time.Duration(age.Load())) }
	})
	r := f.services(t)
	target := r.target(t, "amphora")
	lb := balanced(target, "10.252.0.200", 1, 1)
	body := object{"loadbalancer": object{"name": "another's", "vip_subnet_id": lb.VIP.SubnetID, "vip_address": lb.VIP.IP, "provider": "amphora", "project_id": r.project,
		"listeners": []object{{"name": "l", "protocol": "TCP", "protocol_port": 80, "default_pool": object{"name": "p", "protocol": "TCP", "lb_algorithm": "NONE"}}}}}
	age.Store(int64(time.Hour))
	_, err := r.balancer.Post(t.Context(), r.balancer.ServiceURL("lbaas", "loadbalancers"), body, nil, nil) // somebody else's, or of a process that died
	if err == nil {
		t.Fatal("a load balancer with an algorithm that there is not was made")
	}
	age.Store(0)
	if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb); err != nil {
		t.Errorf("CreateLoadBalancer at a VIP that an hour-old leftover has: %v", err)
	}
}

// A creation that is refused leaves nothing in the way of the next, whatever it was refused for.
func TestNoLeftoverOfARefusal(t *testing.T) {
	for _, provider := range []string{"ovn", "amphora"} {
		t.Run(provider, func(t *testing.T) {
			f := newFront(t, recent)
			target := f.services(t).target(t, provider)
			good := balanced(target, "10.252.0.210", 1, 1)
			bad := balanced(target, "10.252.0.210", 1, 1)
			bad.Listeners[0].Pool.Members[0].IP = "169.254.169.254" // Octavia's reserved_ips
			for range 2 {
				_, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, bad)
				if !errors.Is(err, sdn.ErrInvalid) || sdn.FieldOf(err) != sdn.FieldMember {
					t.Errorf("CreateLoadBalancer with a reserved address: %v, want ErrInvalid of the member", err)
				}
			}
			if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, good); err != nil {
				t.Errorf("CreateLoadBalancer without it: %v", err)
			}
		})
	}
}

// A port of another project at the VIP is somebody else's, whatever its age and name: of a load
// balancer under creation, which Octavia does not show yet. No call deletes it, and a creation that
// it prevents names it.
func TestPortOfAnotherProjectAtTheVIP(t *testing.T) {
	for name, makes := range map[string]func(t *testing.T, b sdn.LoadBalancers, lb sdn.LoadBalancer){
		"FreeVIP": func(t *testing.T, b sdn.LoadBalancers, lb sdn.LoadBalancer) {
			must(t, b.FreeVIP(t.Context(), lb.ProjectID, lb.VIP, ""))
		},
		"FreeVIP in the credential's project": func(t *testing.T, b sdn.LoadBalancers, lb sdn.LoadBalancer) {
			must(t, b.FreeVIP(t.Context(), "", lb.VIP, ""))
		},
		"CreateLoadBalancer": func(t *testing.T, b sdn.LoadBalancers, lb sdn.LoadBalancer) {
			if _, err := b.CreateLoadBalancer(t.Context(), serviceOwner, lb); !errors.Is(err, sdn.ErrConflict) || !strings.Contains(err.Error(), lb.VIP.IP) {
				t.Errorf("CreateLoadBalancer at a VIP of another project: %v, want ErrConflict that names it", err)
			}
		},
	} {
		for age, ago := range map[string]time.Duration{"new": 0, "old": time.Hour} {
			t.Run(name+", "+age, func(t *testing.T) {
				var past atomic.Int64
				f := newFront(t, func(o *openstacksim.Options) {
					o.Now = func() time.Time { return time.Now().Add(-time.Duration(past.Load())) }
				})
				r := f.services(t)
				target := r.target(t, "amphora")
				lb := balanced(target, "10.252.0.225", 1, 1)
				const id = "12345678-0000-4000-8000-000000000001"
				past.Store(int64(ago))
				port, err := ports.Create(t.Context(), r.client, ports.CreateOpts{
					NetworkID: target.NetworkID, ProjectID: f.cloud.AddTenant("other"), Name: "octavia-lb-" + id, DeviceOwner: "Octavia", DeviceID: "lb-" + id,
					FixedIPs: []ports.IP{{SubnetID: lb.VIP.SubnetID, IPAddress: lb.VIP.IP}},
				}).Extract()
				must(t, err)
				past.Store(0)
				makes(t, target.Backend, lb)
				if _, err := ports.Get(t.Context(), r.client, port.ID).Extract(); err != nil {
					t.Errorf("port %s of another project after %s: %v, want it untouched", port.Name, name, err)
				}
			})
		}
	}
}

// What a creation without an answer has left is removed when the Service goes, at once.
// The VIP of a load balancer that there is, and a port of something else, stay.
func TestFreeVIP(t *testing.T) {
	for _, provider := range []string{"ovn", "amphora"} {
		t.Run(provider, func(t *testing.T) {
			f := newFront(t)
			r := f.services(t)
			target := r.target(t, provider)
			lb := balanced(target, "10.252.0.220", 1, 1)
			must(t, f.cloud.Dial("load-balancer POST /v2/lbaas/loadbalancers: {times: 1, fault: rolled-back}"))
			if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb); !errors.Is(err, sdn.ErrUnavailable) {
				t.Fatalf("CreateLoadBalancer of an octavia-api that is killed: %v, want ErrUnavailable", err)
			}
			if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb); !errors.Is(err, sdn.ErrConflict) {
				t.Errorf("CreateLoadBalancer right after: %v, want ErrConflict: the port may be of one that is being made", err)
			}
			must(t, target.Backend.FreeVIP(t.Context(), lb.ProjectID, lb.VIP, ""))
			made, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb)
			if err != nil {
				t.Fatalf("CreateLoadBalancer after FreeVIP: %v", err)
			}
			must(t, target.Backend.FreeVIP(t.Context(), lb.ProjectID, lb.VIP, ""))
			if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb); !errors.Is(err, sdn.ErrConflict) {
				t.Errorf("CreateLoadBalancer after FreeVIP of %s's VIP: %v, want ErrConflict", made.ID, err)
			}
			// Amphora's word for it from 2023.2 to 2025.1.
			must(t, f.cloud.Dial(`load-balancer POST /v2/lbaas/loadbalancers: {fault: {status: 500, message: "Provider 'amphora' reports error: ConflictException: 409"}}`))
			if _, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb); !errors.Is(err, sdn.ErrConflict) {
				t.Errorf("CreateLoadBalancer at a VIP that is taken, told without a word: %v, want ErrConflict", err)
			}
		})
	}
}

// What a killed creation has left at an address that nobody knows is listed once a later load balancer
// proves that the creation has ended, or after an hour. Neither a load balancer's VIP is, nor another
// project's port, nor a port of something else.
func TestLeftVIPs(t *testing.T) {
	for _, provider := range []string{"ovn", "amphora"} {
		t.Run(provider, func(t *testing.T) {
			var age atomic.Int64
			f := newFront(t, func(o *openstacksim.Options) {
				o.Now = func() time.Time { return time.Now().Add(-time.Duration(age.Load())) }
			})
			r := f.services(t)
			target := r.target(t, provider)
			lb := balanced(target, "", 1, 1)
			left := func(project string) map[string]v1.VIPAddress {
				t.Helper()
				all, err := target.Backend.LeftVIPs(t.Context(), project, lb.VIP.SubnetID)
				must(t, err)
				return all
			}
			leave := func(project string) {
				t.Helper()
				body := object{"loadbalancer": object{"name": "lost", "vip_subnet_id": lb.VIP.SubnetID, "provider": provider, "project_id": project}}
				must(t, f.cloud.Dial("load-balancer POST /v2/lbaas/loadbalancers: {times: 1, fault: rolled-back}"))
				if _, err := r.balancer.Post(t.Context(), r.balancer.ServiceURL("lbaas", "loadbalancers"), body, nil, nil); err == nil {
					t.Fatal("an octavia-api that is killed has answered")
				}
			}
			foreign := func(project string) {
				t.Helper()
				body := object{"loadbalancer": object{"name": "foreign", "vip_subnet_id": lb.VIP.SubnetID, "provider": provider, "project_id": project}}
				_, err := r.balancer.Post(t.Context(), r.balancer.ServiceURL("lbaas", "loadbalancers"), body, nil, nil)
				must(t, err)
			}
			age.Store(int64(time.Minute))
			foreign(lb.ProjectID)
			first, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, lb)
			must(t, err)
			age.Store(int64(30 * time.Second))
			leave(lb.ProjectID)
			other, _ := f.cloud.Project("k8s")
			leave(other)
			if got := left(lb.ProjectID); len(got) > 0 {
				t.Errorf("LeftVIPs = %v before a later load balancer exists, want none: the creation may be under way", got)
			}
			age.Store(0)
			foreign(lb.ProjectID)
			got := left(lb.ProjectID)
			if len(got) != 1 {
				t.Fatalf("LeftVIPs = %v, want one", got)
			}
			if some, err := target.Fresh(t).LeftVIPs(t.Context(), lb.ProjectID, lb.VIP.SubnetID); err != nil || len(some) > 0 {
				t.Errorf("LeftVIPs = %v, %v of a process that knows no load balancer there, want none", some, err)
			}
			for id, vip := range got {
				if vip.SubnetID != lb.VIP.SubnetID || vip.IP == first.VIP.IP {
					t.Errorf("LeftVIPs = %v, want an address of subnet %s other than %s", got, lb.VIP.SubnetID, first.VIP.IP)
				}
				must(t, target.Backend.FreeVIP(t.Context(), lb.ProjectID, vip, first.VIPPortID))
				if still := left(lb.ProjectID); len(still) != 1 {
					t.Errorf("LeftVIPs = %v after FreeVIP for another port, want the same", still)
				}
				must(t, target.Backend.FreeVIP(t.Context(), lb.ProjectID, vip, id))
			}
			if got := left(lb.ProjectID); len(got) > 0 {
				t.Errorf("LeftVIPs = %v after FreeVIP, want none", got)
			}
			if got := left(other); len(got) > 0 {
				t.Errorf("LeftVIPs of the other project = %v, want none yet", got)
			}
			age.Store(int64(2 * time.Hour))
			leave(lb.ProjectID)
			age.Store(0)
			if got := left(lb.ProjectID); len(got) != 1 {
				t.Errorf("LeftVIPs = %v, want the one of two hours ago", got)
			}
		})
	}
}

func TestWordsOfOctavia(t *testing.T) {
	tests := []struct {
		status int
		said   string
		want   error
	}{
		{403, "Quota has been met for resources: Load Balancer", sdn.ErrQuota},
		{403, "Policy does not allow this request to be performed.", sdn.ErrForbidden},
		{404, "Subnet x not found.", sdn.ErrInvalid},
		{404, "nothing of the kind", sdn.ErrUnavailable},
		{400, "Validation failure: Invalid flavor_id.", sdn.ErrInvalid},
		{409, "Already an entity with that specified id.", sdn.ErrConflict},
		{409, "Provider 'amphora' reports error: IP address 10.252.0.200 already allocated in subnet s.", sdn.ErrConflict},
		{409, "Provider 'amphora' reports error: Quota exceeded for resources: ['port'].", sdn.ErrQuota},
		{409, "Provider 'amphora' reports error: No more IP addresses available on network n.", sdn.ErrQuota},
		{500, "Provider 'amphora' reports error: ConflictException: 409", sdn.ErrQuota}, // nobody has the address
		{500, "Provider 'amphora' reports error: BadRequestException: 400", sdn.ErrInvalid},
		{429, "slow down", sdn.ErrUnavailable},
		{500, "Provider 'ovn' reports error: IP address 10.252.0.200 already allocated in subnet s", sdn.ErrConflict},
		{500, "Provider 'ovn' reports error: No more IP addresses available on network n.", sdn.ErrQuota},
		{500, "Provider 'ovn' reports error: Quota exceeded for resources: ['port'].", sdn.ErrQuota},
		{500, "Provider 'ovn' reports error: IP address 1.1.1.1 is not a valid IP for the specified subnet.", sdn.ErrInvalid},
		{500, "'NoneType' object has no attribute 'x'", sdn.ErrUnavailable},
		{501, "Provider 'x' does not support a requested option", sdn.ErrUnsupported},
		{503, "", sdn.ErrUnavailable},
	}
	f := newFront(t)
	target := f.services(t).target(t, "ovn")
	for _, test := range tests {
		f.before = func(w http.ResponseWriter, r *http.Request, _ object) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/lbaas/loadbalancers") && says(w, test.status, "%s", test.said)
		}
		_, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, balanced(target, "10.252.0.200", 0, 0))
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.said) {
			t.Errorf("CreateLoadBalancer answered by %d %q: %v, want %v", test.status, test.said, err, test.want)
		}
	}
}

func TestMetricsOfLoadBalancers(t *testing.T) {
	f, registry := newFront(t), prometheus.NewRegistry()
	target := f.services(t, func(c *openstack.Config) { c.Metrics = registry }).target(t, "ovn")
	lb, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, balanced(target, "10.252.0.200", 1, 1))
	must(t, err)
	must(t, target.Backend.ChangeMembers(t.Context(), lb.ID, lb.Listeners[0].Pool.ID, endpoints(target, 2)[1:], nil))
	families, err := registry.Gather()
	must(t, err)
	text := fmt.Sprint(families)
	for _, want := range []string{
		`name:"resource"  value:"members"`, `name:"resource"  value:"loadbalancers"`, `name:"service"  value:"load-balancer"`,
	} {
		if !strings.Contains(strings.ReplaceAll(text, " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("metrics have no %s", want)
		}
	}
}
