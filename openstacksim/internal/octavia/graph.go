// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import "slices"

// graph is the creation of a fully populated load balancer.
type graph struct {
	*call
	driver    driver
	lb        *loadBalancer
	listeners []*listener
	pools     []*pool
	members   []*member
	monitors  []*monitor
	policies  []*policy
	rules     []*rule
	byName    map[string]string // IDs of the pools
}

// populate stores lb with the children that the request names, or stores nothing.
func (c *call) populate(d driver, lb *loadBalancer, in values) *fault {
	g := &graph{call: c, driver: d, lb: lb, byName: map[string]string{}}
	c.loadBalancers.Put(lb)
	bad := g.children(in)
	if bad == nil {
		bad = d.createAll(g.listeners, g.pools, g.monitors, g.members)
	}
	if bad != nil {
		for _, l := range c.listenersOf(lb.ID) {
			c.dropListener(l)
		}
		for _, p := range c.poolsOf(lb.ID) {
			c.dropPool(p)
		}
		c.loadBalancers.Delete(lb.ID)
		return bad
	}
	if c.Service.recent(lb) { // driver.py, loadbalancer_create: one after the other
		c.begin("loadbalancer", lb.ID, "create", g.doneFirst, g.failed, g.doneChildren, g.doneMembers)
		return nil
	}
	c.begin("loadbalancer", lb.ID, "create", g.done, g.failed)
	return nil
}

// children is octavia 11.0.0, api/v2/controllers/load_balancer.py, _graph_create.
func (g *graph) children(in values) *fault {
	pools, listeners, bad := gather(in)
	if bad != nil {
		return bad
	}
	if len(pools) > 0 && g.overQuota("pool", g.lb.ProjectID, len(pools)) {
		return quotaMet("Pool")
	}
	for _, p := range pools {
		if bad := g.addPool(p); bad != nil {
			return bad
		}
	}
	if len(listeners) > 0 && g.overQuota("listener", g.lb.ProjectID, len(listeners)) {
		return quotaMet("Listener")
	}
	for _, l := range listeners {
		if bad := g.addListener(l); bad != nil {
			return bad
		}
	}
	return nil
}

// gather collects the pools that are described in full, at the top or below listeners.
func gather(in values) (pools, listeners []values, bad *fault) {
	pools, listeners = in.objects("pools"), in.objects("listeners")
	if slices.ContainsFunc(pools, isNull) || slices.ContainsFunc(listeners, isNull) {
		return nil, nil, crash("'NoneType' object has no attribute 'get'")
	}
	required := []string{}
	take := func(owner values, name string) *fault {
		p := owner.object(name)
		switch {
		case p == nil:
		case p.text("name") == "":
			return invalid("Pools must be named when creating a fully populated loadbalancer.")
		case len(p) > 3: // a name and two defaults only refer to a pool
			pools = append(pools, p)
		default:
			required = append(required, p.text("name"))
		}
		return nil
	}
	for _, l := range listeners {
		if bad := take(l, "default_pool"); bad != nil {
			return nil, nil, bad
		}
		for _, p := range l.objects("l7policies") {
			if isNull(p) {
				return nil, nil, crash("'NoneType' object has no attribute 'get'")
			}
			if bad := take(p, "redirect_pool"); bad != nil {
				return nil, nil, bad
			}
		}
	}
	return pools, listeners, named(pools, required)
}

// named refuses duplicate pool names, and references to names that no pool has.
func named(pools []values, required []string) *fault {
	names := []string{}
	for _, p := range pools {
		if slices.Contains(names, p.text("name")) {
			return invalid("Pool names must be unique when creating a fully populated loadbalancer.")
		}
		names = append(names, p.text("name"))
	}
	for _, name := range required {
		if !slices.Contains(names, name) {
			return invalid("Pool '%s' was referenced but no full definition was found.", name)
		}
	}
	return nil
}

func isNull(v values) bool { return v == nil }

func (g *graph) addPool(in values) *fault {
	for _, name := range []string{"protocol", "lb_algorithm"} {
		if !in.given(name) {
			if !in.given("name") {
				return crash("'name'") // a KeyError while Octavia formats the error
			}
			return invalid("Pool definition for '%s' missing required attribute: %s", in.text("name"), name)
		}
	}
	p, bad := g.newPool(g.lb, in)
	if bad != nil {
		return bad
	}
	g.call.pools.Put(p)
	g.pools = append(g.pools, p)
	g.byName[p.Name] = p.ID
	if bad := g.addMonitor(p, in.object("healthmonitor")); bad != nil {
		return bad
	}
	members := in.objects("members")
	if len(members) > 0 && g.overQuota("member", g.lb.ProjectID, len(members)) {
		return quotaMet("Member")
	}
	for _, one := range members {
		if one == nil {
			return crash("'NoneType' object is not subscriptable")
		}
		m, bad := g.newMember(p, one)
		if bad != nil {
			return bad
		}
		g.call.members.Put(m)
		g.members = append(g.members, m)
	}
	return nil
}

func (g *graph) addMonitor(p *pool, in values) *fault {
	if in == nil {
		return nil
	}
	if g.overQuota("health_monitor", g.lb.ProjectID, 1) {
		return quotaMet("Health Monitor")
	}
	m, bad := g.newMonitor(p, in)
	if bad == nil {
		bad = fitsPool(m.Type, m.Delay, p.Protocol)
	}
	if bad != nil {
		return bad
	}
	g.storeMonitor(p, m)
	g.monitors = append(g.monitors, m)
	return nil
}

func (g *graph) addListener(in values) *fault {
	if ref := in.object("default_pool"); ref != nil {
		in = in.without("default_pool")
		in["default_pool_id"] = g.byName[ref.text("name")]
	}
	l, bad := g.newListener(g.lb, in)
	if bad != nil {
		return bad
	}
	if l.DefaultPoolID != nil && !g.o.Later {
		g.touch(&l.base) // Octavia writes the listener twice; observed
	}
	g.call.listeners.Put(l)
	g.listeners = append(g.listeners, l)
	if l.Protocol == "PROMETHEUS" && len(in.list("l7policies")) > 0 {
		return childless
	}
	for _, one := range in.objects("l7policies") {
		if ref := one.object("redirect_pool"); ref != nil {
			one = one.without("redirect_pool")
			one["redirect_pool_id"] = g.byName[ref.text("name")]
		}
		if bad := g.addPolicy(l, one); bad != nil {
			return bad
		}
	}
	return nil
}

func (g *graph) addPolicy(l *listener, in values) *fault {
	p, bad := g.newPolicy(l, in)
	if bad != nil {
		return bad
	}
	g.storePolicy(p)
	g.policies = append(g.policies, p)
	rules := in.objects("rules")
	if len(rules) > maxRules {
		return refuse(409, "Too many rules on L7 policy %s", p.ID)
	}
	for _, one := range rules {
		r, bad := g.newRule(p, one)
		if bad != nil {
			return bad
		}
		g.call.rules.Put(r)
		g.rules = append(g.rules, r)
	}
	return nil
}

// done ends a successful creation. OVN's driver does not receive the monitors, so they stay
// PENDING_CREATE: ovn-octavia-provider 3.0.0, driver.py, loadbalancer_create.
func (g *graph) done() {
	g.doneFirst()
	for _, l := range g.listeners {
		g.settle(&l.base, active)
		l.OperatingStatus = upDown(l.AdminStateUp)
	}
	for _, p := range g.pools {
		g.settle(&p.base, active)
		if len(g.membersOf(p.ID)) > 0 {
			p.OperatingStatus = online
		}
	}
	for _, m := range g.members {
		g.settle(&m.base, active)
		if !m.AdminStateUp {
			m.OperatingStatus = offline
		}
	}
	if g.lb.Provider == ovnName {
		return
	}
	for _, b := range g.unseen() {
		g.settle(b, active)
		b.OperatingStatus = upDown(b.AdminStateUp)
	}
	g.observe(g.lb)
}

// The next three end a creation with ovn-octavia-provider 8.0.0, in this order.
func (g *graph) doneFirst() {
	g.settle(&g.lb.base, active)
	g.lb.OperatingStatus = upDown(g.lb.AdminStateUp)
}

func (g *graph) doneChildren() {
	for _, l := range g.listeners {
		g.settle(&l.base, active)
		l.OperatingStatus = upDown(l.AdminStateUp)
	}
	for _, p := range g.pools {
		g.settle(&p.base, active)
	}
	for _, m := range g.monitors {
		g.told(g.poolOf(m.PoolID), func() {
			g.settle(&m.base, active)
			m.OperatingStatus = upDown(m.AdminStateUp)
		})
	}
}

func (g *graph) doneMembers() {
	for _, m := range g.members {
		p := g.poolOf(m.PoolID)
		g.told(p, func() {
			g.settle(&m.base, active)
			g.joined(p, m)
		})
	}
}

func (g *graph) poolOf(id string) *pool {
	return g.pools[slices.IndexFunc(g.pools, func(p *pool) bool { return p.ID == id })]
}

// unseen returns the children that OVN's driver does not receive.
func (g *graph) unseen() []*base {
	var out []*base
	for _, m := range g.monitors {
		out = append(out, &m.base)
	}
	for _, p := range g.policies {
		out = append(out, &p.base)
	}
	for _, r := range g.rules {
		out = append(out, &r.base)
	}
	return out
}

// failed ends a failed creation. OVN's driver has removed the port by then.
func (g *graph) failed() {
	all := append(g.unseen(), &g.lb.base)
	for _, l := range g.listeners {
		all = append(all, &l.base)
	}
	for _, p := range g.pools {
		all = append(all, &p.base)
	}
	for _, m := range g.members {
		all = append(all, &m.base)
	}
	for _, b := range all {
		g.settle(b, failed)
		b.OperatingStatus = failed
	}
}
