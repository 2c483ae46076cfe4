// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// outside gives a simBed's router a network of floating IPs, and returns that network.
func (b *simBed) outside() string {
	b.t.Helper()
	net := b.cloud.make("network", map[string]any{"name": "outside", "router:external": true})
	b.cloud.make("subnet", map[string]any{"network_id": net, "cidr": "203.0.113.0/24", "ip_version": 4, "enable_dhcp": false})
	gateway := map[string]any{"router": map[string]any{"external_gateway_info": map[string]any{"network_id": net}}}
	if _, err := b.cloud.ask(http.MethodPut, fmt.Sprintf("/networking/v2.0/routers/%v", b.rows("router")[0]["id"]), gateway, &struct{}{}); err != nil {
		b.t.Fatal(err)
	}
	return net
}

// letIn returns what the one security group that Kuryr has created admits, and its ID. A rule is
// <protocol>:<port>:<prefix>; the rules are sorted. It returns nothing unless there is exactly one
// group.
func (b *simBed) letIn() (id string, rules []string) {
	b.t.Helper()
	for _, g := range b.rows("security-group") {
		if !strings.Contains(g["description"].(string), "kuryr.cluster=") {
			continue
		}
		if id != "" {
			return "", nil
		}
		id = g["id"].(string)
		for _, r := range g["security_group_rules"].([]any) {
			r := r.(map[string]any)
			rules = append(rules, fmt.Sprintf("%v:%v:%v", r["protocol"], r["port_range_min"], r["remote_ip_prefix"]))
		}
	}
	slices.Sort(rules)
	return id, rules
}

// groupsAt returns the security groups of the port with an address, sorted.
func (b *simBed) groupsAt(ip string) (ids []string) {
	b.t.Helper()
	for _, p := range b.rows("port") {
		for _, a := range p["fixed_ips"].([]any) {
			if a.(map[string]any)["ip_address"] == ip {
				for _, g := range p["security_groups"].([]any) {
					ids = append(ids, g.(string))
				}
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// TestSourceRangesInOpenStack: the security group that enforces the ranges of a Service of OVN's
// provider is in Neutron. In the end nothing of it is left.
func TestSourceRangesInOpenStack(t *testing.T) {
	b := newSimBed(t)
	own := b.cloud.make("security-group", map[string]any{"name": "pods"})
	net := b.outside()
	b.set(func(s *settings.Settings) {
		s.Pods.SecurityGroupIDs, s.Services.ExternalNetworkID = []string{own}, net
		s.Services.SourceRangesBySecurityGroups = true
	})
	b.launch(1000)
	one := b.bound(b.pod("one")).Spec.VIF.Addresses[0].IP
	svc := b.service("web", balanced, by("ovn"), func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} })
	b.slice("web", "web-1", one)
	b.eventuallyIn(time.Minute, "its floating IP shows", func() bool { return strings.HasPrefix(b.ingress(svc), "203.0.113.") })
	id, rules := b.letIn()
	if id == "" || !slices.Contains(rules, "tcp:8080:192.0.2.0/24") || slices.ContainsFunc(rules, func(r string) bool {
		return strings.HasPrefix(r, "<nil>") || strings.Contains(r, "0.0.0.0/0")
	}) {
		t.Errorf("group %q lets in %v, want 192.0.2.0/24 at 8080 and nothing that is not bounded", id, rules)
	}
	if got := b.groupsAt(one); !slices.Equal(got, inIDs(own, id)) {
		t.Errorf("the pod's port has %v, want %s and %s", got, own, id)
	}
	public := b.ingress(svc)
	b.patch(svc, map[string]any{"spec": map[string]any{"loadBalancerSourceRanges": []string{"198.51.100.0/24"}}})
	b.eventuallyIn(time.Minute, "the rules follow", func() bool {
		now, rules := b.letIn()
		return now == id && slices.Contains(rules, "tcp:8080:198.51.100.0/24") && !slices.Contains(rules, "tcp:8080:192.0.2.0/24")
	})
	if now := b.ingress(svc); now != public {
		t.Errorf("floating IP %s has become %q", public, now)
	}
	b.delete(svc)
	b.eventuallyIn(time.Minute, "all that is the Service's goes", func() bool {
		return b.now(svc) == nil && slices.Equal(b.groupsAt(one), []string{own}) && len(b.rows("floatingip")) == 0 && len(b.rows("security-group")) == 2
	})
}

func inIDs(ids ...string) []string {
	slices.Sort(ids)
	return ids
}
