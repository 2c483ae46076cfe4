// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
	"github.com/kuryr-go/kuryr/openstacksim/internal/neutron"
)

func later(o *neutron.Options) { o.Later = true }

// TestLaterRefuses covers what the recordings of 2025.1 leave open.
func TestLaterRefuses(t *testing.T) {
	zed, later := newDesk(t), newDesk(t, later)
	names := map[*desk]*strings.Replacer{}
	for _, d := range []*desk{zed, later} {
		net, _ := d.net("10.7.0.0/24")
		six, _ := d.net("fd07::/64")
		names[d] = strings.NewReplacer("NET", net, "SIX", six, "EMPTY", text(d.make(member, "network", object{}), "id"), "PORT", text(d.make(member, "port", object{"network_id": net}), "id"))
	}
	service := keystone.Caller{ProjectID: ours, Roles: []string{"admin", "service"}}
	for _, c := range []struct {
		name         string
		who          caller
		method, path string // NET (with a subnet), SIX (of IPv6), EMPTY and PORT stand for IDs
		body         string
		zed, later   string
	}{
		{"a profile, by an administrator", admin, "PUT", "/ports/PORT", `{"port": {"binding:profile": {"a": 1}}}`, "200", "403 PolicyNotAuthorized"},
		{"a profile, by a service", service, "PUT", "/ports/PORT", `{"port": {"binding:profile": {"a": 1}}}`, "200", "200"},
		{"tags by a POST", member, "POST", "/ports/PORT/tags", `{"tags": ["a"]}`, "405 HTTPMethodNotAllowed", "200"},
		{"a port of no router", admin, "POST", "/ports", `{"port": {"network_id": "NET", "device_owner": "network:router_interface", "device_id": "r"}}`,
			"201", "500 HTTPInternalServerError"},
		{"a flavor", member, "POST", "/routers", `{"router": {"flavor_id": "f"}}`, "400 HTTPBadRequest", "404 FlavorNotFound"},
		{"an MTU too small for a subnet", member, "PUT", "/networks/NET", `{"network": {"mtu": 499}}`, "200", "409 NetworkMTUSubnetConflict"},
		{"the smallest MTU of IPv4", member, "PUT", "/networks/NET", `{"network": {"mtu": 500}}`, "200", "200"},
		{"an MTU too small for IPv6", member, "PUT", "/networks/SIX", `{"network": {"mtu": 1279}}`, "200", "409 NetworkMTUSubnetConflict"},
		{"a small MTU without a subnet", member, "PUT", "/networks/EMPTY", `{"network": {"mtu": 499}}`, "200", "200"},
		{"a quota below the use, by force", admin, "PUT", "/quotas/" + ours, `{"quota": {"port": 0, "force": true}}`, "200", "200"},
		{"a quota below the use", admin, "PUT", "/quotas/" + ours, `{"quota": {"port": 0}}`, "200", "400 HTTPBadRequest"},
		{"a route to a shortened network", member, "POST", "/subnets",
			`{"subnet": {"network_id": "NET", "cidr": "10.8.0.0/24", "ip_version": 4, "host_routes": [{"destination": "10.1/16", "nexthop": "10.8.0.2"}]}}`,
			"201", "400 HTTPBadRequest"},
	} {
		for _, on := range []struct {
			*desk
			want string
		}{{zed, c.zed}, {later, c.later}} {
			id := names[on.desk]
			if got := refusal(on.ask(c.who, c.method, id.Replace(c.path), id.Replace(c.body))); got != on.want {
				t.Errorf("%s: %s, want %s", c.name, got, on.want)
			}
		}
	}
}

func TestLaterShowsSubnetsOfExternalNetworks(t *testing.T) {
	for _, release := range []struct {
		change func(*neutron.Options)
		want   int
	}{{func(*neutron.Options) {}, 0}, {later, 1}} {
		d := newDesk(t, release.change)
		net := text(d.make(admin, "network", object{"router:external": true}), "id")
		d.make(admin, "subnet", object{"network_id": net, "cidr": "10.50.0.0/24", "ip_version": 4})
		if _, answer := d.ask(other, "GET", "/subnets?network_id="+net, nil); len(answer["subnets"].(list)) != release.want {
			t.Errorf("subnets = %v, want %d", answer["subnets"], release.want)
		}
	}
}

// TestLaterPlugs checks that a port gets ACTIVE once, although its binding is committed at once.
func TestLaterPlugs(t *testing.T) {
	d := newDesk(t, later, activeLate)
	net, _ := d.net("10.7.0.0/24")
	p := d.make(admin, "port", object{"network_id": net, "binding:host_id": "n1"})
	id, seen := text(p, "id"), []any{p["status"], p["revision_number"]}
	d.wait()
	d.change("port", id, object{"name": "x"})
	d.wait()
	p = d.get("port", id)
	seen = append(seen, p["status"], p["revision_number"])
	if diff := cmp.Diff([]any{"DOWN", 3.0, "ACTIVE", 5.0}, seen); diff != "" {
		t.Errorf("status and revision (-want +got):\n%s", diff)
	}
}
