// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package lbaasv2

import (
	"errors"
	"maps"
	"net/http"
	"net/netip"
)

func (c *call) create(kind, above string) (int, object, *RefusedError) {
	in, bad := c.input(kind, true)
	if bad != nil {
		return 0, nil, bad
	}
	r := &row{id: c.o.NewID(), kind: kind, above: above, shown: in, operating: offline}
	if in["tenant_id"] == nil {
		in["tenant_id"] = c.who.ProjectID
	}
	in["project_id"] = in["tenant_id"]
	if !c.who.Admin() && in["tenant_id"] != c.who.ProjectID {
		return 0, nil, refuse(http.StatusForbidden, "AdminRequired", "User does not have admin privileges: Cannot create resource for another tenant.")
	}
	if bad := c.quota(kind, in["tenant_id"]); bad != nil {
		return 0, nil, bad
	}
	if kind == "loadbalancers" {
		bad = c.createBalancer(r)
	} else {
		bad = c.createBelow(r)
	}
	if bad != nil {
		return 0, nil, bad
	}
	c.rows[r.id] = r
	c.work(r, "create", pendingCreate, nil)
	return http.StatusCreated, object{singular(kind): c.view(r)}, nil
}

// quota checks the quota of load balancers and of pools. By default only these two have one.
func (c *call) quota(kind string, tenant any) *RefusedError {
	if kind != "loadbalancers" && kind != "pools" || c.o.Quota < 0 {
		return nil
	}
	n := 0
	for _, r := range c.rows {
		if r.kind == kind && r.shown["tenant_id"] == tenant {
			n++
		}
	}
	if n >= c.o.Quota {
		return refuse(http.StatusConflict, "OverQuota", "Quota exceeded for resources: ['%s'].", singular(kind))
	}
	return nil
}

func (c *call) createBalancer(r *row) *RefusedError {
	r.balancer = r.id
	if r.shown["provider"] == nil {
		r.shown["provider"] = Provider
	}
	if r.shown["provider"] != Provider {
		return refuse(http.StatusNotFound, "ServiceProviderNotFound", "Service provider '%v' could not be found for service type LOADBALANCERV2", r.shown["provider"])
	}
	if r.shown["flavor_id"] != nil {
		return refuse(http.StatusNotFound, "FlavorNotFound", "Flavor %v could not be found.", r.shown["flavor_id"])
	}
	subnet := text(r.shown["vip_subnet_id"])
	network, _, ok := c.o.Networks.Subnet(c.who, subnet)
	if !ok {
		return refuse(http.StatusNotFound, "SubnetNotFound", "Subnet %s could not be found.", subnet)
	}
	address, _ := netip.ParseAddr(text(r.shown["vip_address"]))
	id, address, err := c.o.Networks.MakePort(VIPPort{
		ProjectID: text(r.shown["tenant_id"]), NetworkID: network, SubnetID: subnet, Address: address,
		Name: "loadbalancer-" + r.id, DeviceOwner: "neutron:LOADBALANCERV2", DeviceID: r.id,
	})
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused
	}
	if err != nil {
		return refuse(http.StatusInternalServerError, "HTTPInternalServerError", "%v", err)
	}
	r.shown["vip_port_id"], r.shown["vip_address"] = id, address.String()
	return nil
}

// createBelow creates an object below a load balancer, which is locked afterwards.
func (c *call) createBelow(r *row) *RefusedError {
	bad := map[string]func(*row) *RefusedError{
		"listeners": c.placeListener, "pools": c.placePool, "members": c.placeMember, "healthmonitors": c.placeMonitor,
	}[r.kind](r)
	if bad != nil {
		return bad
	}
	for _, hidden := range []string{"loadbalancer_id", "listener_id", "pool_id"} {
		delete(r.shown, hidden)
	}
	return c.lock(r.balancer)
}

func (c *call) placeListener(r *row) *RefusedError {
	lb, bad := c.find("loadbalancers", text(r.shown["loadbalancer_id"]))
	if bad != nil {
		return bad
	}
	r.balancer = lb.id
	for _, l := range c.below("listeners", lb.id) {
		if l.shown["protocol_port"] == r.shown["protocol_port"] {
			return refuse(http.StatusConflict, "LoadBalancerListenerProtocolPortExists",
				"Load Balancer %s already has a listener with protocol_port of %v", lb.id, r.shown["protocol_port"])
		}
	}
	return nil
}

func (c *call) placePool(r *row) *RefusedError {
	if r.shown["listener_id"] == nil {
		lb, bad := c.find("loadbalancers", text(r.shown["loadbalancer_id"]))
		if bad == nil {
			r.balancer = lb.id
		}
		return bad
	}
	l, bad := c.find("listeners", text(r.shown["listener_id"]))
	if bad != nil {
		return bad
	}
	if has := c.below("pools", l.id); len(has) > 0 {
		return refuse(http.StatusConflict, "ListenerDefaultPoolAlreadySet", "Listener %s is already using default pool %s", l.id, has[0].id)
	}
	if l.shown["protocol"] != r.shown["protocol"] {
		return refuse(http.StatusConflict, "ListenerPoolProtocolMismatch",
			"Listener protocol %v and pool protocol %v are not compatible.", l.shown["protocol"], r.shown["protocol"])
	}
	r.balancer, r.above = l.balancer, l.id
	return nil
}

func (c *call) placeMember(r *row) *RefusedError {
	p, bad := c.find("pools", r.above)
	if bad != nil {
		return bad
	}
	r.balancer = p.balancer
	if _, _, ok := c.o.Networks.Subnet(c.who, text(r.shown["subnet_id"])); !ok {
		return refuse(http.StatusNotFound, "EntityNotFound", "Subnet %v could not be found", r.shown["subnet_id"])
	}
	for _, m := range c.below("members", p.id) {
		if m.shown["address"] == r.shown["address"] && m.shown["protocol_port"] == r.shown["protocol_port"] {
			return refuse(http.StatusConflict, "MemberExists", "Member with address %v and protocol_port %v already present in pool %s",
				r.shown["address"], r.shown["protocol_port"], p.id)
		}
	}
	return nil
}

func (c *call) placeMonitor(r *row) *RefusedError {
	p, bad := c.find("pools", text(r.shown["pool_id"]))
	if bad != nil {
		return bad
	}
	if has := c.below("healthmonitors", p.id); len(has) > 0 {
		return refuse(http.StatusConflict, "OneHealthMonitorPerPool",
			"Only one health monitor per pool allowed.  Pool %s is already using Health Monitor %s.", p.id, has[0].id)
	}
	r.balancer, r.above = p.balancer, p.id
	return nil
}

func (c *call) update(r *row) (int, object, *RefusedError) {
	in, bad := c.input(r.kind, false)
	if bad != nil {
		return 0, nil, bad
	}
	if bad := c.lock(r.balancer); bad != nil {
		return 0, nil, bad
	}
	maps.Copy(r.shown, in)
	c.work(r, "update", pendingUpdate, nil)
	return http.StatusOK, object{singular(r.kind): c.view(r)}, nil
}

func (c *call) remove(r *row) (int, object, *RefusedError) {
	users := map[string][]string{"loadbalancers": {"listeners", "pools"}, "pools": {"healthmonitors"}}[r.kind]
	for _, kind := range users {
		rows := c.below(kind, r.id)
		if kind == "pools" {
			rows = c.poolsOf(r.id)
		}
		if len(rows) > 0 {
			return 0, nil, refuse(http.StatusConflict, "EntityInUse", "%s %s is using this %s", singular(kind), rows[0].id, singular(r.kind))
		}
	}
	if bad := c.lock(r.balancer); bad != nil {
		return 0, nil, bad
	}
	s := c.Service
	c.work(r, "delete", pendingDelete, func() { s.drop(r) })
	return http.StatusNoContent, nil, nil
}

// drop removes a row. A pool's members are removed with it; a listener's pool stays.
func (s *Service) drop(r *row) {
	switch r.kind {
	case "loadbalancers":
		_ = s.o.Networks.RemovePort(text(r.shown["vip_port_id"]))
	case "listeners":
		for _, p := range s.below("pools", r.id) {
			p.above = ""
		}
	case "pools":
		for _, m := range s.below("members", r.id) {
			delete(s.rows, m.id)
		}
	}
	delete(s.rows, r.id)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
