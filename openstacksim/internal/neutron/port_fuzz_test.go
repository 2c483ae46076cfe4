// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// FuzzPorts sends any body to any path around ports. Each answer must be JSON and no 5xx.
func FuzzPorts(f *testing.F) {
	for _, body := range []string{
		`{"port": {"network_id": "$net"}}`,
		`{"ports": [{"network_id": "$net"}, {"network_id": "$net", "fixed_ips": [{"subnet_id": "$subnet", "ip_address": "10.1.0.9"}]}]}`,
		`{"port": {"network_id": "$net", "binding:host_id": "n1", "binding:profile": {"parent_name": "$port", "tag": 5}}}`,
		`{"port": {"network_id": "$net", "allowed_address_pairs": [{"ip_address": "1.1.1.0/24", "mac_address": "fa:16:3e:00:00:01"}]}}`,
		`{"port": {"network_id": "$net", "extra_dhcp_opts": [{"opt_name": "mtu", "opt_value": "1400", "ip_version": "6"}]}}`,
		`{"port": {"fixed_ips": [{"subnet_id": "$subnet"}, {}], "mac_address": null, "security_groups": null, "port_security_enabled": null}}`,
		`{"security_group": {"name": "x", "stateful": false}}`,
		`{"security_group_rule": {"security_group_id": "$group", "direction": "ingress", "protocol": "tcp", "port_range_min": 1, "port_range_max": null}}`,
		`{"security_group_rules": [{"security_group_id": "$group", "direction": "ingress", "remote_ip_prefix": "10.0.0.1/8"}]}`,
		`{"address_group": {"addresses": ["10.0.0.0/8", "::/0"]}}`,
		`{"addresses": ["10.0.0.1", "fd00::1/64"]}`,
		`{"trunk": {"port_id": "$port", "sub_ports": [{"port_id": "$port", "segmentation_type": "vlan", "segmentation_id": 4}]}}`,
		`{"sub_ports": [{"port_id": "$port", "segmentation_type": "inherit"}]}`,
		`{"tags": ["a", "b"]}`,
	} {
		for where := range uint8(len(places)) {
			f.Add(where%4, where, body)
			f.Add(uint8(0), where, body)
		}
	}
	f.Fuzz(func(t *testing.T, verb, where uint8, body string) {
		d := newDesk(t)
		net, subnet := d.net("10.1.0.0/24")
		known := strings.NewReplacer(
			"$net", net, "$subnet", subnet,
			"$port", text(d.make(member, "port", object{"network_id": net}), "id"),
			"$group", text(d.make(member, "security_group", object{"name": "g"}), "id"),
			"$list", text(d.make(member, "address_group", object{}), "id"),
		)
		method := []string{"POST", "PUT", "GET", "DELETE"}[verb%4]
		path := known.Replace(places[int(where)%len(places)])
		for _, who := range callers {
			status, answer := d.raw(who, method, path, known.Replace(body))
			if status >= 500 || status < 200 {
				t.Errorf("%s %s %q = %d %s", method, path, body, status, answer)
			}
			if len(answer) > 0 && !json.Valid(answer) {
				t.Errorf("%s %s %q: answer %q is not JSON", method, path, body, answer)
			}
		}
	})
}

var callers = []caller{member, admin, other}

// places are paths around ports.
var places = []string{
	"/ports", "/ports/$port", "/ports/$port/tags", "/security-groups", "/security-groups/$group", "/security-group-rules",
	"/address-groups", "/address-groups/$list/add_addresses", "/address-groups/$list/remove_addresses",
	"/trunks", "/trunks/$port/add_subports", "/trunks/$port/remove_subports", "/trunks/$port/get_subports",
	"/ports?fixed_ips=ip_address%3D1&sort_key=name&sort_dir=asc", "/ports?fields=id&limit=1&marker=$port",
}

// TestPortsAtRandom makes random calls and checks what always holds. No two ports of a network
// share a MAC address, and no two of a subnet share an address. After all ports are deleted, all
// addresses are free.
func TestPortsAtRandom(t *testing.T) {
	for seed := range uint64(30) {
		d := newDesk(t)
		r := rand.New(rand.NewPCG(seed, 7))
		net, subnet := d.net("10.1.0.0/27")
		var ids []string
		for range 150 {
			ids = d.randomly(r, net, subnet, ids)
			d.distinct(seed, net)
		}
		for _, id := range ids {
			d.ask(admin, "DELETE", "/ports/"+id, nil)
		}
		for range 29 {
			d.make(member, "port", object{"network_id": net})
		}
	}
}

// randomly makes one call, and returns the ports that exist afterwards.
func (d *desk) randomly(r *rand.Rand, net, subnet string, ids []string) []string {
	wish := list{}
	for range r.IntN(3) {
		wish = append(wish, []object{
			{"subnet_id": subnet}, {"ip_address": "10.1.0." + string('0'+rune(r.IntN(10)))}, {"ip_address": "10.9.9.9"},
		}[r.IntN(20)%3])
	}
	one := object{"network_id": net, "fixed_ips": wish}
	switch n := r.IntN(10); {
	case n < 3:
		_, answer := d.ask(admin, "POST", "/ports", object{"ports": list{one, object{"network_id": net}}})
		made, _ := answer["ports"].(list)
		for _, p := range made {
			ids = append(ids, text(p.(object), "id"))
		}
	case len(ids) > 0 && n < 7:
		d.ask(admin, "PUT", "/ports/"+ids[r.IntN(len(ids))], object{"port": object{"fixed_ips": wish}})
	case len(ids) > 0:
		i := r.IntN(len(ids))
		d.ask(admin, "DELETE", "/ports/"+ids[i], nil)
		ids = append(ids[:i:i], ids[i+1:]...)
	}
	return ids
}

func (d *desk) distinct(seed uint64, net string) {
	d.t.Helper()
	_, answer := d.ask(admin, "GET", "/ports?network_id="+net, nil)
	seen := map[string]bool{}
	for _, p := range answer["ports"].(list) {
		for _, s := range append(addresses(p.(object)), text(p.(object), "mac_address")) {
			if seen[s] {
				d.t.Fatalf("seed %d: %s is there twice", seed, s)
			}
			seen[s] = true
		}
	}
}
