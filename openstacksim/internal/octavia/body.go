// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// values is a checked object of a request. It holds only given values and defaults. Its values
// are string, bool, int64, float64, []any, map[string]any, values, nil.
type values map[string]any

func (v values) text(name string) string { s, _ := v[name].(string); return s }
func (v values) flag(name string) bool   { b, _ := v[name].(bool); return b }
func (v values) given(name string) bool  { _, ok := v[name]; return ok }
func (v values) null(name string) bool   { x, ok := v[name]; return ok && x == nil }
func (v values) list(name string) []any  { l, _ := v[name].([]any); return l }
func (v values) object(name string) values {
	o, _ := v[name].(values)
	return o
}

func (v values) texts(name string) []string {
	var out []string
	for _, item := range v.list(name) {
		out = append(out, str(item))
	}
	return out
}

// objects returns the objects of a list. null in the list becomes nil.
func (v values) objects(name string) []values {
	var out []values
	for _, item := range v.list(name) {
		o, _ := item.(values)
		out = append(out, o)
	}
	return out
}

// parse reads a body as WSME 0.11 does (wsme/rest/json.py): an object of the type root. Errors
// call it argument.
func (api schema) parse(body []byte, argument, root string) (values, *fault) {
	if wrong := undecodable(body); wrong != "" {
		return nil, crash("%s", wrong) // WSME decodes the body before it catches errors
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	raw, err := read(d)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		return nil, refuse(400, "Request is not in valid JSON format")
	}
	out, bad := convert(kind{Kind: "object", attributes: api[root]}, raw)
	if bad != nil {
		return nil, bad.fault(argument, raw)
	}
	if out == nil {
		return nil, crash("'NoneType' object has no attribute '%s'", api[root][0].Name)
	}
	return out.(values), nil
}

// misfit says why a value does not have its type. Only some errors name their attribute. The
// others occur only while WSME reads the whole body.
type misfit struct {
	answer  *fault   // the complete answer
	text    string   // otherwise: the error about the whole body
	path    []string // path of the unknown attributes
	unknown []string
}

func (m *misfit) fault(argument string, raw any) *fault {
	switch {
	case m.answer != nil:
		return m.answer
	case m.unknown != nil:
		plural := ""
		if len(m.unknown) > 1 {
			plural = "s"
		}
		path := strings.Join(append([]string{argument}, m.path...), ".")
		return refuse(400, "Unknown attribute%s for argument %s: %s", plural, path, strings.Join(m.unknown, ", "))
	}
	return refuse(400, "Invalid input for field/attribute %s. Value: '%s'. %s", argument, str(raw), m.text)
}

func mismatch(format string, args ...any) *misfit { return &misfit{text: fmt.Sprintf(format, args...)} }

// convert is WSME's fromjson: it converts a value to the type's base.
func convert(k kind, raw any) (any, *misfit) {
	if raw == nil {
		return nil, nil
	}
	switch k.Kind {
	case "object":
		return convertObject(k.attributes, raw)
	case "list":
		return convertList(k, raw)
	case "map":
		if m, ok := raw.(dict); ok {
			return m, nil
		}
		return nil, mismatch("Value not a valid dict: %s", str(raw))
	case "bool":
		return convertBool(raw)
	case "integer":
		return convertInteger(raw)
	case "float":
		return convertFloat(raw)
	case "enum":
		switch k.Base {
		case "int":
			return convertInteger(raw)
		case "float":
			return convertFloat(raw)
		}
	}
	return raw, nil
}

func convertObject(attributes []attribute, raw any) (any, *misfit) {
	in, ok := raw.(dict)
	if !ok {
		return nil, &misfit{answer: crash("'%s' object has no attribute 'keys'", class(raw))}
	}
	var unknown []string
	for _, key := range in.keys {
		if !slices.ContainsFunc(attributes, func(a attribute) bool { return a.Name == key }) {
			unknown = append(unknown, key)
		}
	}
	if unknown != nil {
		return nil, &misfit{unknown: unknown}
	}
	out := values{}
	for i := range attributes {
		if bad := attributes[i].take(in, out); bad != nil {
			return nil, bad
		}
	}
	return out, nil
}

func (a *attribute) take(in dict, out values) *misfit {
	raw, given := in.values[a.Name]
	if !given {
		if a.Mandatory {
			return &misfit{answer: unfit(a.Name, nil, "Mandatory field missing.")}
		}
		if a.Default != nil {
			out[a.Name] = defaultOf(a.Default)
		}
		return nil
	}
	v, bad := convert(a.Type, raw)
	if bad != nil {
		if bad.unknown != nil {
			bad.path = append([]string{a.Name}, bad.path...)
		}
		return bad
	}
	checked, why := check(&a.Type, v)
	if why != "" {
		return &misfit{answer: unfit(a.Name, v, why)}
	}
	out[a.Name] = checked
	return nil
}

func defaultOf(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, _ := read(d)
	return v
}

func unfit(name string, v any, why string) *fault {
	return refuse(400, "Invalid input for field/attribute %s. Value: '%s'. %s", name, str(v), why)
}

func convertList(k kind, raw any) (any, *misfit) {
	in, ok := raw.([]any)
	if !ok {
		return nil, mismatch("Value not a valid list: %s", str(raw))
	}
	out := make([]any, len(in))
	for i, item := range in {
		v, bad := convert(*k.Item, item)
		if bad != nil {
			return nil, bad
		}
		out[i] = v
	}
	return out, nil
}

func convertBool(raw any) (any, *misfit) {
	switch v := raw.(type) {
	case bool:
		return v, nil
	case int64:
		return v != 0, nil
	case string:
		switch v {
		case "true", "t", "yes", "y", "on", "1":
			return true, nil
		case "false", "f", "no", "n", "off", "0":
			return false, nil
		}
	}
	return nil, mismatch("Value not an unambiguous boolean: %s", str(raw))
}

func convertInteger(raw any) (any, *misfit) {
	switch v := raw.(type) {
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case int64:
		return v, nil
	case float64:
		if math.IsInf(v, 0) {
			return nil, &misfit{answer: crash("cannot convert float infinity to integer")}
		}
		// Numbers that do not fit are out of every range, just like these bounds.
		return int64(min(max(v, math.MinInt64), math.MaxInt64/2)), nil
	case string:
		if i, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64); err == nil {
			return i, nil
		}
		return nil, mismatch("invalid literal for int() with base 10: %s", quote(v))
	}
	return nil, &misfit{answer: crash("int() argument must be a string, a bytes-like object or a real number, not '%s'", class(raw))}
}

func convertFloat(raw any) (any, *misfit) {
	switch v := raw.(type) {
	case float64:
		return v, nil
	case string:
		if f, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil {
			return f, nil
		}
		return nil, mismatch("could not convert string to float: %s", quote(v))
	case bool, int64:
		i, bad := convertInteger(raw)
		if bad != nil {
			return nil, bad
		}
		return float64(i.(int64)), nil
	}
	return nil, &misfit{answer: crash("float() argument must be a string or a real number, not '%s'", class(raw))}
}

// check is WSME's validate_value. It returns the value to keep, or the reason of a refusal.
func check(k *kind, v any) (any, string) {
	if v == nil {
		return nil, ""
	}
	switch k.Kind {
	case "list":
		for i, item := range v.([]any) {
			kept, why := check(k.Item, item)
			if why != "" {
				return nil, why
			}
			v.([]any)[i] = kept
		}
	case "map":
		return checkMap(k, v.(dict))
	case "integer":
		return checkInteger(k, v.(int64))
	case "string":
		return checkString(k, v)
	case "enum":
		return checkEnum(k, v)
	case "text":
		if _, ok := v.(string); !ok {
			return nil, "Wrong type. Expected '<class 'str'>', got '<class '" + class(v) + "'>'"
		}
	case "uuid", "address", "cidr", "alpn", "url", "path":
		return checkWord(k, v)
	}
	return v, ""
}

func checkMap(k *kind, m dict) (any, string) {
	out := map[string]any{}
	for _, key := range m.keys {
		kept, why := check(k.Item, m.values[key])
		if why != "" {
			return nil, why
		}
		out[key] = kept
	}
	return out, ""
}

func checkInteger(k *kind, v int64) (any, string) {
	if k.Minimum != nil && v < *k.Minimum {
		return nil, fmt.Sprintf("Value should be greater or equal to %d", *k.Minimum)
	}
	if k.Maximum != nil && v > *k.Maximum {
		return nil, fmt.Sprintf("Value should be lower or equal to %d", *k.Maximum)
	}
	return v, ""
}

func checkString(k *kind, v any) (any, string) {
	s, ok := v.(string)
	n := int64(utf8.RuneCountInString(s))
	switch {
	case !ok:
		return nil, "Value should be string"
	case k.Minimum != nil && n < *k.Minimum:
		return nil, fmt.Sprintf("Value should have a minimum character requirement of %d", *k.Minimum)
	case k.Maximum != nil && n > *k.Maximum:
		return nil, fmt.Sprintf("Value should have a maximum character requirement of %d", *k.Maximum)
	case !k.matches(s):
		return nil, "Value should match the pattern " + k.Pattern
	}
	return v, ""
}

func checkEnum(k *kind, v any) (any, string) {
	switch v.(type) {
	case []any, dict:
		return nil, "unhashable type: '" + class(v) + "'"
	}
	names := make([]string, len(k.Values))
	for i, value := range k.Values {
		if f, ok := value.(float64); ok && k.Base == "int" {
			value = int64(f)
		}
		if value == v {
			return v, ""
		}
		names[i] = str(value)
	}
	return nil, "Value should be one of: " + strings.Join(names, ", ") // Octavia's order is the random one of a set
}
