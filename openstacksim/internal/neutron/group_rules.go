// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import "slices"

// checkRules checks the rules of a bulk POST together: all belong to one group, and no two are
// equal (neutron 21.0.0: db/securitygroups_db.py, create_security_group_rule_bulk_native).
func checkRules(c *call, items []values) *fault {
	groups, projects := map[string]bool{}, map[string]bool{}
	for _, in := range items {
		groups[in.text("security_group_id")], projects[in.text("project_id")] = true, true
		switch {
		case len(groups) > 1:
			return refuse(400, "SecurityGroupNotSingleGroupRules", "Only allowed to update rules for one security profile at a time")
		case len(projects) > 1:
			return refuse(400, "SecurityGroupRulesNotSingleTenant", "Multiple tenant_ids in bulk security group rule create not allowed")
		}
	}
	rules := make([]*rule, len(items))
	for i, in := range items {
		rules[i] = &rule{}
		rules[i].ProjectID = in.text("project_id")
		c.rules.set(rules[i], in)
		if f := c.checkRule(rules[i]); f != nil {
			return f
		}
	}
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r.key()] {
			return conflict("DuplicateSecurityGroupRuleInPost", "Duplicate Security Group Rule in POST.")
		}
		seen[r.key()] = true
	}
	return nil
}

func createRule(c *call, r *rule, _ values) *fault {
	if f := c.checkRule(r); f != nil {
		return f
	}
	g, _ := c.groups.rows.Get(r.GroupID)
	key := r.key()
	if i := slices.IndexFunc(g.Rules, func(o *rule) bool { return o.key() == key }); i >= 0 {
		return conflict("SecurityGroupRuleExists", "Security group rule already exists. Rule id is %s.", g.Rules[i].ID)
	}
	r.GroupID, r.AttributesID = g.ID, c.attributesID()
	c.markRule(r, slices.Contains(c.defaults[g.ProjectID], g.ID))
	return nil
}

// checkRule converts the rule to the form that Neutron stores. It checks the rule and the
// resources that it names.
func (c *call) checkRule(r *rule) *fault {
	r.canonical()
	if f := r.wrong(); f != nil {
		return f
	}
	if r.RemoteGroup != nil {
		if f := c.groupVisible(*r.RemoteGroup); f != nil {
			return f
		}
	}
	if r.RemoteAddress != nil {
		if _, f := c.addressGroups.find(c, *r.RemoteAddress); f != nil {
			return f
		}
	}
	return c.groupVisible(r.GroupID)
}

func (c *call) groupVisible(id string) *fault {
	_, f := c.groups.find(c, id)
	return f
}

// joinGroup adds a stored rule to its group, which counts as a change of the group.
func joinGroup(c *call, r *rule) *fault {
	old, _ := c.groups.rows.Get(r.GroupID)
	g := *old
	g.Rules = withRule(old.Rules, r)
	g.touch(c)
	c.groups.put(c, &g)
	return nil
}

// leaveGroup removes a rule from its group.
func (c *call) leaveGroup(r *rule) {
	old, ok := c.groups.rows.Get(r.GroupID)
	if !ok {
		return
	}
	g := *old
	g.Rules = slices.DeleteFunc(slices.Clone(old.Rules), func(o *rule) bool { return o.ID == r.ID })
	g.touch(c)
	c.groups.put(c, &g)
}

func removeRule(c *call, r *rule) *fault {
	c.leaveGroup(r)
	return nil
}
