// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDefaultGroup(t *testing.T) {
	d := newDesk(t)
	_, answer := d.ask(member, "GET", "/security-groups", nil)
	groups := answer["security_groups"].(list)
	if len(groups) != 1 {
		t.Fatalf("groups at first = %v, want the default one", groups)
	}
	g := groups[0].(object)
	count := map[string]int{}
	for _, r := range g["security_group_rules"].(list) {
		rule := r.(object)
		remote := "all"
		if rule["remote_group_id"] == g["id"] {
			remote = "its own"
		}
		count[text(rule, "direction")+" "+text(rule, "ethertype")+" "+remote]++
	}
	want := map[string]int{"ingress IPv4 its own": 1, "ingress IPv6 its own": 1, "egress IPv4 all": 1, "egress IPv6 all": 1}
	if diff := cmp.Diff(want, count); g["name"] != "default" || diff != "" {
		t.Errorf("group %v, rules (-want +got):\n%s", g["name"], diff)
	}
	for _, c := range []struct {
		method string
		body   any
		want   string
	}{
		{"PUT", object{"security_group": object{"name": "x"}}, "409 SecurityGroupCannotUpdateDefault"},
		{"PUT", object{"security_group": object{"description": "x"}}, "200"},
		{"DELETE", nil, "409 SecurityGroupCannotRemoveDefault"},
	} {
		status, answer := d.ask(member, c.method, "/security-groups/"+text(g, "id"), c.body)
		if got := refusal(status, answer); got != c.want {
			t.Errorf("%s %v of the default group = %s, want %s", c.method, c.body, got, c.want)
		}
	}
	if status, answer := d.ask(admin, "DELETE", "/security-groups/"+text(g, "id"), nil); status != 204 {
		t.Errorf("an admin's DELETE of the default group = %d %v, want 204", status, answer)
	}
	net, _ := d.net("10.1.0.0/24")
	p := d.make(member, "port", object{"network_id": net})
	if got := p["security_groups"].(list); len(got) != 1 || got[0] == g["id"] {
		t.Errorf("groups of the next port = %v, want a new default group", got)
	}
}

func TestRules(t *testing.T) {
	d := newDesk(t)
	group := text(d.make(member, "security_group", object{"name": "g"}), "id")
	foreign := text(d.make(other, "security_group", object{"name": "f"}), "id")
	list := text(d.make(member, "address_group", object{"addresses": list{"10.0.0.0/8"}}), "id")
	// The order matters: a rule that was made once is a duplicate afterwards.
	for _, c := range []struct {
		name string
		rule object
		want string
	}{
		{"ports", object{"protocol": "tcp", "port_range_min": 80, "port_range_max": 90}, "201"},
		{"the same by number", object{"protocol": 6, "port_range_min": "80", "port_range_max": "90", "description": "x"}, "409 SecurityGroupRuleExists"},
		{"ports backwards", object{"protocol": "tcp", "port_range_min": 90, "port_range_max": 80}, "400 SecurityGroupInvalidPortRange"},
		{"one port alone", object{"protocol": "tcp", "port_range_min": 90}, "400 SecurityGroupInvalidPortRange"},
		{"port nought", object{"protocol": "udp", "port_range_min": 0, "port_range_max": 80}, "400 SecurityGroupInvalidPortValue"},
		{"ports without protocol", object{"port_range_min": 1, "port_range_max": 80}, "400 SecurityGroupProtocolRequiredWithPorts"},
		{"ports of ESP", object{"protocol": "esp", "port_range_min": 1, "port_range_max": 1}, "400 SecurityGroupInvalidProtocolForPort"},
		{"all ports", object{"protocol": "tcp", "port_range_min": 1, "port_range_max": 65535}, "201"},
		{"all ports again", object{"protocol": "tcp"}, "409 SecurityGroupRuleExists"},
		{"ICMP type", object{"protocol": "icmp", "port_range_min": 8, "port_range_max": 0}, "201"},
		{"ICMP code alone", object{"protocol": "icmp", "port_range_max": 0}, "400 SecurityGroupMissingIcmpType"},
		{"ICMP too large", object{"protocol": "icmp", "port_range_min": 256}, "400 SecurityGroupInvalidIcmpValue"},
		{"ICMPv6 over IPv4", object{"protocol": "ipv6-icmp"}, "400 SecurityGroupEthertypeConflictWithProtocol"},
		{"ICMP over IPv6", object{"protocol": "icmp", "ethertype": "IPv6"}, "201"},
		{"ICMPv6 by number", object{"protocol": "58", "ethertype": "IPv6"}, "409 SecurityGroupRuleExists"},
		{"unknown protocol", object{"protocol": "foo"}, "400 SecurityGroupRuleInvalidProtocol"},
		{"prefix", object{"remote_ip_prefix": "10.0.0.1/8"}, "201"},
		{"prefix of the other version", object{"remote_ip_prefix": "fd00::/8"}, "400 SecurityGroupRuleParameterConflict"},
		{"everywhere", object{"remote_ip_prefix": "0.0.0.0/0"}, "201"},
		{"everywhere by default", object{}, "409 SecurityGroupRuleExists"},
		{"group", object{"remote_group_id": group}, "201"},
		{"group and prefix", object{"remote_group_id": group, "remote_ip_prefix": "10.0.0.0/8"}, "400 SecurityGroupMultipleRemoteEntites"},
		{"another's group", object{"remote_group_id": foreign}, "404 SecurityGroupNotFound"},
		{"in another's group", object{"security_group_id": foreign}, "404 SecurityGroupNotFound"},
		{"address group", object{"remote_address_group_id": list}, "201"},
		{"no address group", object{"remote_address_group_id": group}, "404 AddressGroupNotFound"},
		{"unknown version", object{"ethertype": "IPv5"}, "400 SecurityGroupRuleInvalidEtherType"},
	} {
		rule := object{"security_group_id": group, "direction": "ingress"}
		for k, v := range c.rule {
			rule[k] = v
		}
		status, answer := d.ask(member, "POST", "/security-group-rules", object{"security_group_rule": rule})
		if got := refusal(status, answer); got != c.want {
			t.Errorf("%s: POST of %v = %s, want %s", c.name, c.rule, got, c.want)
		}
	}
	g := d.get("security_group", group)
	if got := len(g["security_group_rules"].([]any)); got != 2+8 || g["revision_number"] != 1.0+8 {
		t.Errorf("the group has %d rules and revision %v, want 10 and 9", got, g["revision_number"])
	}
}

func TestRuleShowsItsPrefix(t *testing.T) {
	d := newDesk(t)
	group := text(d.make(member, "security_group", object{"name": "g"}), "id")
	r := d.make(member, "security_group_rule", object{"security_group_id": group, "direction": "egress", "remote_ip_prefix": "10.0.0.1/8"})
	if r["remote_ip_prefix"] != "10.0.0.1/8" || r["normalized_cidr"] != "10.0.0.0/8" {
		t.Errorf("prefix %v, normalized %v; want them as given and masked", r["remote_ip_prefix"], r["normalized_cidr"])
	}
	for _, hidden := range []string{"tags", "standard_attr_id"} {
		if _, there := r[hidden]; there {
			t.Errorf("a rule by itself shows %s", hidden)
		}
	}
}

func TestRulesInBulk(t *testing.T) {
	d := newDesk(t)
	group := text(d.make(member, "security_group", object{"name": "g"}), "id")
	second := text(d.make(member, "security_group", object{"name": "h"}), "id")
	rule := func(group, protocol string) object {
		return object{"security_group_id": group, "direction": "ingress", "protocol": protocol}
	}
	d.make(member, "security_group_rule", rule(group, "sctp"))
	for name, c := range map[string]struct {
		rules list
		want  string
	}{
		"one twice":         {list{rule(group, "udp"), rule(group, "17")}, "409 DuplicateSecurityGroupRuleInPost"},
		"one there already": {list{rule(group, "udp"), rule(group, "sctp")}, "409 SecurityGroupRuleExists"},
		"two groups":        {list{rule(group, "udp"), rule(second, "udp")}, "400 SecurityGroupNotSingleGroupRules"},
	} {
		status, answer := d.ask(member, "POST", "/security-group-rules", object{"security_group_rules": c.rules})
		if got := refusal(status, answer); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if got := len(d.get("security_group", group)["security_group_rules"].(list)); got != 3 {
		t.Errorf("the group has %d rules, want the 3 of before", got)
	}
	status, answer := d.ask(member, "POST", "/security-group-rules", object{"security_group_rules": list{rule(group, "udp"), rule(group, "tcp")}})
	if status != 201 || len(answer["security_group_rules"].(list)) != 2 {
		t.Errorf("POST of two = %d %v", status, answer)
	}
}

func TestGroupsGoWithWhatNamesThem(t *testing.T) {
	d := newDesk(t)
	net, _ := d.net("10.1.0.0/24")
	group := text(d.make(member, "security_group", object{"name": "g"}), "id")
	second := text(d.make(member, "security_group", object{"name": "h"}), "id")
	d.make(member, "security_group_rule", object{"security_group_id": second, "direction": "ingress", "remote_group_id": group})
	p := text(d.make(member, "port", object{"network_id": net, "security_groups": list{group, second}}), "id")
	if got := d.get("port", p)["security_groups"].(list); len(got) != 2 {
		t.Errorf("groups = %v, want both", got)
	}
	status, answer := d.ask(member, "DELETE", "/security-groups/"+group, nil)
	if got := refusal(status, answer); got != "409 SecurityGroupInUse" {
		t.Errorf("DELETE of a group in use = %s, want 409 SecurityGroupInUse", got)
	}
	status, answer = d.ask(member, "PUT", "/security-groups/"+group, object{"security_group": object{"stateful": false}})
	if got := refusal(status, answer); got != "409 SecurityGroupInUse" {
		t.Errorf("PUT of stateful of a group in use = %s, want 409 SecurityGroupInUse", got)
	}
	d.change("port", p, object{"security_groups": list{}})
	if status, _ := d.ask(member, "DELETE", "/security-groups/"+group, nil); status != 204 {
		t.Errorf("DELETE = %d, want 204", status)
	}
	if got := len(d.get("security_group", second)["security_group_rules"].(list)); got != 2 {
		t.Errorf("the other group has %d rules, want 2: the one that named the removed group goes", got)
	}
	third := text(d.make(member, "security_group", object{"name": "i", "stateful": false}), "id")
	status, answer = d.ask(member, "PUT", "/ports/"+p, object{"port": object{"security_groups": list{second, third}}})
	if got := refusal(status, answer); got != "409 SecurityGroupConflict" {
		t.Errorf("PUT of a stateful and a stateless group = %s, want 409 SecurityGroupConflict", got)
	}
}

func TestAddressGroups(t *testing.T) {
	d := newDesk(t)
	g := d.make(member, "address_group", object{"name": "a", "addresses": list{"10.0.0.1/32", "192.168.0.0/24"}})
	path := "/address-groups/" + text(g, "id")
	for _, c := range []struct {
		verb      string
		addresses any
		want      string
	}{
		{"add_addresses", list{"10.0.0.2", "10.0.0.2/32"}, "200"},
		{"add_addresses", list{"10.0.0.2"}, "400 AddressesAlreadyExist"},
		{"add_addresses", list{"foo"}, "400 AddrFormatError"},
		{"add_addresses", 7, "400 HTTPBadRequest"},
		{"remove_addresses", list{"10.9.9.9"}, "404 AddressesNotFound"},
		{"remove_addresses", list{"192.168.0.0/24"}, "200"},
	} {
		status, answer := d.ask(member, "PUT", path+"/"+c.verb, object{"addresses": c.addresses})
		if got := refusal(status, answer); got != c.want {
			t.Errorf("%s %v = %s, want %s", c.verb, c.addresses, got, c.want)
		}
	}
	if diff := cmp.Diff(list{"10.0.0.1/32", "10.0.0.2/32"}, d.get("address_group", text(g, "id"))["addresses"]); diff != "" {
		t.Errorf("addresses in the end (-want +got):\n%s", diff)
	}
	group := text(d.make(member, "security_group", object{"name": "g"}), "id")
	r := d.make(member, "security_group_rule", object{"security_group_id": group, "direction": "ingress", "remote_address_group_id": g["id"]})
	status, answer := d.ask(member, "DELETE", path, nil)
	if got := refusal(status, answer); got != "409 AddressGroupInUse" {
		t.Errorf("DELETE in use = %s, want 409 AddressGroupInUse", got)
	}
	d.ask(member, "DELETE", "/security-group-rules/"+text(r, "id"), nil)
	if status, _ := d.ask(member, "DELETE", path, nil); status != 204 {
		t.Errorf("DELETE = %d, want 204", status)
	}
}
