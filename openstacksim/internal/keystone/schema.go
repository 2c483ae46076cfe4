// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// schema is the part of JSON Schema that Keystone's schemas use. Keystone's message continues
// with the whole schema. Clients show the first paragraph, so the simulator writes only that.
type schema struct {
	types    []string // object, array, string, boolean, null
	fields   []field  // of an object, in the order of the checks
	required []string
	items    *schema // of an array
	min, max int     // length of a string; 0: no limit
	pattern  *regexp.Regexp
}

type field struct {
	name string
	is   schema
}

var (
	text     = schema{types: []string{"string"}}
	maybe    = schema{types: []string{"string", "null"}}
	flag     = schema{types: []string{"boolean"}}
	someID   = schema{types: []string{"string", "null"}, min: 1, max: 64, pattern: regexp.MustCompile(`^[a-zA-Z0-9-]+$`)}
	visible  = regexp.MustCompile(`[\S]+`)
	shortID  = []field{{"id", text}, {"name", text}}
	domainIs = schema{types: []string{"object"}, fields: shortID}
)

// The fields that a new token, project, user and credential may have. keystone 22.0.2:
// auth/schema.py, resource/schema.py, identity/schema.py, application_credential/schema.py
var (
	tokenSchema = schema{types: []string{"object"}, required: []string{"identity"}, fields: []field{
		{"identity", schema{types: []string{"object"}, required: []string{"methods"}, fields: []field{
			{"methods", schema{types: []string{"array"}, items: &text}},
			{"password", schema{types: []string{"object"}, fields: []field{
				{"user", schema{types: []string{"object"}, fields: []field{
					{"id", text}, {"name", text}, {"password", text}, {"domain", domainIs}}}},
			}}},
			{"token", schema{types: []string{"object"}, required: []string{"id"}, fields: []field{{"id", text}}}},
			// Keystone's schema has no such entry: another type ends in a 500 there.
			{"application_credential", schema{types: []string{"object"}, fields: []field{
				{"id", text}, {"name", text}, {"secret", text}, {"user", schema{types: []string{"object"}, fields: []field{
					{"id", text}, {"name", text}, {"domain", domainIs}}}}}}},
		}}},
		{"scope", schema{types: []string{"object", "string"}, fields: []field{
			{"project", schema{types: []string{"object"}, fields: []field{{"name", text}, {"id", text}, {"domain", domainIs}}}},
			{"domain", domainIs},
			{"OS-TRUST:trust", schema{types: []string{"object"}, fields: []field{{"id", text}}}},
			{"system", schema{types: []string{"object"}, fields: []field{{"all", flag}}}},
		}}},
	}}
	projectFields = []field{
		{"description", maybe}, {"domain_id", someID}, {"enabled", flag}, {"is_domain", flag},
		{"name", schema{types: []string{"string"}, min: 1, max: 64, pattern: visible}}, {"parent_id", someID},
		{"tags", schema{types: []string{"array"}, items: &schema{types: []string{"string"}, min: 1, max: 255}}},
		{"options", schema{types: []string{"object"}}},
	}
	userFields = []field{
		{"default_project_id", someID}, {"description", maybe},
		{"domain_id", schema{types: []string{"string"}, min: 1, max: 64, pattern: someID.pattern}}, {"enabled", flag},
		{"name", schema{types: []string{"string"}, min: 1, max: 255, pattern: visible}},
		{"password", maybe}, {"options", schema{types: []string{"object"}}},
	}
	roleFields = []field{
		{"name", schema{types: []string{"string"}, min: 1, max: 255, pattern: visible}}, {"description", maybe},
	}
	credentialFields = []field{
		{"name", schema{types: []string{"string"}, min: 1, max: 255, pattern: visible}},
		{"description", maybe}, {"secret", maybe}, {"expires_at", maybe}, {"unrestricted", flag},
		{"roles", schema{types: []string{"array"}, items: &schema{types: []string{"object"}, fields: shortID}}},
		{"access_rules", schema{types: []string{"array"}, items: &schema{types: []string{"object"}}}},
	}
)

func creating(fields []field) schema {
	return schema{types: []string{"object"}, required: []string{"name"}, fields: fields}
}

func changing(fields []field) schema { return schema{types: []string{"object"}, fields: fields} }

// check returns the first error of v. The message is that of Python's jsonschema, as keystone
// 22.0.2's common/validation/validators.py passes it on.
func (s schema) check(v any) *fault {
	path, problem := s.fault(v, nil)
	switch {
	case problem == "":
		return nil
	case len(path) > 0:
		return refuse(http.StatusBadRequest, "Invalid input for field '%s': %s", strings.Join(path, "/"), problem)
	}
	return refuse(http.StatusBadRequest, "%s", problem)
}

func (s schema) fault(v any, path []string) ([]string, string) {
	if !slices.ContainsFunc(s.types, func(t string) bool { return is(t, v) }) {
		var want []string
		for _, t := range s.types {
			want = append(want, "'"+t+"'")
		}
		return path, python(v) + " is not of type " + strings.Join(want, ", ")
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range s.required {
			if _, has := v[name]; !has {
				return path, "'" + name + "' is a required property"
			}
		}
		for _, f := range s.fields {
			if given, has := v[f.name]; has {
				if at, problem := f.is.fault(given, append(slices.Clone(path), f.name)); problem != "" {
					return at, problem
				}
			}
		}
	case []any:
		for i, given := range v {
			if s.items == nil {
				break
			}
			if at, problem := s.items.fault(given, append(slices.Clone(path), strconv.Itoa(i))); problem != "" {
				return at, problem
			}
		}
	case string:
		return path, s.length(v)
	}
	return nil, ""
}

func (s schema) length(v string) string {
	n := utf8.RuneCountInString(v)
	switch {
	case s.min > 0 && n < s.min:
		return python(v) + " is too short"
	case s.max > 0 && n > s.max:
		return python(v) + " is too long"
	case s.pattern != nil && !s.pattern.MatchString(v):
		return python(v) + " does not match " + python(s.pattern.String())
	}
	return ""
}

func is(kind string, v any) bool {
	switch v.(type) {
	case map[string]any:
		return kind == "object"
	case []any:
		return kind == "array"
	case string:
		return kind == "string"
	case bool:
		return kind == "boolean"
	case nil:
		return kind == "null"
	}
	return false
}

// python writes v as Python does, because the messages are Python's.
func python(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e16 {
			return strconv.FormatInt(int64(v), 10)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return quote(v)
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, python(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for k, e := range v {
			parts = append(parts, quote(k)+": "+python(e))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}

func quote(s string) string {
	mark := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = `"`
	}
	s = strings.ReplaceAll(s, `\`, `\\`)
	if mark == "'" {
		s = strings.ReplaceAll(s, "'", `\'`)
	}
	return mark + strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s) + mark
}
