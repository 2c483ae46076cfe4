// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

func (c *call) routeRules(p *policy, rest []string) *controller {
	if len(rest) == 0 {
		return &controller{
			get: func() (answer, *fault) {
				if bad := c.allow(mayRead, p.ProjectID); bad != nil {
					return answer{}, bad
				}
				return list(c, c.rules, "rules", "", func(r *rule) bool { return r.PolicyID == p.ID }, c.viewRule)
			}, extra: true, remove: lacking("id"),
			post: &bodied{argument: "rule_", root: "L7RuleRootPOST", do: func(in values) (answer, *fault) { return c.createRule(p, in) }},
			put:  &bodied{argument: "l7rule_", root: "L7RuleRootPUT", need: "id"},
		}
	}
	id := rest[0]
	return &controller{
		get: func() (answer, *fault) {
			r, bad := c.rule(p, id, mayRead)
			if bad != nil {
				return answer{}, bad
			}
			return c.one("rule", c.viewRule(r), rest)
		}, extra: true,
		post:   misplaced("rule_", "L7RuleRootPOST", id),
		put:    &bodied{argument: "l7rule_", root: "L7RuleRootPUT", do: func(in values) (answer, *fault) { return c.updateRule(p, id, in) }},
		remove: func() (answer, *fault) { return c.deleteRule(p, id) },
	}
}

func (c *call) rule(_ *policy, id string, can right) (*rule, *fault) {
	r, ok := c.rules.Get(id)
	if !ok {
		return nil, notFound("L7 Rule", id)
	}
	return r, c.allow(can, r.ProjectID)
}

func (c *call) holdPolicy(p *policy) lock {
	l, _ := c.listeners.Get(p.ListenerID)
	hold := c.holdListener(l)
	hold.policy = p
	return hold
}

func (c *call) createRule(p *policy, body values) (answer, *fault) {
	in, bad := below(body, "rule", "project_id")
	if bad != nil {
		return answer{}, bad
	}
	if bad := c.allow(mayWrite, p.ProjectID); bad != nil {
		return answer{}, bad
	}
	r, bad := c.newRule(p, in)
	if bad != nil {
		return answer{}, bad
	}
	if len(c.rulesOf(p.ID)) >= maxRules {
		return answer{}, refuse(409, "Too many rules on L7 policy %s", p.ID)
	}
	if c.overQuota("l7rule", p.ProjectID, 1) {
		return answer{}, quotaMet("L7 Rule")
	}
	hold := c.holdPolicy(p)
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	c.rules.Put(r)
	c.work("l7rule", "create", &r.base, hold, func() { r.OperatingStatus = upDown(r.AdminStateUp) })
	return answer{201, record{"rule": c.viewRule(r)}}, nil
}

// newRule makes a rule without storing it.
func (c *call) newRule(p *policy, in values) (*rule, *fault) {
	r := &rule{PolicyID: p.ID}
	r.base = c.fresh(p.ProjectID)
	apply(r, in.without("project_id", "tenant_id"))
	if r.Tags == nil {
		r.Tags = []string{}
	}
	return r, r.check()
}

func (c *call) updateRule(p *policy, id string, body values) (answer, *fault) {
	r, bad := c.rule(p, id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	in, bad := below(body, "rule", "invert")
	if bad != nil {
		return answer{}, bad
	}
	next := *r
	apply(&next, in)
	if next.Tags == nil {
		next.Tags = []string{}
	}
	if bad := next.check(); bad != nil {
		return answer{}, bad
	}
	hold := c.holdPolicy(p)
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	*r = next
	c.work("l7rule", "update", &r.base, hold, func() { r.OperatingStatus = upDown(r.AdminStateUp) })
	return answer{200, record{"rule": c.viewRule(r)}}, nil
}

func (c *call) deleteRule(p *policy, id string) (answer, *fault) {
	r, bad := c.rule(p, id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	hold := c.holdPolicy(p)
	if bad := hold.free(); bad != nil {
		return answer{}, bad
	}
	s := c.Service
	c.work("l7rule", "delete", &r.base, hold, func() { s.rules.Delete(r.ID) })
	return answer{status: 204}, nil
}

// The allowed characters of header names, cookies and values: octavia 11.0.0,
// common/constants.py.
var (
	headerName   = regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+\\-.^_`|~]+$")
	cookieValue  = regexp.MustCompile("^[a-zA-Z0-9!#$%&'()*+\\-./:<=>?@\\[\\]^_`{|}~]+$")
	headerValue  = regexp.MustCompile("^[a-zA-Z0-9!\"#$%&'()*+,\\-./:;<=>?@\\[\\]^_`{|}~\\\\]+$")
	quotedValue  = regexp.MustCompile("^\"[a-zA-Z0-9 \\t!\"#$%&'()*+,\\-./:;<=>?@\\[\\]^_`{|}~\\\\]*\"$")
	subjectField = regexp.MustCompile(`^([a-zA-Z][A-Za-z0-9-]*)$`)
)

// check is octavia 11.0.0, common/validate.py, l7rule_data.
func (r *rule) check() *fault {
	why := r.wrong()
	if why == "" {
		return nil
	}
	return refuse(400, "Error parsing L7Rule: %s", why)
}

func (r *rule) wrong() string {
	wrong := func(text string) string { return "Invalid L7 Rule: " + text }
	key := ""
	if r.Key != nil {
		key = *r.Key
	}
	if r.Value == "" {
		return wrong("L7 rule type requires a value")
	}
	switch r.Type {
	case "HEADER", "COOKIE":
		switch {
		case key == "":
			return wrong("L7 rule type requires a key")
		case !headerName.MatchString(key):
			return "Invalid characters in key"
		case r.Type == "COOKIE":
			return r.valueWrong("cookie value", cookieValue)
		}
		return r.valueWrong("header value", headerValue, quotedValue)
	case "HOST_NAME", "PATH":
		return r.valueWrong("comparison value", headerValue, quotedValue)
	case "FILE_TYPE":
		if r.CompareType != "REGEX" && r.CompareType != "EQUAL_TO" {
			return wrong("invalid comparison type for rule type")
		}
		return r.valueWrong("comparison value", headerValue, quotedValue)
	}
	return r.certificateWrong(key, wrong)
}

func (r *rule) valueWrong(what string, allowed ...*regexp.Regexp) string {
	if r.CompareType == "REGEX" {
		return r.patternWrong()
	}
	for _, a := range allowed {
		if a.MatchString(r.Value) {
			return ""
		}
	}
	return "Invalid characters in " + what
}

func (r *rule) patternWrong() string {
	if strings.ContainsFunc(r.Value, func(c rune) bool { return c < 0x20 || c >= 0x7f && c <= 0x9f }) {
		return "Unable to parse regular expression: contains control characters"
	}
	if _, err := regexp.Compile(r.Value); err != nil && !strings.Contains(err.Error(), "perl") {
		// Python's message is a different one.
		return "Unable to parse regular expression: " + err.Error()
	}
	return ""
}

// certificateWrong checks the types of rules about a client's certificate.
func (r *rule) certificateWrong(key string, wrong func(string) string) string {
	n, err := strconv.Atoi(r.Value)
	switch {
	case r.Type == "SSL_DN_FIELD" && key == "":
		return wrong(fmt.Sprintf("L7rule type %s needs to specify a key and a value.", r.Type))
	case r.Type == "SSL_DN_FIELD" && !subjectField.MatchString(key):
		return wrong("Invalid L7rule distinguished name field.")
	case r.Type == "SSL_DN_FIELD":
		return ""
	case key != "":
		return wrong(fmt.Sprintf("L7rule type %s does not use the \"key\" field.", r.Type))
	case r.Type == "SSL_CONN_HAS_CERT" && !strings.EqualFold(r.Value, "true"):
		return wrong(fmt.Sprintf("L7rule value %s is not a boolean True string.", r.Value))
	case r.Type == "SSL_VERIFY_RESULT" && (err != nil || n < 0):
		return wrong(fmt.Sprintf("L7rule type %s needs a int value, which is >= 0", r.Type))
	case r.CompareType != "EQUAL_TO":
		return wrong(fmt.Sprintf("L7rule type %s only supports the EQUAL_TO compare type.", r.Type))
	}
	return ""
}
