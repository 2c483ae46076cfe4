// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"encoding/json"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

// record is an object of an answer.
type record map[string]any

func encode(body any) []byte {
	if body == nil {
		return nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // cannot happen: rows hold only what was decoded from JSON
	}
	return text
}

// show returns the fields of a row that the schema's object of that name has.
func show[T any](api schema, object string, row *T) record {
	out := record{}
	for _, a := range api[object] {
		switch {
		case a.Name == "tenant_id":
			out[a.Name] = table.Value(row, "project_id")
		case table.Has[T](a.Name):
			out[a.Name] = table.Value(row, a.Name)
		}
	}
	return out
}

// ids returns objects as references in an answer.
func ids[T any](rows []*T) []record {
	out := []record{}
	for _, r := range rows {
		out = append(out, record{"id": table.Value(r, "id")})
	}
	return out
}

func only(id string) []record { return []record{{"id": id}} }

func each[T any](rows []*T, view func(*T) record) []record {
	out := []record{}
	for _, r := range rows {
		out = append(out, view(r))
	}
	return out
}

func (s *Service) viewLoadBalancer(lb *loadBalancer) record {
	out := show(s.api, "LoadBalancerResponse", lb)
	out["listeners"], out["pools"] = ids(s.listenersOf(lb.ID)), ids(s.poolsOf(lb.ID))
	return out
}

// fullLoadBalancer returns the answer to a POST, which includes the children.
func (s *Service) fullLoadBalancer(lb *loadBalancer) record {
	out := show(s.api, "LoadBalancerFullResponse", lb)
	out["listeners"] = each(s.listenersOf(lb.ID), func(l *listener) record {
		r := s.viewListener(l)
		delete(r, "loadbalancers")
		r["l7policies"] = each(s.policiesOf(l.ID), func(p *policy) record {
			v := s.viewPolicy(p)
			v["rules"] = each(s.rulesOf(p.ID), s.viewRule)
			return v
		})
		return r
	})
	out["pools"] = each(s.poolsOf(lb.ID), func(p *pool) record {
		r := s.viewPool(p)
		delete(r, "loadbalancers")
		delete(r, "healthmonitor_id")
		r["members"] = each(s.membersOf(p.ID), s.viewMember)
		r["healthmonitor"] = nil // in octavia 11.0.0 even if the pool has one: api/v2/types/pool.py
		if m, ok := s.monitors.Get(deref(p.HealthMonitorID)); ok && s.o.Later {
			r["healthmonitor"] = show(s.api, "HealthMonitorFullResponse", m)
		}
		return r
	})
	return out
}

func deref(id *string) string {
	if id == nil {
		return ""
	}
	return *id
}

func (s *Service) viewListener(l *listener) record {
	out := show(s.api, "ListenerResponse", l)
	out["loadbalancers"], out["l7policies"] = only(l.LoadBalancerID), ids(s.policiesOf(l.ID))
	if l.InsertHeaders == nil {
		out["insert_headers"] = record{}
	}
	return out
}

func (s *Service) viewPool(p *pool) record {
	out := show(s.api, "PoolResponse", p)
	out["loadbalancers"], out["listeners"], out["members"] = only(p.LoadBalancerID), ids(s.usersOf(p.ID)), ids(s.membersOf(p.ID))
	if p.HealthMonitorID == nil {
		delete(out, "healthmonitor_id")
	}
	return out
}

func (s *Service) viewMember(m *member) record { return show(s.api, "MemberResponse", m) }

func (s *Service) viewMonitor(m *monitor) record {
	out := show(s.api, "HealthMonitorResponse", m)
	out["pools"] = only(m.PoolID)
	return out
}

func (s *Service) viewPolicy(p *policy) record {
	out := show(s.api, "L7PolicyResponse", p)
	out["rules"] = ids(s.rulesOf(p.ID))
	return out
}

func (s *Service) viewRule(r *rule) record { return show(s.api, "L7RuleResponse", r) }

// viewStatus returns the status tree.
func (s *Service) viewStatus(lb *loadBalancer) record {
	out := show(s.api, "LoadBalancerStatusResponse", lb)
	out["listeners"] = each(s.listenersOf(lb.ID), func(l *listener) record {
		r := show(s.api, "ListenerStatusResponse", l)
		r["pools"] = each(s.poolsUsedBy(l), s.poolStatus)
		return r
	})
	return out
}

// poolsUsedBy returns the default pool, and the pools that policies redirect to: octavia 11.0.0,
// db/models.py, Listener.pools.
func (s *Service) poolsUsedBy(l *listener) []*pool {
	used := map[string]bool{}
	if l.DefaultPoolID != nil {
		used[*l.DefaultPoolID] = true
	}
	for _, p := range s.policiesOf(l.ID) {
		if p.RedirectPoolID != nil && s.redirects(p) {
			used[*p.RedirectPoolID] = true
		}
	}
	return where(s.pools, func(p *pool) bool { return used[p.ID] })
}

func (s *Service) poolStatus(p *pool) record {
	out := show(s.api, "PoolStatusResponse", p)
	out["members"] = each(s.membersOf(p.ID), func(m *member) record { return show(s.api, "MemberStatusResponse", m) })
	if p.HealthMonitorID != nil {
		if m, ok := s.monitors.Get(*p.HealthMonitorID); ok {
			out["health_monitor"] = show(s.api, "HealthMonitorStatusResponse", m)
		}
	}
	return out
}
