// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import "github.com/kuryr-go/kuryr/openstacksim/internal/table"

// quota is a project's quota of each kind; nil is the default, unlimited.
type quota struct {
	ProjectID     string `json:"project_id"`
	LoadBalancer  *int   `json:"load_balancer"`
	Listener      *int   `json:"listener"`
	Pool          *int   `json:"pool"`
	Member        *int   `json:"member"`
	HealthMonitor *int   `json:"health_monitor"`
	L7Policy      *int   `json:"l7policy"`
	L7Rule        *int   `json:"l7rule"`
}

var quotaKinds = []string{"load_balancer", "listener", "member", "pool", "health_monitor", "l7policy", "l7rule"}

func (c *call) routeQuotas(rest []string) *controller {
	if len(rest) == 0 {
		return &controller{
			get: c.listQuotas, extra: true, remove: lacking("project_id"),
			put: &bodied{argument: "quotas", root: "QuotaPUT", need: "project_id"},
		}
	}
	project := rest[0]
	if len(rest) > 1 && rest[1] == "default" {
		return &controller{get: func() (answer, *fault) {
			return answer{200, viewQuota(&quota{})}, c.allow(mayReadQuota, project)
		}}
	}
	return &controller{
		get: func() (answer, *fault) {
			return answer{200, c.quotaOf(project)}, c.allow(mayReadQuota, project)
		},
		put:    &bodied{argument: "quotas", root: "QuotaPUT", do: func(in values) (answer, *fault) { return c.putQuota(project, in) }},
		remove: func() (answer, *fault) { return c.dropQuota(project) },
	}
}

func (s *Service) quotaOf(project string) record {
	if q, ok := s.quotas.Get(project); ok {
		return viewQuota(q)
	}
	return viewQuota(&quota{})
}

func viewQuota(q *quota) record {
	out := record{}
	for _, kind := range quotaKinds {
		out[kind] = -1
		if limit, _ := table.Value(q, kind).(*int); limit != nil {
			out[kind] = *limit
		}
	}
	return record{"quota": out}
}

func (c *call) listQuotas() (answer, *fault) {
	project, bad := c.scope(mayReadQuota, mayReadQuotas)
	if bad != nil {
		return answer{}, bad
	}
	return list(c, c.quotas, "quotas", project, nil, func(q *quota) record {
		out := show(c.api, "QuotaAllBase", q)
		out["loadbalancer"], out["healthmonitor"] = q.LoadBalancer, q.HealthMonitor
		return out
	})
}

func (c *call) putQuota(project string, body values) (answer, *fault) {
	if bad := c.allow(mayWriteQuota, project); bad != nil {
		return answer{}, bad
	}
	in := body.object("quota")
	switch {
	case body.null("quota"):
		return answer{}, crash("'NoneType' object has no attribute 'items'")
	case in == nil:
		return answer{}, crash("'quota'")
	}
	in = in.clone()
	for now, once := range map[string]string{"loadbalancer": "load_balancer", "healthmonitor": "health_monitor"} {
		if in.given(now) {
			in[once] = in[now]
		}
	}
	q := c.tracked(project)
	apply(q, in)
	return answer{202, viewQuota(q)}, nil
}

// tracked returns a project's row. Octavia makes it at the first check of a quota.
func (s *Service) tracked(project string) *quota {
	q, ok := s.quotas.Get(project)
	if !ok {
		q = &quota{ProjectID: project}
		s.quotas.Put(q)
	}
	return q
}

func (c *call) dropQuota(project string) (answer, *fault) {
	if bad := c.allow(mayWriteQuota, project); bad != nil {
		return answer{}, bad
	}
	if _, ok := c.quotas.Get(project); !ok {
		return answer{}, notFound("Quotas", project)
	}
	c.quotas.Put(&quota{ProjectID: project}) // the row stays, to count the resources in use
	return answer{status: 202}, nil
}

// overQuota reports whether n more would exceed the quota.
func (s *Service) overQuota(kind, project string, n int) bool {
	q := s.tracked(project)
	limit, _ := table.Value(q, kind).(*int)
	return limit != nil && *limit >= 0 && s.inUse(kind, project)+n > *limit
}

func (s *Service) inUse(kind, project string) int {
	switch kind {
	case "load_balancer":
		return len(where(s.loadBalancers, func(r *loadBalancer) bool { return r.ProjectID == project && r.ProvisioningStatus != deleted }))
	case "listener":
		return len(where(s.listeners, func(r *listener) bool { return r.ProjectID == project }))
	case "pool":
		return len(where(s.pools, func(r *pool) bool { return r.ProjectID == project }))
	case "member":
		return len(where(s.members, func(r *member) bool { return r.ProjectID == project }))
	case "health_monitor":
		return len(where(s.monitors, func(r *monitor) bool { return r.ProjectID == project }))
	case "l7policy":
		return len(where(s.policies, func(r *policy) bool { return r.ProjectID == project }))
	}
	return len(where(s.rules, func(r *rule) bool { return r.ProjectID == project }))
}
