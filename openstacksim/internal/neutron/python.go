// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

var errTrailing = errors.New("something follows the JSON value")

// show formats a value as Python's str() does, because Neutron's messages quote values. The order
// of a dictionary's keys is lost in decoding, so they are sorted.
func show(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return repr(v)
}

// repr formats a value as Python's repr() does.
func repr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return quote(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []any:
		return "[" + strings.Join(reprs(v), ", ") + "]"
	case []string:
		return "[" + strings.Join(reprs(v), ", ") + "]"
	case map[string]any:
		keys := sortedKeys(v)
		for i, k := range keys {
			keys[i] = quote(k) + ": " + repr(v[k])
		}
		return "{" + strings.Join(keys, ", ") + "}"
	case json.Number:
		return v.String()
	}
	return fmt.Sprint(v)
}

func reprs[T any](list []T) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = repr(e)
	}
	return out
}

func quote(s string) string {
	mark := "'"
	if strings.Contains(s, "'") && !strings.Contains(s, "\"") {
		mark = "\""
	}
	s = strings.NewReplacer("\\", "\\\\", "\n", "\\n", "\t", "\\t", "\r", "\\r").Replace(s)
	if mark == "'" {
		s = strings.ReplaceAll(s, "'", "\\'")
	}
	return mark + s + mark
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }
