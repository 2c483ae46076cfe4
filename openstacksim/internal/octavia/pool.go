// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import "strings"

func (c *call) routePools(rest []string) (*controller, *fault) {
	if len(rest) == 0 {
		return &controller{
			get: func() (answer, *fault) {
				project, bad := c.scope(mayRead, mayReadAll)
				if bad != nil {
					return answer{}, bad
				}
				return list(c, c.pools, "pools", project, nil, c.viewPool)
			}, extra: true, remove: lacking("id"),
			post: &bodied{argument: "pool_", root: "PoolRootPOST", do: c.createPool},
			put:  &bodied{argument: "pool_", root: "PoolRootPut", need: "id"},
		}, nil
	}
	id := rest[0]
	if len(rest) > 1 && rest[1] == "members" {
		p, ok := c.pools.Get(id)
		if !ok {
			return nil, lost("Pool", id)
		}
		return c.routeMembers(p, rest[2:]), nil
	}
	return &controller{
		get: func() (answer, *fault) {
			p, bad := c.pool(id, mayRead)
			if bad != nil {
				return answer{}, bad
			}
			return c.one("pool", c.viewPool(p), rest)
		}, extra: true,
		post:   misplaced("pool_", "PoolRootPOST", id),
		put:    &bodied{argument: "pool_", root: "PoolRootPut", do: func(in values) (answer, *fault) { return c.updatePool(id, in) }},
		remove: func() (answer, *fault) { return c.deletePool(id) },
	}, nil
}

func (c *call) pool(id string, r right) (*pool, *fault) {
	p, ok := c.pools.Get(id)
	if !ok {
		return nil, notFound("Pool", id)
	}
	return p, c.allow(r, p.ProjectID)
}

func (c *call) createPool(body values) (answer, *fault) {
	in, bad := below(body, "pool", "loadbalancer_id")
	if bad != nil {
		return answer{}, bad
	}
	var l *listener
	if in.text("loadbalancer_id") == "" {
		if in.text("listener_id") == "" {
			return answer{}, invalid("Must provide at least one of: loadbalancer_id, listener_id")
		}
		var ok bool
		if l, ok = c.listeners.Get(in.text("listener_id")); !ok {
			return answer{}, crash("'NoneType' object has no attribute 'load_balancer_id'")
		}
		in["loadbalancer_id"] = l.LoadBalancerID
	}
	lb, bad := c.parent(in, "loadbalancer_id")
	if bad != nil {
		return answer{}, bad
	}
	if bad := checkPool(l, in); bad != nil {
		return answer{}, bad
	}
	return c.createPoolOn(lb, in)
}

func checkPool(l *listener, in values) *fault {
	if l != nil {
		if l.Protocol == "PROMETHEUS" {
			return childless
		}
		if bad := compatible(l.Protocol, in.text("protocol")); bad != nil {
			return bad
		}
	}
	return persistenceFits(in, in.text("protocol"), "UDP and SCTP")
}

func (c *call) createPoolOn(lb *loadBalancer, in values) (answer, *fault) {
	d, bad := c.driver(lb.Provider)
	if bad != nil {
		return answer{}, bad
	}
	if c.overQuota("pool", lb.ProjectID, 1) {
		return answer{}, quotaMet("Pool")
	}
	hold := lock{lb: lb}
	var l *listener
	if id := in.text("listener_id"); id != "" {
		var ok bool
		if l, ok = c.listeners.Get(id); !ok {
			return answer{}, crash("'NoneType' object has no attribute 'default_pool'")
		}
		if l.DefaultPoolID != nil {
			return answer{}, refuse(409, "This listener already has a default pool")
		}
		hold.listeners = []*listener{l}
	}
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	p, bad := c.newPool(lb, in)
	if bad == nil {
		bad = d.createPool(p)
	}
	if bad != nil {
		return answer{}, bad
	}
	if l != nil {
		l.DefaultPoolID = &p.ID
	}
	c.pools.Put(p)
	c.work("pool", "create", &p.base, hold, func() {
		p.OperatingStatus = upDown(l != nil)
	})
	return answer{201, record{"pool": c.viewPool(p)}}, nil
}

// persistenceFits is octavia 11.0.0, api/v2/controllers/pool.py and common/validate.py,
// check_session_persistence. only is its name for the protocols.
func persistenceFits(in values, protocol, only string) *fault {
	p := in.object("session_persistence")
	if p == nil {
		return nil
	}
	cookie, timed := p.text("cookie_name"), p["persistence_timeout"] != nil || p["persistence_granularity"] != nil
	kind := p.text("type")
	datagrams := protocol == "UDP" || protocol == "SCTP"
	switch {
	case datagrams && kind == "SOURCE_IP" && cookie != "":
		return invalid("session_persistence SOURCE_IP type for UDP and SCTP protocols only accepts: type, persistence_timeout, persistence_granularity.")
	case datagrams && cookie != "":
		return invalid("Cookie names are not supported for UDP/SCTP pools.")
	case datagrams && strings.HasSuffix(kind, "_COOKIE"):
		return invalid("Session persistence of type %s is not supported for UDP/SCTP protocol pools.", kind)
	case !datagrams && timed:
		return invalid("persistence_timeout and persistence_granularity is only for %s protocol pools.", only)
	case cookie != "" && kind != "APP_COOKIE":
		return invalid("Field \"cookie_name\" can only be specified with session persistence of type \"APP_COOKIE\".")
	case cookie != "" && strings.ContainsFunc(cookie, notInCookies):
		return invalid("Supplied \"cookie_name\" is invalid.")
	case cookie == "" && kind == "APP_COOKIE":
		return invalid("Field \"cookie_name\" must be specified when using the \"APP_COOKIE\" session persistence type.")
	}
	return nil
}

func notInCookies(r rune) bool {
	return r <= 0x20 || r == 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
}

// newPool makes a pool without storing it.
func (c *call) newPool(lb *loadBalancer, in values) (*pool, *fault) {
	if in.text("crl_container_ref") != "" && in.text("ca_tls_container_ref") == "" {
		return nil, invalid("A CA certificate reference is required to specify a revocation list.")
	}
	authorities := nonEmpty(in.text("ca_tls_container_ref"), in.text("crl_container_ref"))
	if bad := c.checkTLS(in, nonEmpty(in.text("tls_container_ref")), authorities, in.flag("tls_enabled")); bad != nil {
		return nil, bad
	}
	if in.null("protocol") || in.null("lb_algorithm") { // the database refuses null
		return nil, crash("Something unknown went wrong")
	}
	p := &pool{LoadBalancerID: lb.ID}
	p.base = c.fresh(lb.ProjectID)
	apply(p, in.without("project_id", "tenant_id"))
	if p.Tags == nil {
		p.Tags = []string{}
	}
	if p.TLSEnabled {
		p.secure()
	}
	return p, nil
}

func (p *pool) secure() {
	var l listener
	l.TLSCiphers, l.TLSVersions, l.ALPNProtocols = p.TLSCiphers, p.TLSVersions, p.ALPNProtocols
	l.secure()
	p.TLSCiphers, p.TLSVersions, p.ALPNProtocols = l.TLSCiphers, l.TLSVersions, l.ALPNProtocols
}

func (c *call) updatePool(id string, body values) (answer, *fault) {
	p, bad := c.pool(id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	in, bad := below(body, "pool", "tls_versions")
	if bad != nil {
		return answer{}, bad
	}
	lb, _ := c.loadBalancers.Get(p.LoadBalancerID)
	if sp := in.object("session_persistence"); sp != nil && sp.text("type") == "" && p.Persistence != nil {
		sp["type"] = p.Persistence.Type
	}
	if bad := c.checkPoolUpdate(p, in); bad != nil {
		return answer{}, bad
	}
	d, bad := c.driver(lb.Provider)
	if bad != nil {
		return answer{}, bad
	}
	hold := lock{lb: lb, listeners: c.usersOf(id)}
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	if bad := d.updatePool(in); bad != nil {
		return answer{}, bad
	}
	if in.null("lb_algorithm") {
		return answer{}, crash("Column 'lb_algorithm' cannot be null")
	}
	apply(p, in)
	if p.Tags == nil {
		p.Tags = []string{}
	}
	s := c.Service
	c.work("pool", "update", &p.base, hold, func() {
		if in.given("admin_state_up") {
			p.OperatingStatus = upDown(p.AdminStateUp)
		} else if in.given("session_persistence") && s.recent(lb) {
			s.settle(&p.base, failed) // ovn-octavia-provider 8.0.0: helper.py, pool_update, a KeyError
		}
	})
	return answer{200, record{"pool": c.viewPool(p)}}, nil
}

func (c *call) checkPoolUpdate(p *pool, in values) *fault {
	if bad := persistenceFits(in, p.Protocol, "UDP"); bad != nil {
		return bad
	}
	if in.text("crl_container_ref") != "" && in.text("ca_tls_container_ref") == "" && p.CARef == nil {
		return invalid("A CA reference is required to specify a certificate revocation list.")
	}
	if in.given("ca_tls_container_ref") && in.text("ca_tls_container_ref") == "" && p.CARef != nil && p.CRLRef != nil {
		return invalid("A CA reference cannot be removed when a certificate revocation list is present.")
	}
	authorities := nonEmpty(in.text("ca_tls_container_ref"), in.text("crl_container_ref"))
	return c.checkTLS(in, nonEmpty(in.text("tls_container_ref")), authorities, true)
}

func (c *call) deletePool(id string) (answer, *fault) {
	p, bad := c.pool(id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	if policies := c.redirectsTo(id); len(policies) > 0 {
		return answer{}, refuse(409, "Pool %s is in use by L7 policy %s", id, policies[0].ID)
	}
	lb, _ := c.loadBalancers.Get(p.LoadBalancerID)
	hold := lock{lb: lb, listeners: c.usersOf(id)}
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	s := c.Service
	if members := c.membersOf(id); s.recent(lb) && len(members) > 0 { // driver.py, pool_delete: first each member
		c.hold(hold)
		c.settle(&p.base, pendingDelete)
		c.begin("pool", id, "delete", func() {
			s.told(p, func() {
				for _, m := range members {
					s.members.Delete(m.ID)
				}
			})
		}, func() { s.fail(&p.base, hold) }, func() {
			s.dropPool(p)
			s.release(hold)
		})
		return answer{status: 204}, nil
	}
	c.work("pool", "delete", &p.base, hold, func() { s.dropPool(p) })
	return answer{status: 204}, nil
}

// dropPool removes a pool and everything below it.
func (s *Service) dropPool(p *pool) {
	for _, m := range s.membersOf(p.ID) {
		s.members.Delete(m.ID)
	}
	if p.HealthMonitorID != nil {
		s.monitors.Delete(*p.HealthMonitorID)
	}
	for _, l := range s.usersOf(p.ID) {
		if l.DefaultPoolID != nil && *l.DefaultPoolID == p.ID {
			l.DefaultPoolID = nil
		}
	}
	for _, r := range s.redirectsTo(p.ID) {
		r.RedirectPoolID = nil
	}
	s.pools.Delete(p.ID)
}
