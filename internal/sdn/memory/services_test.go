// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

var (
	services4 = memory.Subnet{ID: "services-4", NetworkID: "services", Prefix: netip.MustParsePrefix("10.96.0.0/16")}
	services6 = memory.Subnet{ID: "services-6", NetworkID: "services", Prefix: netip.MustParsePrefix("fd00:96::/112")}
	pods4     = memory.Subnet{ID: "pods-4", NetworkID: "services", Prefix: netip.MustParsePrefix("10.1.0.0/16")}
	public    = memory.Subnet{ID: "public-4", NetworkID: "public", Prefix: netip.MustParsePrefix("203.0.113.0/24"), External: true}
)

// serviceCloud adapts a memory.Cloud to the contract of Services.
type serviceCloud struct {
	*memory.Cloud
	provider string
	lose     *atomic.Bool
}

func (c serviceCloud) MakeForeignLoadBalancer(_ *testing.T, vip v1.VIPAddress) string {
	return c.AddForeignLoadBalancer(sdn.LoadBalancer{Provider: c.provider, VIP: vip})
}

func (c serviceCloud) HasLoadBalancer(_ *testing.T, id string) bool {
	return slices.ContainsFunc(c.LoadBalancers(), func(i memory.BalancerItem) bool { return i.LoadBalancer.ID == id })
}

func (c serviceCloud) LimitLoadBalancers(_ *testing.T, n int) bool {
	have := 0
	for _, i := range c.LoadBalancers() {
		if i.LoadBalancer.ProjectID == "project" {
			have++
		}
	}
	c.SetLoadBalancerQuota(have + n)
	return true
}

func (c serviceCloud) Slow(t *testing.T) bool {
	f, err := c.Backend("one").Features(t.Context(), c.provider)
	if err != nil {
		t.Fatal(err)
	}
	c.SetProvider(memory.Provider{Features: f, Busy: 10, Halves: true})
	return true
}

func (c serviceCloud) Break(_ *testing.T, id string) bool {
	c.SetError(id)
	return true
}

func (c serviceCloud) Disable(_ *testing.T, id string) bool {
	c.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) {
		lb.Disabled = true
		for i := range lb.Listeners {
			lb.Listeners[i].Disabled, lb.Listeners[i].Pool.Disabled = true, true
			for j := range lb.Listeners[i].Pool.Members {
				lb.Listeners[i].Pool.Members[j].Disabled = true
			}
		}
	})
	return true
}

func (c serviceCloud) LoseTags(_ *testing.T, id string) bool {
	c.Cloud.LoseTags(id)
	return true
}

func (c serviceCloud) LoseAnswer(*testing.T) bool {
	c.lose.Store(true)
	return true
}

func (c serviceCloud) MakeForeignFloatingIP(*testing.T) string {
	return c.AddForeignFloatingIP(sdn.FloatingIPRequest{ProjectID: "project", NetworkID: public.NetworkID}).ID
}

func (c serviceCloud) HasFloatingIP(_ *testing.T, id string) bool {
	return slices.ContainsFunc(c.FloatingIPs(), func(i memory.FloatingIPItem) bool { return i.FloatingIP.ID == id })
}

func (c serviceCloud) LetIn(t *testing.T, groupID string) []sdn.Rule {
	all := c.SecurityGroups()
	i := slices.IndexFunc(all, func(i memory.SecurityGroupItem) bool { return i.Group.ID == groupID })
	if i < 0 {
		t.Fatalf("there is no security group %s", groupID)
	}
	return all[i].Group.Rules
}

func TestContractOfServices(t *testing.T) {
	for _, provider := range []string{"ovn", "amphora", "bare"} {
		t.Run(provider, func(t *testing.T) {
			sdntest.RunServices(t, func(*testing.T) sdntest.ServiceTarget { return serviceTarget(provider) })
		})
	}
	t.Run("a default that is not told", func(t *testing.T) {
		sdntest.RunServices(t, func(*testing.T) sdntest.ServiceTarget {
			target := serviceTarget("")
			target.Cloud.(serviceCloud).HideDefault()
			return target
		})
	})
}

func serviceTarget(provider string) sdntest.ServiceTarget {
	c := memory.New(services4, services6, pods4, public)
	c.AddFlavors("small")
	c.SetProvider(memory.Provider{Bare: true, Features: sdn.Features{Provider: "bare", Protocols: []string{"TCP", "UDP"}, Algorithm: "ROUND_ROBIN"}})
	lose := new(atomic.Bool)
	c.After = func(_ context.Context, call string, _ int) error {
		if (call == memory.CreateLoadBalancer || call == memory.CreateFloatingIP || call == memory.EnsureSecurityGroup) && lose.CompareAndSwap(true, false) {
			return sdn.ErrUnavailable
		}
		return nil
	}
	subnet := func(s memory.Subnet) sdntest.Subnet { return sdntest.Subnet{ID: s.ID, Prefix: s.Prefix} }
	return sdntest.ServiceTarget{
		Backend: c.Backend("one"), Other: c.Backend("two"), Cloud: serviceCloud{c, provider, lose},
		Fresh:     func(*testing.T) sdntest.Services { return c.Backend("one") },
		ProjectID: "project", Second: "other-project", Provider: provider, Missing: "no-such-provider",
		Subnet: subnet(services4), Far: subnet(pods4), Six: subnet(services6), NetworkID: services4.NetworkID,
		ExternalNetwork: public.NetworkID, External: subnet(public), Without: without,
	}
}

// without returns a backend of a cloud without load balancers.
func without(*testing.T) sdntest.Services {
	c := memory.New(services4, services6, pods4, public)
	c.ServeLoadBalancers(false)
	return c.Backend("one")
}

func TestLoadBalancersMayComeLater(t *testing.T) {
	c := memory.New(services4)
	b := c.Backend("one")
	c.ServeLoadBalancers(false)
	if _, err := b.ListLoadBalancers(t.Context()); !errors.Is(err, sdn.ErrNoService) {
		t.Errorf("ListLoadBalancers of a cloud without: %v, want ErrNoService", err)
	}
	c.ServeLoadBalancers(true)
	if _, err := b.ListLoadBalancers(t.Context()); err != nil {
		t.Errorf("ListLoadBalancers when there are: %v", err)
	}
}

func TestABrokenProviderEndsInError(t *testing.T) {
	c := memory.New(services4)
	b := c.Backend("one")
	f, err := b.Features(t.Context(), "amphora")
	if err != nil {
		t.Fatal(err)
	}
	c.SetProvider(memory.Provider{Features: f, Busy: memory.UntilSettled, Broken: true})
	lb, err := b.CreateLoadBalancer(t.Context(), owner, sdn.LoadBalancer{Provider: "amphora", VIP: v1.VIPAddress{SubnetID: services4.ID}})
	if err != nil || lb.VIP.IP == "" || lb.Provisioning != "PENDING_CREATE" {
		t.Fatalf("CreateLoadBalancer = %+v, %v; want it busy, at any address", lb, err)
	}
	for range 3 {
		if now, err := b.LoadBalancer(t.Context(), lb.ID); err != nil || now.Provisioning != "PENDING_CREATE" {
			t.Errorf("LoadBalancer before Settle = %+v, %v", now, err)
		}
	}
	c.Settle(lb.ID)
	if now, err := b.LoadBalancer(t.Context(), lb.ID); err != nil || now.Provisioning != sdn.ProvisioningError {
		t.Errorf("LoadBalancer after Settle = %+v, %v; want it in ERROR", now, err)
	}
	if err := b.DeleteLoadBalancer(t.Context(), lb.ID); !errors.As(err, new(*sdn.PendingError)) {
		t.Errorf("DeleteLoadBalancer = %v, want a PendingError", err)
	}
	c.Settle(lb.ID)
	if err := b.DeleteLoadBalancer(t.Context(), lb.ID); err != nil || len(c.LoadBalancers()) != 0 {
		t.Errorf("DeleteLoadBalancer after Settle = %v, %d are left", err, len(c.LoadBalancers()))
	}
}

func TestAListenerGoesInHalves(t *testing.T) {
	c := memory.New(services4)
	b := c.Backend("one")
	f, err := b.Features(t.Context(), "amphora")
	if err != nil {
		t.Fatal(err)
	}
	c.SetProvider(memory.Provider{Features: f, Halves: true}) // but not busy
	lb, err := b.CreateLoadBalancer(t.Context(), owner, sdn.LoadBalancer{
		Provider: "amphora", VIP: v1.VIPAddress{SubnetID: services4.ID}, Listeners: []sdn.Listener{{Protocol: "TCP", Port: 80, Pool: &sdn.Pool{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := lb.Listeners[0].ID
	if err := b.DeleteListener(t.Context(), lb.ID, l); !errors.As(err, new(*sdn.PendingError)) || c.LoadBalancers()[0].LoadBalancer.Listeners[0].Pool != nil {
		t.Errorf("DeleteListener = %v, want a PendingError and the pool gone", err)
	}
	if err := b.DeleteListener(t.Context(), lb.ID, l); err != nil || len(c.LoadBalancers()[0].LoadBalancer.Listeners) != 0 {
		t.Errorf("DeleteListener again = %v, want the listener gone, too", err)
	}
}
