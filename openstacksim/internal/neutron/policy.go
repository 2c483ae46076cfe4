// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// target returns the fields of the resource that an access rule checks, as they would be after
// the request.
type target func(field string) any

// check is a parsed access rule of Neutron.
type check interface {
	allows(c *call, t target) bool
}

type (
	always  bool
	not     struct{ check }
	allOf   []check
	anyOf   []check
	ruleRef string
	roleIs  string
	matches struct{ field string } // the caller's project is the target's field
	fieldIs struct{ resource, field, value string }
)

func (a always) allows(*call, target) bool     { return bool(a) }
func (n not) allows(c *call, t target) bool    { return !n.check.allows(c, t) }
func (r roleIs) allows(c *call, _ target) bool { return c.who.Has(string(r)) }

func (l allOf) allows(c *call, t target) bool {
	return !slices.ContainsFunc(l, func(k check) bool { return !k.allows(c, t) })
}

func (l anyOf) allows(c *call, t target) bool {
	return slices.ContainsFunc(l, func(k check) bool { return k.allows(c, t) })
}

// allows falls back to the rule "default" if the named rule does not exist (oslo.policy: Rules).
func (r ruleRef) allows(c *call, t target) bool {
	rule, ok := c.rewritten[string(r)]
	if !ok {
		rule, ok = c.api.rules[string(r)]
	}
	if !ok {
		rule = c.api.rules["default"]
	}
	return rule.allows(c, t)
}

func (m matches) allows(c *call, t target) bool {
	if v := t(m.field); v != nil {
		return v == any(c.who.ProjectID)
	}
	parent, _, ok := strings.Cut(m.field, ":")
	id, _ := t(parent + "_id").(string)
	if !ok || id == "" {
		return false
	}
	if h := c.kindOf(parent); c.Later && h != nil && !h.has(id) {
		c.orphan = h.notFound(id)
	}
	return c.projectOf(parent, id) == c.who.ProjectID
}

// allows also checks whether the network of ports and subnets is shared (neutron 21.0.0:
// policy.py, FieldCheck).
func (f fieldIs) allows(c *call, t target) bool {
	v := t(f.field)
	if v == nil && f.resource == "networks" && f.field == "shared" {
		id, _ := t("network_id").(string)
		if n, ok := c.networks.rows.Get(id); ok {
			v = n.Shared
		}
	}
	if v == nil {
		return false
	}
	if pattern, ok := strings.CutPrefix(f.value, "~"); ok {
		s, _ := v.(string)
		found, _ := regexp.MatchString(pattern, s)
		return found
	}
	return show(v) == f.value
}

// projectOf returns the project of a parent resource.
func (c *call) projectOf(parent, id string) string {
	if h := c.kindOf(parent); h != nil {
		return h.project(id)
	}
	return ""
}

// parseCheck parses a rule of oslo.policy in which each "and" and "or" has brackets of its own.
func parseCheck(s string) check {
	p := &ruleParser{words: ruleWords.FindAllString(s, -1)}
	return p.either()
}

// ruleWords matches a bracket or a word. A word may contain a %(field)s.
var ruleWords = regexp.MustCompile(`\(|\)|(?:%\([^)]*\)s|[^\s()])+`)

type ruleParser struct{ words []string }

func (p *ruleParser) next(word string) bool {
	if len(p.words) > 0 && p.words[0] == word {
		p.words = p.words[1:]
		return true
	}
	return false
}

func (p *ruleParser) either() check {
	list := anyOf{p.both()}
	for p.next("or") {
		list = append(list, p.both())
	}
	if len(list) == 1 {
		return list[0]
	}
	return list
}

func (p *ruleParser) both() check {
	list := allOf{p.single()}
	for p.next("and") {
		list = append(list, p.single())
	}
	if len(list) == 1 {
		return list[0]
	}
	return list
}

func (p *ruleParser) single() check {
	if len(p.words) == 0 {
		return always(true)
	}
	if p.next("not") {
		return not{p.single()}
	}
	if p.next("(") {
		inner := p.either()
		p.next(")")
		return inner
	}
	word := p.words[0]
	p.words = p.words[1:]
	return parseWord(word)
}

func parseWord(word string) check {
	kind, value, _ := strings.Cut(word, ":")
	switch kind {
	case "@":
		return always(true)
	case "rule":
		return ruleRef(value)
	case "role":
		return roleIs(value)
	case "project_id", "tenant_id":
		return matches{strings.TrimSuffix(strings.TrimPrefix(value, "%("), ")s")}
	case "field":
		resource, rest, _ := strings.Cut(value, ":")
		if i := strings.LastIndexAny(rest, "=:"); i > 0 && !strings.Contains(rest, "~") {
			return fieldIs{resource, rest[:i], rest[i+1:]}
		}
		field, value, _ := strings.Cut(rest, ":")
		return fieldIs{resource, field, value}
	}
	return always(false)
}

// enforce checks whether the caller may do the action to the target. It applies the rule of the
// action, and the rule of each attribute that the request sets (neutron 21.0.0: policy.py,
// _build_match_rule). The messages are those of oslo.policy. Neutron 26.0.3 checks administrators,
// too. It answers that a parent does not exist if a rule asks for the parent's project.
func (c *call) enforce(action string, attrs *attributeList, in values, update bool, t target) *fault {
	if c.admin() && !c.Later {
		return nil
	}
	c.orphan = nil
	words, ok := "rule:"+action, ruleRef(action).allows(c, t)
	for _, a := range attrs.all {
		if !a.EnforcePolicy || !isSet(a, in, update) {
			continue
		}
		text, allowed := c.attributeRule(action, a, in, t)
		words, ok = "("+words+" and "+text+")", ok && allowed
	}
	if ok || c.orphan != nil {
		return c.orphan
	}
	return refuse(http.StatusForbidden, "PolicyNotAuthorized", "%s is disallowed by policy", words)
}

// isSet reports whether a request sets an attribute for the rules. A POST that gives the default
// value does not set it.
func isSet(a *attribute, in values, update bool) bool {
	v, there := in[a.Name]
	if !there || update {
		return there
	}
	return !a.HasDefault || !equal(v, a.Default)
}

// attributeRule checks the rule of one attribute, and those of its keys.
func (c *call) attributeRule(action string, a *attribute, in values, t target) (words string, ok bool) {
	name := action + ":" + a.Name
	words, ok = "rule:"+name, ruleRef(name).allows(c, t)
	var inside []string
	switch v := in[a.Name].(type) {
	case map[string]any:
		for _, k := range a.keys() {
			if _, there := v[k]; there {
				inside = append(inside, k)
			}
		}
	case []any:
		for _, e := range v {
			m, _ := e.(map[string]any)
			inside = append(inside, sortedKeys(m)...)
		}
	}
	if len(inside) == 0 {
		return words, ok
	}
	for i, k := range inside {
		ok = ok && ruleRef(name+":"+k).allows(c, t)
		inside[i] = "rule:" + name + ":" + k
	}
	return "(" + words + " and (" + strings.Join(inside, " and ") + "))", ok
}

// keys returns the keys that a dictionary attribute may have.
func (a *attribute) keys() []string {
	for _, v := range a.Validate {
		if strings.HasPrefix(v.Rule, "type:dict") {
			return v.Keys
		}
	}
	return nil
}

// secret are the rules of reading an attribute that only administrators meet. The second, of Neutron
// 26.0.3, also allows the role service, which the simulator does not show the attribute.
var secret = []string{"rule:admin_only", "(rule:admin_only or rule:service_api)"}

// hidden returns the attributes that the rules show to administrators only.
func (s *Service) hidden(one string, attrs *attributeList) []string {
	var out []string
	for _, a := range attrs.all {
		name := "get_" + one + ":" + a.Name
		if _, other := s.rewritten[name]; !other && slices.Contains(secret, s.api.Policies[name]) {
			out = append(out, a.Name)
		}
	}
	return out
}
