// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/config"
	plan "github.com/kuryr-go/kuryr/internal/plan/preflight"
)

// holding are the names of the findings that a first start waits for.
func holding(r plan.Report) []string {
	var out []string
	for _, f := range r.Findings {
		if plan.Holds(f) {
			out = append(out, f.Name)
		}
	}
	return out
}

// tenant gives the cluster a project with a credential and a security group of its own, which the
// main credential does not see.
func (w *world) tenant(cloud string) string {
	w.user = "tenant"
	w.config.Services.SubnetIDs, w.config.Services.ExternalNetworkID, w.config.Services.ExternalSubnetID = nil, "", ""
	project := w.cloud.AddTenant(cloud)
	_, out := w.send("POST", "/networking/v2.0/security-groups", object{"security_group": object{"name": cloud, "project_id": project, "tenant_id": project}})
	group := out["security_group"].(object)["id"].(string)
	w.config.Projects = append(w.config.Projects, config.Project{ProjectID: project, Cloud: cloud, SecurityGroupIDs: []string{group}})
	return project
}

// holdsNothing fails the test if a first start waits.
func (w *world) holdsNothing(what string) {
	w.t.Helper()
	if h := holding(w.run()); len(h) > 0 {
		w.t.Fatalf("%s: a first start waits for %q, want nothing", what, h)
	}
}

// TestFirstStartHolds: a first start waits for what all pods or all Services need. What is wrong with
// one project, one router beside the gateway, or one of two addresses of DNS holds nobody else.
func TestFirstStartHolds(t *testing.T) {
	for _, c := range []struct {
		what   string
		found  string // is found; empty: nothing needs to be
		holds  bool
		change func(w *world)
	}{
		{"a disabled project with a credential of its own", "Error ProjectCredentialRefused", false, func(w *world) {
			w.tenant("red")
			w.holdsNothing("a project with a good credential")
			if err := w.cloud.SetProject("red", false); err != nil {
				w.t.Fatal(err)
			}
		}},
		{"a security group of a project", "Error SecurityGroupMissing", false, func(w *world) {
			w.config.Projects = []config.Project{{ProjectID: w.cloud.AddTenant("red"), SecurityGroupIDs: []string{missing}}}
		}},
		{"a security group of some pods", "Error SecurityGroupMissing", false, func(w *world) {
			w.config.Pods.SecurityGroups = []config.GroupRule{{SecurityGroupIDs: []string{missing}}}
		}},
		{"the security group of pods", "Error SecurityGroupMissing", true, func(w *world) { w.config.Pods.SecurityGroupIDs = []string{missing} }},
		{"a tenant's router in the Services' subnet", "Error RouterDown", false, func(w *world) {
			other := w.otherRouter()
			w.holdsNothing("a tenant's router that is on")
			w.put("router", other, object{"admin_state_up": false})
		}},
		{"the router of pods and Services, beside a tenant's", "Error RouterDown", true, func(w *world) {
			w.otherRouter()
			w.put("router", w.router, object{"admin_state_up": false})
		}},
		{"a host route by way of another subnet of the network", "", false, func(w *world) {
			w.make("subnet", object{"network_id": w.network, "ip_version": 4, "cidr": "10.9.0.0/24"})
			w.put("subnet", w.pods, object{"host_routes": []object{{"destination": "10.8.0.0/24", "nexthop": "10.9.0.7"}}})
		}},
		{"one of two addresses of DNS", "", false, func(w *world) {
			dns := w.objects[3].(*corev1.Service)
			dns.Spec.ClusterIPs = append(dns.Spec.ClusterIPs, "fd00:96::a")
		}},
		{"DNS", "Error DNSOutside", true, func(w *world) { w.objects[3] = dnsAt("10.200.0.10") }},
		{"a ServiceCIDR without Services", "Error ServiceRangeOutside", false, func(w *world) {
			w.objects = append(w.objects, serviceRange("more", "10.100.0.0/16"))
		}},
		{"a second subnet of pods, for when the first is full", "Error PodSubnetMissing", false, func(w *world) {
			w.config.Pods.MoreSubnetIDs = map[string][]string{w.pods: {missing}}
		}},
		{"the subnet of pods", "Error PodSubnetMissing", true, func(w *world) { w.config.Pods.SubnetIDs = []string{missing} }},
		{"a subnet of Services that none has an address of", "Error ServiceSubnetNotRouted", false, func(w *world) {
			more := w.make("subnet", object{"network_id": w.make("network", object{}), "ip_version": 4, "cidr": "10.100.0.0/16"})
			w.config.Services.SubnetIDs = append(w.config.Services.SubnetIDs, more)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t)
			c.change(w)
			r := w.run()
			if c.found != "" && !slices.Contains(names(r), c.found) {
				t.Errorf("Run found %q, want %s", names(r), c.found)
			}
			if h := holding(r); len(h) > 0 != c.holds {
				t.Errorf("a first start waits for %q, want that it waits is %v", h, c.holds)
			}
		})
	}
}
