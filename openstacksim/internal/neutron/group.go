// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"slices"
	"strings"
)

// securityGroup is a security group with its rules.
type securityGroup struct {
	standard
	Name     string  `json:"name"`
	Stateful bool    `json:"stateful"`
	Shared   bool    `json:"shared"`
	Rules    []*rule `json:"security_group_rules"` // in the order of their IDs; never changed in place
}

const defaultDescription = "Default security group"

func (s *Service) registerGroups() {
	s.groups = &kind[securityGroup]{
		one: "security_group", many: "security_groups", title: "SecurityGroup",
		create: createGroup, update: updateGroup, remove: removeGroup,
		listing: listGroups, missing: noGroup, view: viewGroup,
	}
	s.rules = &kind[rule]{
		one: "security_group_rule", many: "security_group_rules", title: "SecurityGroupRule",
		create: createRule, remove: removeRule, batch: checkRules, created: joinGroup, listing: listGroups,
		shown: func(c *call, r *rule) bool {
			g, ok := c.groups.rows.Get(r.GroupID)
			return c.owns(r.ProjectID) || ok && c.owns(g.ProjectID)
		},
		missing: func(id string) *fault {
			return refuse(404, "SecurityGroupRuleNotFound", "Security group rule %s does not exist", id)
		},
		filters: map[string]func(*call, *rule, []string) bool{
			"belongs_to_default_sg": func(_ *call, r *rule, wanted []string) bool { return slices.Contains(wanted, string(r.OfDefault)) },
		},
	}
	register(s, s.groups)
	register(s, s.rules)
}

// viewGroup returns a group for an answer. A list of groups leaves open whether their rules are
// those of a default group (neutron 26.0.3: db/securitygroups_db.py, _make_security_group_rule_dict).
func viewGroup(c *call, g *securityGroup) *securityGroup {
	if !c.Later || !c.lists("/security-groups") {
		return g
	}
	n := *g
	n.Rules = make([]*rule, len(g.Rules))
	for i, r := range g.Rules {
		open := *r
		open.OfDefault = json.RawMessage("null")
		n.Rules[i] = &open
	}
	return &n
}

// listGroups makes the default group of the requested project before the list is read (neutron
// 21.0.0: db/securitygroups_db.py, get_security_groups).
func listGroups(c *call) {
	project := c.who.ProjectID
	for _, filter := range []string{"tenant_id", "project_id"} {
		if wanted := c.query().Get(filter); wanted != "" {
			project = wanted
		}
	}
	c.defaultGroup(project)
}

func noGroup(id string) *fault {
	return refuse(404, "SecurityGroupNotFound", "Security group %s does not exist", id)
}

func createGroup(c *call, g *securityGroup, _ values) *fault {
	c.defaultGroup(g.ProjectID)
	g.RevisionNumber = 1
	return c.firstRules(g, false)
}

// firstRules adds the rules of a new group. They let out all traffic. In a default group they
// also let in traffic from its own members.
func (c *call) firstRules(g *securityGroup, own bool) *fault {
	more := 2
	if own {
		more = 4
	}
	// Neutron checks the quota of rules here, but not the quota of groups (neutron 21.0.0:
	// db/securitygroups_db.py, create_security_group).
	if f := c.reserve("security_group_rule", g.ProjectID, c.rules.count(g.ProjectID), more); f != nil {
		return f
	}
	g.Rules = nil
	for _, etherType := range []string{"IPv4", "IPv6"} {
		if own {
			c.addRule(g, &rule{Direction: "ingress", EtherType: etherType, RemoteGroup: pointer(g.ID)}, own)
		}
		c.addRule(g, &rule{Direction: "egress", EtherType: etherType}, own)
	}
	return nil
}

// addRule stores a rule of a group that has not been stored yet.
func (c *call) addRule(g *securityGroup, r *rule, ofDefault bool) {
	c.markRule(r, ofDefault)
	r.standard, r.GroupID, r.AttributesID = c.newStandard(g.ProjectID), g.ID, c.attributesID()
	c.rules.put(c, r)
	g.Rules = withRule(g.Rules, r)
}

func withRule(rules []*rule, r *rule) []*rule {
	i, _ := slices.BinarySearchFunc(rules, r.ID, func(r *rule, id string) int { return strings.Compare(r.ID, id) })
	return slices.Insert(slices.Clone(rules), i, r)
}

// attributesID numbers resources with standard attributes. Neutron shows the number of a rule when
// it shows the rule within its group.
func (s *Service) attributesID() int {
	s.attributes++
	return s.attributes
}

// defaultGroup makes the project's default group at its first use. Only an administrator makes
// that of another project.
func (c *call) defaultGroup(project string) {
	if _, ok := c.defaults[project]; ok || project == "" || project != c.who.ProjectID && !c.admin() {
		return
	}
	g := &securityGroup{standard: c.newStandard(project), Name: "default", Stateful: true}
	g.Description, g.RevisionNumber = defaultDescription, 1
	if c.firstRules(g, true) != nil {
		return
	}
	c.groups.put(c, g)
	c.defaults[project] = []string{g.ID}
	c.undo(func() { delete(c.defaults, project) })
}

// defaultGroups returns the project's default group as a list, empty if it has none.
func (c *call) defaultGroups(project string) []string {
	if ids := c.defaults[project]; ids != nil {
		return ids
	}
	return []string{}
}

// groupsFor returns the groups that a port asks for, without duplicates, ordered by ID.
func (c *call) groupsFor(p *port, wanted []string) ([]string, *fault) {
	wanted = slices.Clone(wanted)
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	var missing []string
	stateful := map[bool]bool{}
	for _, id := range wanted {
		g, ok := c.groups.rows.Get(id)
		if !ok || !c.admin() && (g.ProjectID != p.ProjectID || !c.owns(g.ProjectID)) {
			missing = append(missing, id)
			continue
		}
		stateful[g.Stateful] = true
	}
	if len(missing) > 0 {
		return nil, noGroup(strings.Join(missing, ", "))
	}
	if len(stateful) > 1 {
		return nil, conflict("SecurityGroupConflict", "Error %s while attempting the operation.",
			"Cannot apply both stateful and stateless security groups on the same port at the same time")
	}
	if slices.Equal(wanted, c.defaults[p.ProjectID]) {
		// All ports with the default group share this slice.
		return c.defaults[p.ProjectID], nil
	}
	return wanted, nil
}

func updateGroup(c *call, g, old *securityGroup, in values) *fault {
	if g.Stateful != old.Stateful && c.groupInUse(g.ID) {
		return groupUsed(g.ID)
	}
	if old.Name == "default" && in.given("name") {
		return conflict("SecurityGroupCannotUpdateDefault", "Updating default security group not allowed.")
	}
	return nil
}

func groupUsed(id string) *fault {
	return conflict("SecurityGroupInUse", "Security Group %s in use.", id)
}

// groupInUse reports whether a port has the group.
func (c *call) groupInUse(id string) bool {
	for p := range c.ports.rows.All() {
		if slices.Contains(p.SecurityGroups, id) {
			return true
		}
	}
	return false
}

func removeGroup(c *call, g *securityGroup) *fault {
	switch {
	case c.groupInUse(g.ID):
		return groupUsed(g.ID)
	case g.Name == "default" && !c.admin():
		return conflict("SecurityGroupCannotRemoveDefault", "Insufficient rights for removing default security group.")
	}
	for _, r := range g.Rules {
		c.rules.drop(c, r.ID)
	}
	c.dropRulesFrom(g.ID)
	if ids := c.defaults[g.ProjectID]; slices.Contains(ids, g.ID) {
		delete(c.defaults, g.ProjectID)
		c.undo(func() { c.defaults[g.ProjectID] = ids })
	}
	return nil
}

// dropRulesFrom removes the rules of other groups that name the group. The database deletes them
// with it (neutron 21.0.0: db/models/securitygroup.py, remote_group_id).
func (c *call) dropRulesFrom(group string) {
	var gone []*rule
	for r := range c.rules.rows.All() {
		if r.RemoteGroup != nil && *r.RemoteGroup == group && r.GroupID != group {
			gone = append(gone, r)
		}
	}
	for _, r := range gone {
		c.leaveGroup(r)
		c.rules.drop(c, r.ID)
	}
}
