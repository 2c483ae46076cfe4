// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

// values is what a request gave for a resource, validated and converted. In a
// POST the defaults are filled in; an attribute without a default that was not
// given is not there.
type values map[string]any

// inRequest is the key under which values keeps what the request itself named.
// No attribute has an empty name.
const inRequest = ""

// given reports whether the request itself named the attribute.
func (v values) given(name string) bool {
	named, _ := v[inRequest].(map[string]bool)
	return named[name]
}

// has reports whether there is a value, given or by default, other than null.
func (v values) has(name string) bool { return v[name] != nil }

// text is a value as a string, "" if it is none.
func (v values) text(name string) string {
	s, _ := v[name].(string)
	return s
}

// truth is a value as a bool, false if it is none.
func (v values) truth(name string) bool {
	b, _ := v[name].(bool)
	return b
}

// number is a value as an int.
func (v values) number(name string) (n int, ok bool) {
	n, ok = v[name].(int)
	return n, ok
}

// list is a value as a list.
func (v values) list(name string) []any {
	l, _ := v[name].([]any)
	return l
}

// object is a value as a map.
func (v values) object(name string) map[string]any {
	m, _ := v[name].(map[string]any)
	return m
}
