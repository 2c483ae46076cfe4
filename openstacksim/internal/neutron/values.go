// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

// values are a resource's values in a request, validated and converted. A POST has the defaults
// filled in. Attributes without a value and without a default are missing.
type values map[string]any

// inRequest is the key under which values keeps the names that the request itself contained. No
// attribute has an empty name.
const inRequest = ""

// given reports whether the request itself contained the attribute.
func (v values) given(name string) bool {
	named, _ := v[inRequest].(map[string]bool)
	return named[name]
}

// has reports whether the attribute has a value other than null, given or by default.
func (v values) has(name string) bool { return v[name] != nil }

// text returns a value as a string, "" if it is no string.
func (v values) text(name string) string {
	s, _ := v[name].(string)
	return s
}

// truth returns a value as a bool, false if it is no bool.
func (v values) truth(name string) bool {
	b, _ := v[name].(bool)
	return b
}

// number returns a value as an int.
func (v values) number(name string) (n int, ok bool) {
	n, ok = v[name].(int)
	return n, ok
}

// list returns a value as a list.
func (v values) list(name string) []any {
	l, _ := v[name].([]any)
	return l
}

// object returns a value as a map.
func (v values) object(name string) map[string]any {
	m, _ := v[name].(map[string]any)
	return m
}
