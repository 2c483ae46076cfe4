// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// simulated is a simulator as realServices wants it sabotaged.
type simulated struct{ *openstacksim.Cloud }

func (s simulated) dial(t *testing.T, text string) {
	t.Helper()
	set, err := dial.Parse([]byte(text))
	must(t, err)
	s.SetDials(set)
	t.Cleanup(func() { s.SetDials(&dial.Set{}) })
}

// slow has the first members take long: what is refused meanwhile are several requests.
func (s simulated) slow(t *testing.T) {
	s.dial(t, "{balancers: [{kind: member, action: create, times: 1, delay: 3s}, {delay: 300ms}]}")
}

func (s simulated) breaks(t *testing.T, update func()) {
	s.dial(t, "{balancers: [{kind: loadbalancer, action: update, outcome: ERROR}]}")
	update()
	s.SetDials(&dial.Set{})
}

func (s simulated) loseAnswer(t *testing.T) {
	s.dial(t, `{calls: [{on: "* POST /v2.0/lbaas/loadbalancers", times: 1, fault: lost}, {on: network POST /v2.0/floatingips, times: 1, fault: lost}, {on: network POST /v2.0/security-groups, times: 1, fault: lost}]}`)
}

// TestContractOfServicesSim runs the contract of the roles for Services against the
// simulator, with each of its providers, and with the default one of several.
func TestContractOfServicesSim(t *testing.T) {
	for _, provider := range []string{"ovn", "amphora", ""} {
		t.Run("provider "+provider, func(t *testing.T) {
			onEachRelease(t, func(t *testing.T, cloud *openstacksim.Cloud) {
				r := newRealServices(t, false)
				r.wreck = simulated{cloud}
				r.change = []func(*openstack.Config){func(c *openstack.Config) { c.RequestsPerSecond = 5000 }}
				target := r.target(t, provider)
				target.Without = withoutOctavia
				sdntest.RunServices(t, func(*testing.T) sdntest.ServiceTarget { return target })
			}, func(o *openstacksim.Options) { o.Amphora = true })
		})
	}
}

// withoutOctavia is a backend of a cloud whose catalogue has none.
func withoutOctavia(t *testing.T) sdntest.Services {
	cloud := openstacksim.Start(t, func(o *openstacksim.Options) { o.LBaaSv2 = true })
	b, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", Cloud: "kuryr", CloudsFile: cloud.CloudsFile(t)})
	must(t, err)
	return b
}

// TestContractOfServicesLBaaSv2 runs it against a simulated Neutron that serves load
// balancers itself.
func TestContractOfServicesLBaaSv2(t *testing.T) {
	cloud := openstacksim.Start(t, func(o *openstacksim.Options) { o.LBaaSv2, o.Quota = true, map[string]int{"loadbalancer": -1} })
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	r := newRealServices(t, true)
	r.wreck = simulated{cloud}
	r.change = append(r.change, func(c *openstack.Config) { c.RequestsPerSecond = 5000 })
	target := r.target(t, "haproxy")
	sdntest.RunServices(t, func(*testing.T) sdntest.ServiceTarget { return target })
}

// TestContractOfServicesOfAMember runs it with a credential that is no admin.
func TestContractOfServicesOfAMember(t *testing.T) {
	cloud := openstacksim.Start(t, func(o *openstacksim.Options) { o.Amphora = true })
	t.Setenv("OS_CLOUD", "admin")
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	r := newRealServices(t, false)
	r.project, _ = cloud.Project("k8s")
	r.wreck = simulated{cloud}
	r.change = []func(*openstack.Config){func(c *openstack.Config) { c.RequestsPerSecond, c.Cloud = 5000, "tenant" }}
	target := r.target(t, "amphora")
	target.Second = "" // a member has no other
	lb, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, balanced(target, "10.252.0.99", 0, 0))
	must(t, err)
	if err := target.Backend.FailOver(t.Context(), lb.ID); !errors.Is(err, sdn.ErrUnsupported) || errors.Is(err, sdn.ErrForbidden) {
		t.Errorf("FailOver, which takes an admin: %v, want ErrUnsupported", err)
	}
	sdntest.RunServices(t, func(*testing.T) sdntest.ServiceTarget { return target })
	theirs := balanced(target, "10.252.0.98", 0, 0)
	theirs.ProjectID = strings.Repeat("0", 32)
	_, err = target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, theirs)
	if !errors.Is(err, sdn.ErrForbidden) || !strings.Contains(err.Error(), "load-balancer_") {
		t.Errorf("CreateLoadBalancer in another project: %v, want ErrForbidden and what to do", err)
	}
}
