// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

// balancing is a cloud for a sweep with load balancers for Services.
type balancing interface {
	swept
	services() config.Services
	// served returns the function of each load balancer of the cluster, sorted. It has a line for
	// the address, for each endpoint of each port, and for the floating IP. Each floating IP of the
	// cluster that is elsewhere has a line, too.
	served() []string
	// fences returns the contents of the cluster's security groups, sorted. It has a line for each
	// group, each of its rules, and each address of a port with the group.
	fences() []string
	// lose deletes the cluster's load balancers, as another user does.
	lose()
}

// memoryBalancing is the reference backend with subnets for Services.
type memoryBalancing struct{ inMemory }

func newMemoryBalancing(w *crashtest.World) balancing {
	m := memoryBalancing{newInMemory(w).(inMemory)}
	m.cloud.AddSubnet(memory.Subnet{ID: serviceSubnet, NetworkID: network, Prefix: netip.MustParsePrefix(apitest.ClusterIPs), MTU: 1442})
	m.cloud.AddSubnet(memory.Subnet{ID: publicSubnet, NetworkID: publicNetwork, Prefix: netip.MustParsePrefix("203.0.113.0/24"), External: true})
	m.cloud.AddForeignLoadBalancer(sdn.LoadBalancer{VIP: v1.VIPAddress{IP: "10.1.200.1", SubnetID: subnet}})
	m.cloud.AddForeignFloatingIP(sdn.FloatingIPRequest{NetworkID: publicNetwork})
	return m
}

func (m memoryBalancing) services() config.Services {
	return config.Services{SubnetIDs: []string{serviceSubnet}, ExternalNetworkID: publicNetwork, Provider: "amphora"}
}

func (m memoryBalancing) served() []string {
	var out []string
	vips := map[string]bool{}
	for _, item := range m.cloud.LoadBalancers() {
		if item.Cluster != clusterID {
			continue
		}
		vips[item.LoadBalancer.VIPPortID] = true
		out = append(out, "at "+item.LoadBalancer.VIP.IP)
		for _, l := range item.LoadBalancer.Listeners {
			if l.Pool == nil {
				continue
			}
			for _, e := range l.Pool.Members {
				out = append(out, fmt.Sprintf("%s:%d > %s:%d", l.Protocol, l.Port, e.IP, e.Port))
			}
		}
	}
	for _, f := range m.cloud.FloatingIPs() {
		if f.Cluster == clusterID {
			out = append(out, publicAt(vips[f.FloatingIP.PortID], f.FloatingIP.Address))
		}
	}
	slices.Sort(out)
	return out
}

func (m memoryBalancing) fences() []string { return nil } // no part creates one here

func (m memoryBalancing) lose() {
	for _, item := range m.cloud.LoadBalancers() {
		if item.Cluster == clusterID {
			m.cloud.RemoveLoadBalancer(item.LoadBalancer.ID)
		}
	}
}

// publicAt returns the line for a floating IP of the cluster.
func publicAt(vip bool, address string) string {
	if vip {
		return "public " + address
	}
	return "not at a VIP: " + address
}

// openstackBalancing is a simulated OpenStack with a subnet for Services. A router connects it to
// the outside.
type openstackBalancing struct {
	*openstackCloud
	vips, outside, router string
	provider              string // empty: the cloud's default
}

func newBalancing(w *crashtest.World) balancing {
	o := newOpenstack(w).(*openstackCloud)
	o.kinds = append(slices.Clone(o.kinds), "floatingip", "loadbalancer")
	b := &openstackBalancing{openstackCloud: o}
	b.route()
	type dials interface{ SetDials(*dial.Set) }
	set, err := dial.Parse([]byte("{balancers: [{delay: 30ms}]}"))
	if err != nil {
		w.T.Fatal(err)
	}
	o.api.(dials).SetDials(set)
	return b
}

// route creates what Services need, and a floating IP of another user.
func (b *openstackBalancing) route() {
	net := b.make("network", map[string]any{"name": "services"})
	b.vips = b.make("subnet", map[string]any{"network_id": net, "cidr": apitest.ClusterIPs, "ip_version": 4, "gateway_ip": "10.0.255.254", "enable_dhcp": false})
	b.outside = b.make("network", map[string]any{"name": "outside", "router:external": true})
	b.make("subnet", map[string]any{"network_id": b.outside, "cidr": "203.0.113.0/24", "ip_version": 4, "enable_dhcp": false})
	b.router = b.make("router", map[string]any{"name": "out", "external_gateway_info": map[string]any{"network_id": b.outside}})
	for _, subnet := range []string{b.vips, b.subnet} {
		if err := b.iface("add", subnet); err != nil {
			b.t.Fatal(err)
		}
	}
	b.make("floatingip", map[string]any{"floating_network_id": b.outside, "description": "of somebody"})
}

// iface adds or removes the router's interface in a subnet.
func (b *openstackBalancing) iface(verb, subnet string) error {
	_, err := b.ask(http.MethodPut, "/networking/v2.0/routers/"+b.router+"/"+verb+"_router_interface", map[string]any{"subnet_id": subnet}, &struct{}{})
	return err
}

func (b *openstackBalancing) services() config.Services {
	return config.Services{ProjectID: b.project, SubnetIDs: []string{b.vips}, ExternalNetworkID: b.outside, Provider: b.provider}
}

func (b *openstackBalancing) served() []string {
	var out []string
	ids := func(row map[string]any, field string) (all []string) {
		list, _ := row[field].([]any)
		for _, e := range list {
			all = append(all, e.(map[string]any)["id"].(string))
		}
		return all
	}
	vips := map[string]bool{}
	for _, lb := range b.all("loadbalancer") {
		if r, err := resource("loadbalancer", lb); err != nil || r.Cluster != b.cluster {
			continue
		}
		out = append(out, "at "+lb["vip_address"].(string))
		vips[lb["vip_port_id"].(string)] = true
		pools := map[string][]string{}
		for _, p := range b.all("pool") {
			id := p["id"].(string)
			var list map[string][]map[string]any
			if len(ids(p, "members")) > 0 {
				if _, err := b.ask("GET", "/load-balancer/v2.0/lbaas/pools/"+id+"/members", nil, &list); err != nil {
					continue // it is being deleted
				}
			}
			for _, m := range list["members"] {
				pools[id] = append(pools[id], fmt.Sprintf("%v:%v", m["address"], m["protocol_port"]))
			}
		}
		for _, l := range b.all("listener") {
			if !slices.Contains(ids(l, "loadbalancers"), lb["id"].(string)) {
				continue
			}
			pool, _ := l["default_pool_id"].(string)
			for _, m := range pools[pool] {
				out = append(out, fmt.Sprintf("%v:%v > %s", l["protocol"], l["protocol_port"], m))
			}
		}
	}
	for _, f := range b.all("floatingip") {
		if r, err := resource("floatingip", f); err == nil && r.Cluster == b.cluster {
			port, _ := f["port_id"].(string)
			out = append(out, publicAt(vips[port], f["floating_ip_address"].(string)))
		}
	}
	slices.Sort(out)
	return out
}

// all returns all resources of a kind.
func (b *openstackBalancing) all(kind string) []map[string]any {
	rows, err := b.list(kind)
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

func (b *openstackBalancing) fences() (out []string) {
	ours := map[any]bool{}
	for _, g := range b.all("security-group") {
		if r, err := resource("security-group", g); err != nil || r.Cluster != b.cluster {
			continue
		}
		ours[g["id"]] = true
		out = append(out, "a group")
		for _, one := range g["security_group_rules"].([]any) {
			if rule := one.(map[string]any); rule["direction"] == "ingress" {
				from, _ := rule["remote_ip_prefix"].(string) // no prefix means any address
				out = append(out, fmt.Sprintf("%v:%v from %v", rule["protocol"], rule["port_range_min"], cmp.Or(from, "0.0.0.0/0")))
			} else {
				out = append(out, "something out")
			}
		}
	}
	for _, p := range b.all("port") {
		groups, _ := p["security_groups"].([]any)
		for _, g := range groups {
			if ours[g] {
				out = append(out, fmt.Sprintf("at %v", p["fixed_ips"].([]any)[0].(map[string]any)["ip_address"]))
			}
		}
	}
	slices.Sort(out)
	return out
}

func (b *openstackBalancing) lose() {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left := 0
		for _, row := range b.all("loadbalancer") {
			if r, err := resource("loadbalancer", row); err == nil && r.Cluster == b.cluster { // a busy one refuses it
				left++
				_, _ = b.ask(http.MethodDelete, "/load-balancer/v2.0/lbaas/loadbalancers/"+r.ID+"?cascade=true", nil, nil)
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d load balancers do not go", left)
		}
	}
}
