// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"net/http"
	"slices"
	"testing"
)

// outer makes an external network with a subnet.
func (d *desk) outer(cidr string) (net, subnet string) {
	d.t.Helper()
	net = text(d.make(admin, "network", object{"name": "outer", "router:external": true}), "id")
	return net, text(d.make(admin, "subnet", object{"network_id": net, "cidr": cidr, "ip_version": 4, "enable_dhcp": false}), "id")
}

// do makes a PUT below a router.
func (d *desk) do(router, verb string, body object) (int, object) {
	d.t.Helper()
	return d.ask(member, http.MethodPut, "/routers/"+router+"/"+verb, body)
}

// TestRouterLife makes interfaces, a gateway and a floating IP. Removing them in any wrong order
// is refused.
func TestRouterLife(t *testing.T) {
	d := newDesk(t)
	ext, _ := d.outer("10.50.0.0/24")
	net, subnet := d.net("10.1.0.0/24")
	port := text(d.make(member, "port", object{"network_id": net}), "id")
	r := text(d.make(member, "router", object{"name": "r"}), "id")
	float := object{"floating_network_id": ext, "port_id": port}

	status, answer := d.ask(member, http.MethodPost, "/floatingips", object{"floatingip": float})
	if refusal(status, answer) != "404 ExternalGatewayForFloatingIPNotFound" {
		t.Errorf("a floating IP before there is a way: %s", said(status, answer))
	}
	if status, answer = d.do(r, "add_router_interface", object{"subnet_id": subnet}); status != http.StatusOK {
		t.Fatalf("an interface: %s", said(status, answer))
	}
	iface := text(answer, "port_id")
	if p := d.get("port", iface); p["status"] != "ACTIVE" || !slices.Equal(addresses(p), []string{"10.1.0.1"}) {
		t.Errorf("the interface: %v", p)
	}
	d.change("router", r, object{"external_gateway_info": object{"network_id": ext}})
	f := d.make(member, "floatingip", float)
	if f["router_id"] != r || f["fixed_ip_address"] == nil || text(f["port_details"].(object), "network_id") != net {
		t.Errorf("the floating IP: %v", f)
	}
	if now := d.get("floatingip", text(f, "id")); now["status"] != "ACTIVE" {
		t.Errorf("the floating IP is %v once OVN has it, want ACTIVE", now["status"])
	}
	for want, c := range map[string][3]any{
		"409 RouterInUse":                            {"DELETE", "/routers/" + r, nil},
		"409 RouterInterfaceInUseByFloatingIP":       {"PUT", "/routers/" + r + "/remove_router_interface", object{"subnet_id": subnet}},
		"409 RouterExternalGatewayInUseByFloatingIp": {"PUT", "/routers/" + r, object{"router": object{"external_gateway_info": nil}}},
		"409 ServicePortInUse":                       {"DELETE", "/ports/" + iface, nil},
		"409 SubnetInUse":                            {"DELETE", "/subnets/" + subnet, nil},
		"409 FloatingIPPortAlreadyAssociated":        {"POST", "/floatingips", object{"floatingip": float}},
		"400 BadRequest":                             {"PUT", "/routers/" + r + "/add_router_interface", object{"subnet_id": subnet}},
	} {
		if status, answer := d.ask(member, c[0].(string), c[1].(string), c[2]); refusal(status, answer) != want {
			t.Errorf("%v %v: %s, want %s", c[0], c[1], said(status, answer), want)
		}
	}
	if left := d.fieldOf("floatingips", "", "id"); len(left) != 1 {
		t.Errorf("%d floating IPs, want what was refused to be gone", len(left))
	}
	d.ask(member, http.MethodDelete, "/ports/"+port, nil)
	if now := d.get("floatingip", text(f, "id")); now["port_id"] != nil || now["status"] != "DOWN" {
		t.Errorf("the floating IP of a port that went: %v", now)
	}
	for _, c := range [][2]string{{"DELETE", "/floatingips/" + text(f, "id")}, {"DELETE", "/networks/" + net}} {
		status, answer := d.ask(member, c[0], c[1], nil)
		if c[1] == "/networks/"+net {
			if status != http.StatusConflict {
				t.Errorf("%v with a router: %s", c, said(status, answer))
			}
		} else if status != http.StatusNoContent {
			t.Errorf("%v: %s", c, said(status, answer))
		}
	}
	if status, answer := d.do(r, "remove_router_interface", object{"subnet_id": subnet}); status != http.StatusOK || text(answer, "port_id") != iface {
		t.Errorf("the interface goes: %s", said(status, answer))
	}
	if status, answer := d.ask(member, http.MethodDelete, "/routers/"+r, nil); status != http.StatusNoContent {
		t.Errorf("the router goes: %s", said(status, answer))
	}
	if left := d.fieldOf("ports", "", "device_owner"); len(left) != 0 {
		t.Errorf("ports left: %v", left)
	}
}

// TestRouterOfTwoVersions: IPv6 subnets share one interface, each IPv4 subnet has its own.
func TestRouterOfTwoVersions(t *testing.T) {
	d := newDesk(t)
	net, four := d.net("10.1.0.0/24")
	r := text(d.make(member, "router", object{}), "id")
	ifaces := map[string]string{}
	for _, s := range []string{four, d.subnet(net, "fd00:1::/64", nil), d.subnet(net, "fd00:2::/64", nil)} {
		status, answer := d.do(r, "add_router_interface", object{"subnet_id": s})
		if status != http.StatusOK {
			t.Fatalf("an interface on %s: %s", s, said(status, answer))
		}
		ifaces[s] = text(answer, "port_id")
	}
	if got := d.fieldOf("ports", "?device_id="+r, "id"); len(got) != 2 {
		t.Errorf("%d interfaces, want 2", len(got))
	}
	for s := range ifaces {
		if status, answer := d.do(r, "remove_router_interface", object{"subnet_id": s}); status != http.StatusOK {
			t.Errorf("off %s: %s", s, said(status, answer))
		}
	}
	if got := d.fieldOf("ports", "", "id"); len(got) != 0 {
		t.Errorf("interfaces left: %v", got)
	}
}

// TestGatewayAddress: an administrator chooses the gateway's address. A refused request leaves no
// address taken.
func TestGatewayAddress(t *testing.T) {
	d := newDesk(t)
	ext, sub := d.outer("10.50.0.0/24")
	r := text(d.make(admin, "router", object{"external_gateway_info": object{"network_id": ext}}), "id")
	move := func(address string) object {
		return object{"router": object{"external_gateway_info": object{"network_id": ext, "enable_snat": false, "external_fixed_ips": list{object{"subnet_id": sub, "ip_address": address}}}}}
	}
	if status, answer := d.ask(admin, http.MethodPut, "/routers/"+r, move("10.51.0.1")); status < 400 {
		t.Errorf("an address outside: %d %v", status, answer)
	}
	if status, answer := d.ask(admin, http.MethodPut, "/routers/"+r, move("10.50.0.1")); refusal(status, answer) != "400 BadRequest" {
		t.Errorf("the subnet's gateway: %s", said(status, answer))
	}
	before := d.fieldOf("ports", "?device_id="+r, "id")
	for _, address := range []string{"10.50.0.77", "10.50.0.78", "10.50.0.77"} {
		if status, answer := d.ask(admin, http.MethodPut, "/routers/"+r, move(address)); status != http.StatusOK {
			t.Fatalf("gateway %s: %s", address, said(status, answer))
		}
	}
	ports := d.fieldOf("ports", "?device_id="+r, "id")
	if !slices.Equal(before, ports) || !slices.Equal(addresses(d.get("port", ports[0].(string))), []string{"10.50.0.77"}) {
		t.Errorf("the gateway's port was %v and is %v", before, ports)
	}
	d.ask(admin, http.MethodPut, "/routers/"+r, object{"router": object{"external_gateway_info": nil}})
	d.make(admin, "floatingip", object{"floating_network_id": ext, "floating_ip_address": "10.50.0.77"})
}

// TestRoutes: next hops are on networks of the router. The routes then keep these networks'
// interfaces.
func TestRoutes(t *testing.T) {
	d := newDesk(t)
	_, subnet := d.net("10.1.0.0/24")
	r := text(d.make(member, "router", object{}), "id")
	d.do(r, "add_router_interface", object{"subnet_id": subnet})
	routes := func(hop string) object {
		return object{"router": object{"routes": list{object{"destination": "10.9.0.0/16", "nexthop": hop}}}}
	}
	for hop, want := range map[string]string{"10.2.0.1": "400 InvalidRoutes", "10.1.0.1": "400 InvalidRoutes", "10.1.0.9": "200"} {
		if status, answer := d.ask(member, http.MethodPut, "/routers/"+r, routes(hop)); refusal(status, answer) != want {
			t.Errorf("a route by %s: %s, want %s", hop, said(status, answer), want)
		}
	}
	if status, answer := d.do(r, "remove_router_interface", object{"subnet_id": subnet}); refusal(status, answer) != "409 RouterInterfaceInUseByRoute" {
		t.Errorf("the interface that a route needs: %s", said(status, answer))
	}
}
