// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// dict is a JSON object with its order, for the errors that quote it.
type dict struct {
	keys   []string
	values map[string]any
}

// number converts a JSON number: to int64 if it is a whole number that fits, otherwise to
// float64.
func number(n json.Number) any {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return i
	}
	f, _ := n.Float64() // too large: infinite, as in Python
	return f
}

// read decodes the next value: dict, []any, string, bool, int64, float64, nil.
func read(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			return readList(d)
		}
		return readDict(d)
	case json.Number:
		return number(t), nil
	}
	return t, nil
}

func readList(d *json.Decoder) (any, error) {
	out := []any{}
	for d.More() {
		v, err := read(d)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := d.Token()
	return out, err
}

func readDict(d *json.Decoder) (any, error) {
	out := dict{values: map[string]any{}}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := read(d)
		if err != nil {
			return nil, err
		}
		key, _ := k.(string)
		if _, twice := out.values[key]; !twice {
			out.keys = append(out.keys, key)
		}
		out.values[key] = v
	}
	_, err := d.Token()
	return out, err
}

// str formats a value as Python's str does; repr as Python's repr.
func str(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return repr(v)
}

func repr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return reprFloat(v)
	case string:
		return quote(v)
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = repr(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case dict:
		parts := make([]string, len(v.keys))
		for i, k := range v.keys {
			parts[i] = quote(k) + ": " + repr(v.values[k])
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return ""
}

func reprFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == math.Trunc(f) && math.Abs(f) < 1e16:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func quote(s string) string {
	q := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = `"`
	}
	r := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`)
	s = r.Replace(s)
	if q == "'" {
		s = strings.ReplaceAll(s, "'", `\'`)
	}
	return q + s + q
}

// class returns the name of a value's type in Python.
func class(v any) string {
	switch v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []any:
		return "list"
	}
	return "dict"
}

// truth reads a boolean in a URL, like oslo.utils' strutils.bool_from_string.
func truth(s string) bool {
	return slices.Contains([]string{"1", "t", "true", "on", "y", "yes"}, strings.ToLower(strings.TrimSpace(s)))
}
