// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fieldOf lists resources and returns a field of each.
func (d *desk) fieldOf(many, query, field string) []any {
	d.t.Helper()
	status, answer := d.ask(admin, http.MethodGet, "/"+many+query, nil)
	if status != http.StatusOK {
		d.t.Fatalf("GET %s%s: %d %v", many, query, status, answer)
	}
	out := []any{}
	for _, e := range answer[many].(list) {
		out = append(out, e.(object)[field])
	}
	return out
}

// TestWhoSeesWhat: other projects' networks are visible if shared or external, their subnets only
// if shared. A member does not see what carries a network.
func TestWhoSeesWhat(t *testing.T) {
	d := newDesk(t)
	for name, more := range map[string]object{"plain": {}, "shared": {"shared": true}, "outer": {"router:external": true}} {
		more["name"], more["project_id"] = name, theirs
		net := text(d.make(admin, "network", more), "id")
		d.make(admin, "subnet", object{"network_id": net, "cidr": "10.1.0.0/24", "ip_version": 4, "name": name, "project_id": theirs})
	}
	for many, want := range map[string]list{"networks": {"outer", "shared"}, "subnets": {"shared"}} {
		status, answer := d.ask(member, http.MethodGet, "/"+many+"?sort_key=name&sort_dir=asc", nil)
		var got list
		for _, e := range answer[many].(list) {
			got = append(got, e.(object)["name"])
			if _, told := e.(object)["provider:network_type"]; told {
				t.Errorf("%s: a member is told what carries a network", many)
			}
		}
		if status != http.StatusOK || !cmp.Equal(got, want) {
			t.Errorf("GET /%s as a member: %d %v, want %v", many, status, got, want)
		}
	}
}

// TestSegments: a network's segment is taken once, and free again after the network is deleted.
func TestSegments(t *testing.T) {
	d := newDesk(t)
	vlan := object{"provider:network_type": "vlan", "provider:physical_network": "p", "provider:segmentation_id": 100}
	for _, what := range []object{vlan, {"provider:network_type": "flat", "provider:physical_network": "p"}} {
		n := d.make(admin, "network", what)
		if n["mtu"] != 1500.0 {
			t.Errorf("MTU of %v is %v, want 1500", what, n["mtu"])
		}
		if status, answer := d.ask(admin, http.MethodPost, "/networks", object{"network": what}); status != http.StatusConflict {
			t.Errorf("a second of %v: %s, want 409", what, said(status, answer))
		}
		d.ask(admin, http.MethodDelete, "/networks/"+text(n, "id"), nil)
		d.make(admin, "network", what)
	}
	seen := map[any]bool{}
	for range 20 {
		n := d.make(admin, "network", object{})
		if seen[n["provider:segmentation_id"]] || n["mtu"] != 1442.0 {
			t.Errorf("network on %v with MTU %v: want its own number and 1442", n["provider:segmentation_id"], n["mtu"])
		}
		seen[n["provider:segmentation_id"]] = true
	}
}

// TestNetworkGoesWithItsSubnets: a network is deleted with its subnets. If it has ports, nothing
// is deleted.
func TestNetworkGoesWithItsSubnets(t *testing.T) {
	d := newDesk(t)
	net, subnet := d.net("10.1.0.0/24")
	port := text(d.make(member, "port", object{"network_id": net}), "id")
	for _, path := range []string{"/networks/" + net, "/subnets/" + subnet} {
		if status, answer := d.ask(member, http.MethodDelete, path, nil); status != http.StatusConflict {
			t.Errorf("DELETE %s with a port: %s, want 409", path, said(status, answer))
		}
	}
	d.ask(member, http.MethodDelete, "/ports/"+port, nil)
	if status, answer := d.ask(member, http.MethodDelete, "/networks/"+net, nil); status != http.StatusNoContent {
		t.Errorf("DELETE of the network: %s", said(status, answer))
	}
	if left := d.fieldOf("subnets", "", "id"); len(left) != 0 {
		t.Errorf("subnets left: %v", left)
	}
}

// TestBulkNetworks: a bulk request makes all networks or none, in its order.
func TestBulkNetworks(t *testing.T) {
	d := newDesk(t)
	good := object{"networks": list{object{"name": "a"}, object{"network": object{"name": "b"}}}}
	if status, answer := d.ask(member, http.MethodPost, "/networks", good); status != http.StatusCreated || len(answer["networks"].(list)) != 2 {
		t.Errorf("POST of two: %s", said(status, answer))
	}
	bad := object{"networks": list{object{"name": "c"}, object{"name": "d", "mtu": 9000}}}
	if status, answer := d.ask(member, http.MethodPost, "/networks", bad); status != http.StatusBadRequest {
		t.Errorf("POST of one that cannot be: %s, want 400", said(status, answer))
	}
	if got := d.fieldOf("networks", "?sort_key=name&sort_dir=asc", "name"); !cmp.Equal(got, list{"a", "b"}) {
		t.Errorf("networks are %v, want a and b", got)
	}
}

// TestSubnetDefaults checks gateway, pools and the normal form of a CIDR.
func TestSubnetDefaults(t *testing.T) {
	d := newDesk(t)
	net := text(d.make(member, "network", object{}), "id")
	for _, c := range []struct {
		cidr, gateway string // "" is the default, "none" null
		want          string
	}{
		{"10.0.0.5/24", "", "10.0.0.0/24 via 10.0.0.1 [10.0.0.2-10.0.0.254]"},
		{"10.0.1.0/24", "10.0.1.100", "10.0.1.0/24 via 10.0.1.100 [10.0.1.1-10.0.1.99 10.0.1.101-10.0.1.254]"},
		{"10.0.2.0/24", "none", "10.0.2.0/24 via <nil> [10.0.2.1-10.0.2.254]"},
		{"10.0.3.0/31", "none", "10.0.3.0/31 via <nil> [10.0.3.0-10.0.3.1]"},
		{"10.0.3.8/32", "none", "10.0.3.8/32 via <nil> [10.0.3.8-10.0.3.8]"},
		{"FD00:0::1/64", "", "fd00::/64 via fd00:: [fd00::1-fd00::ffff:ffff:ffff:ffff]"},
	} {
		more := object{"enable_dhcp": false}
		switch c.gateway {
		case "none":
			more["gateway_ip"] = nil
		case "":
		default:
			more["gateway_ip"] = c.gateway
		}
		s := d.get("subnet", d.subnet(net, c.cidr, more))
		pools := []string{}
		for _, p := range s["allocation_pools"].(list) {
			pools = append(pools, text(p.(object), "start")+"-"+text(p.(object), "end"))
		}
		if got := fmt.Sprintf("%v via %v %v", s["cidr"], s["gateway_ip"], pools); got != c.want {
			t.Errorf("subnet %s by %q: %s, want %s", c.cidr, c.gateway, got, c.want)
		}
	}
}

// TestSubnetPoolGivesEachPrefixOnce exhausts a pool, returns some prefixes, and draws again.
func TestSubnetPoolGivesEachPrefixOnce(t *testing.T) {
	d := newDesk(t)
	pool := text(d.make(member, "subnetpool", object{"name": "p", "prefixes": list{"10.9.0.0/25", "10.9.0.128/25", "10.8.1.0/24"}, "default_prefixlen": 26}), "id")
	if got := d.get("subnetpool", pool)["prefixes"]; !cmp.Equal(got, list{"10.8.1.0/24", "10.9.0.0/24"}) {
		t.Errorf("prefixes %v, want them joined", got)
	}
	taken := map[netip.Prefix]string{}
	draw := func() bool {
		net := text(d.make(member, "network", object{}), "id")
		status, answer := d.ask(member, http.MethodPost, "/subnets", object{"subnet": object{"network_id": net, "ip_version": 4, "subnetpool_id": pool}})
		if status != http.StatusCreated {
			if text(answer["NeutronError"].(object), "type") != "SubnetAllocationError" {
				t.Fatalf("POST of a subnet: %s", said(status, answer))
			}
			return false
		}
		p := netip.MustParsePrefix(text(answer["subnet"].(object), "cidr"))
		for o := range taken {
			if p.Bits() != 26 || o.Overlaps(p) {
				t.Fatalf("%v overlaps %v", p, o)
			}
		}
		taken[p] = text(answer["subnet"].(object), "id")
		return true
	}
	for draw() {
	}
	if len(taken) != 8 {
		t.Fatalf("drew %d subnets, want 8", len(taken))
	}
	back := netip.MustParsePrefix("10.9.0.64/26")
	if status, answer := d.ask(member, http.MethodDelete, "/subnetpools/"+pool, nil); status != http.StatusBadRequest {
		t.Errorf("DELETE of a pool in use: %s, want 400", said(status, answer))
	}
	d.ask(member, http.MethodDelete, "/subnets/"+taken[back], nil)
	delete(taken, back)
	if !draw() || taken[back] == "" {
		t.Errorf("what was given back was not drawn again: %v", taken)
	}
}

// TestPages follows the links of a list in both directions.
func TestPages(t *testing.T) {
	d := newDesk(t)
	for i := range 7 {
		d.make(member, "network", object{"name": fmt.Sprint("n", i%3)})
	}
	want := d.fieldOf("networks", "?sort_key=name&sort_dir=desc", "id")
	var got []any
	path := "/networks?sort_key=name&sort_dir=desc&limit=3&fields=id&fields=name"
	for path != "" {
		_, answer := d.ask(member, http.MethodGet, path, nil)
		for _, n := range answer["networks"].(list) {
			got = append(got, n.(object)["id"])
		}
		path = ""
		links, _ := answer["networks_links"].(list)
		for _, l := range links {
			if text(l.(object), "rel") == "next" && len(answer["networks"].(list)) == 3 {
				path = text(l.(object), "href")[len("http://sim/v2.0"):]
			}
		}
	}
	if !cmp.Equal(got, want) {
		t.Errorf("page by page:\n%v, want\n%v", got, want)
	}
	back := d.fieldOf("networks", fmt.Sprintf("?sort_key=name&sort_dir=desc&limit=2&marker=%v&page_reverse=true", want[3]), "id")
	if !cmp.Equal(back, want[1:3]) {
		t.Errorf("the page before the fourth: %v, want %v", back, want[1:3])
	}
}

// TestTags sets, adds, finds and removes tags.
func TestTags(t *testing.T) {
	d := newDesk(t)
	ids := []string{}
	for i, tags := range []list{{"a", "b"}, {"b"}, {}} {
		id := text(d.make(member, "network", object{"name": fmt.Sprint(i)}), "id")
		if status, answer := d.ask(member, http.MethodPut, "/networks/"+id+"/tags", object{"tags": tags}); status != http.StatusOK {
			t.Fatalf("PUT of tags: %s", said(status, answer))
		}
		ids = append(ids, id)
	}
	for query, want := range map[string]list{
		"tags=a,b": {"0"}, "tags=b": {"0", "1"}, "tags-any=a,c": {"0"}, "not-tags=a,b": {"1", "2"}, "not-tags-any=a,b": {"2"}, "tags=": {"0", "1", "2"},
	} {
		if got := d.fieldOf("networks", "?sort_key=name&sort_dir=asc&"+query, "name"); !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	before := d.get("network", ids[2])["revision_number"].(float64)
	for _, c := range []struct {
		method, tag string
		status      int
	}{{"GET", "x", 404}, {"PUT", "x", 201}, {"PUT", "x", 201}, {"GET", "x", 204}, {"DELETE", "x", 204}, {"DELETE", "x", 404}} {
		if status, _ := d.raw(member, c.method, "/networks/"+ids[2]+"/tags/"+c.tag, nil); status != c.status {
			t.Errorf("%s of a tag: %d, want %d", c.method, status, c.status)
		}
	}
	if after := d.get("network", ids[2])["revision_number"].(float64); after != before+2 {
		t.Errorf("the revision went from %v to %v, want two more", before, after)
	}
}

// TestQuota: a quota holds per project. A bulk request counts as a whole. Resources that Neutron
// makes itself count, but are not refused.
func TestQuota(t *testing.T) {
	d := newDesk(t)
	if status, answer := d.ask(admin, http.MethodPut, "/quotas/"+ours, object{"quota": object{"network": 2}}); status != http.StatusOK || answer["quota"].(object)["network"] != 2.0 {
		t.Fatalf("PUT of a limit: %d %v", status, answer)
	}
	two := object{"networks": list{object{}, object{}}}
	d.make(member, "network", object{})
	if status, answer := d.ask(member, http.MethodPost, "/networks", two); said(status, answer) != "409 OverQuota: Quota exceeded for resources: ['network']." {
		t.Errorf("two more: %s", said(status, answer))
	}
	id := text(d.make(member, "network", object{}), "id")
	if status, _ := d.ask(other, http.MethodPost, "/networks", two); status != http.StatusCreated {
		t.Errorf("another project's: %d, want 201", status)
	}
	d.ask(member, http.MethodDelete, "/networks/"+id, nil)
	_, answer := d.ask(member, http.MethodGet, "/quotas/"+ours+"/details", nil)
	if got := answer["quota"].(object)["network"]; !cmp.Equal(got, object{"limit": 2.0, "used": 1.0, "reserved": 0.0}) {
		t.Errorf("details: %v", got)
	}
	d.make(member, "network", object{})
	if status, _ := d.ask(admin, http.MethodDelete, "/quotas/"+ours, nil); status != http.StatusNoContent {
		t.Errorf("DELETE of limits: %d", status)
	}
	d.make(member, "network", object{})
}

// TestAgents: each host has an agent, which only administrators see.
func TestAgents(t *testing.T) {
	d := newDesk(t)
	hosts := d.fieldOf("agents", "?agent_type=OVN+Controller+agent&alive=True", "host")
	if len(hosts) != 2 || !slices.Contains(hosts, any("n1")) {
		t.Errorf("hosts with agents: %v, want n1 and n2", hosts)
	}
	if _, answer := d.ask(member, http.MethodGet, "/agents", nil); len(answer["agents"].(list)) != 0 {
		t.Errorf("a member sees %v", answer["agents"])
	}
}
