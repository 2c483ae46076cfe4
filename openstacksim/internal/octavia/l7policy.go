// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import "slices"

const (
	toPool   = "REDIRECT_TO_POOL"
	toURL    = "REDIRECT_TO_URL"
	toPrefix = "REDIRECT_PREFIX"
	maxRules = 50
)

func (c *call) routePolicies(rest []string) (*controller, *fault) {
	if len(rest) == 0 {
		return &controller{
			get: func() (answer, *fault) {
				project, bad := c.scope(mayRead, mayReadAll)
				if bad != nil {
					return answer{}, bad
				}
				return list(c, c.policies, "l7policies", project, nil, c.viewPolicy)
			}, extra: true, remove: lacking("id"),
			post: &bodied{argument: "l7policy_", root: "L7PolicyRootPOST", do: c.createPolicy},
			put:  &bodied{argument: "l7policy_", root: "L7PolicyRootPUT", need: "id"},
		}, nil
	}
	id := rest[0]
	if len(rest) > 1 && rest[1] == "rules" {
		p, ok := c.policies.Get(id)
		if !ok {
			return nil, lost("L7Policy", id)
		}
		return c.routeRules(p, rest[2:]), nil
	}
	return &controller{
		get: func() (answer, *fault) {
			p, bad := c.policy(id, mayRead)
			if bad != nil {
				return answer{}, bad
			}
			return c.one("l7policy", c.viewPolicy(p), rest)
		}, extra: true,
		post:   misplaced("l7policy_", "L7PolicyRootPOST", id),
		put:    &bodied{argument: "l7policy_", root: "L7PolicyRootPUT", do: func(in values) (answer, *fault) { return c.updatePolicy(id, in) }},
		remove: func() (answer, *fault) { return c.deletePolicy(id) },
	}, nil
}

func (c *call) policy(id string, r right) (*policy, *fault) {
	p, ok := c.policies.Get(id)
	if !ok {
		return nil, notFound("L7 Policy", id)
	}
	return p, c.allow(r, p.ProjectID)
}

// holdListener returns the lock for a change below a listener.
func (c *call) holdListener(l *listener) lock {
	lb, _ := c.loadBalancers.Get(l.LoadBalancerID)
	return lock{lb: lb, listeners: []*listener{l}}
}

func (c *call) createPolicy(body values) (answer, *fault) {
	in, bad := below(body, "l7policy", "listener_id")
	if bad != nil {
		return answer{}, bad
	}
	l, bad := c.listenerFor(in)
	if bad != nil {
		return answer{}, bad
	}
	hold := c.holdListener(l)
	d, bad := c.driver(hold.lb.Provider)
	if bad != nil {
		return answer{}, bad
	}
	if c.overQuota("l7policy", l.ProjectID, 1) {
		return answer{}, quotaMet("L7 Policy")
	}
	if _, bad := sanitize(in, true); bad != nil {
		return answer{}, bad
	}
	// The API's type knows the attribute, but its handler does not.
	if len(in.list("rules")) > 0 {
		return answer{}, crash("'dict' object has no attribute '_sa_instance_state'")
	}
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	p, bad := c.newPolicy(l, in)
	if bad == nil {
		bad = d.createPolicy(l)
	}
	if bad != nil {
		return answer{}, bad
	}
	c.storePolicy(p)
	c.work("l7policy", "create", &p.base, hold, func() { p.OperatingStatus = upDown(p.AdminStateUp) })
	return answer{201, record{"l7policy": c.viewPolicy(p)}}, nil
}

// listenerFor returns the listener of a new policy.
func (c *call) listenerFor(in values) (*listener, *fault) {
	l, ok := c.listeners.Get(in.text("listener_id"))
	if !ok {
		return nil, notFound("Listener", str(in["listener_id"]))
	}
	if bad := c.allow(mayWrite, l.ProjectID); bad != nil {
		return nil, bad
	}
	if l.Protocol == "PROMETHEUS" {
		return nil, childless
	}
	return l, c.redirectFits(l, in)
}

// redirectFits refuses a pool that does not exist or has another protocol.
func (c *call) redirectFits(l *listener, in values) *fault {
	id := in.text("redirect_pool_id")
	if id == "" {
		return nil
	}
	p, ok := c.pools.Get(id)
	if !ok {
		return notFound("Pool", id)
	}
	return compatible(l.Protocol, p.Protocol)
}

// sanitize makes the action and its target consistent: octavia 11.0.0, common/validate.py,
// sanitize_l7policy_api_args.
func sanitize(in values, create bool) (values, *fault) {
	out := in.clone()
	if in.given("action") {
		if bad := out.act(); bad != nil {
			return nil, bad
		}
	}
	pool, url, prefix := out.text("redirect_pool_id"), out.text("redirect_url"), out.text("redirect_prefix")
	switch {
	case pool != "" && (url != "" || prefix != ""):
		return nil, wrongPolicy("Cannot specify redirect_pool_id and redirect_url or redirect_prefix at the same time")
	case pool != "":
		out["action"] = toPool
		out.clear("redirect_url", "redirect_prefix", "redirect_http_code")
	case url != "":
		out["action"] = toURL
		out.clear("redirect_pool_id", "redirect_prefix")
	case prefix != "":
		out["action"] = toPrefix
		out.clear("redirect_pool_id", "redirect_url")
	}
	if (url != "" || prefix != "") && out["redirect_http_code"] == nil {
		out["redirect_http_code"] = int64(302)
	}
	if len(out) == 0 && !create {
		return nil, wrongPolicy("Invalid update options")
	}
	return out, nil
}

func wrongPolicy(text string) *fault { return refuse(400, "Invalid L7 Policy arguments: %s", text) }

func (v values) clear(names ...string) {
	for _, name := range names {
		v[name] = nil
	}
}

// act removes the attributes that the action does not use. It refuses if a required one is
// missing.
func (v values) act() *fault {
	switch v.text("action") {
	case "REJECT":
		v.clear("redirect_url", "redirect_pool_id")
	case toURL:
		if v.text("redirect_url") == "" {
			return wrongPolicy("redirect_url must not be None")
		}
		v.clear("redirect_pool_id")
	case toPool:
		if v.text("redirect_pool_id") == "" {
			return wrongPolicy("redirect_pool_id or redirect_pool must not be None")
		}
		v.clear("redirect_url")
	case toPrefix:
		if v.text("redirect_prefix") == "" {
			return wrongPolicy("redirect_prefix must not be None")
		}
	default:
		return refuse(400, "Invalid L7 Policy action specified: %s", str(v["action"]))
	}
	return nil
}

// newPolicy makes a policy without storing it.
func (c *call) newPolicy(l *listener, in values) (*policy, *fault) {
	in, bad := sanitize(in, true)
	if bad != nil {
		return nil, bad
	}
	if id := in.text("redirect_pool_id"); id != "" {
		if to, ok := c.pools.Get(id); !ok || to.LoadBalancerID != l.LoadBalancerID {
			return nil, notFound("Pool", id)
		}
	}
	p := &policy{ListenerID: l.ID}
	p.base = c.fresh(l.ProjectID)
	apply(p, in.without("project_id", "tenant_id", "listener_id"))
	if p.Tags == nil {
		p.Tags = []string{}
	}
	return p, nil
}

// storePolicy inserts a policy at its position, and renumbers all policies of the listener.
func (s *Service) storePolicy(p *policy) {
	others := slices.DeleteFunc(s.policiesOf(p.ListenerID), func(o *policy) bool { return o == p })
	at := min(max(p.Position-1, 0), len(others))
	if p.Position == 0 {
		at = len(others)
	}
	s.policies.Put(p)
	renumber(slices.Insert(others, at, p))
}

func renumber(all []*policy) {
	for i, p := range all {
		p.Position = i + 1
	}
}

func (c *call) updatePolicy(id string, body values) (answer, *fault) {
	p, bad := c.policy(id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	in, bad := below(body, "l7policy", "to_dict")
	if bad == nil {
		in, bad = sanitize(in, false)
	}
	if bad != nil {
		return answer{}, bad
	}
	l, _ := c.listeners.Get(p.ListenerID)
	if bad := c.redirectFits(l, in); bad != nil {
		return answer{}, bad
	}
	hold := c.holdListener(l)
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	before := p.Position
	apply(p, in)
	if p.Tags == nil {
		p.Tags = []string{}
	}
	if p.Position != before && p.Position > 0 {
		c.storePolicy(p)
	} else {
		p.Position = before
	}
	c.work("l7policy", "update", &p.base, hold, func() { p.OperatingStatus = upDown(p.AdminStateUp) })
	return answer{200, record{"l7policy": c.viewPolicy(p)}}, nil
}

func (c *call) deletePolicy(id string) (answer, *fault) {
	p, bad := c.policy(id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	l, _ := c.listeners.Get(p.ListenerID)
	hold := c.holdListener(l)
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	s := c.Service
	c.work("l7policy", "delete", &p.base, hold, func() { s.dropPolicy(p) })
	return answer{status: 204}, nil
}

func (s *Service) dropPolicy(p *policy) {
	for _, r := range s.rulesOf(p.ID) {
		s.rules.Delete(r.ID)
	}
	s.policies.Delete(p.ID)
	renumber(s.policiesOf(p.ListenerID))
}
