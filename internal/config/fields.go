// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"strings"
)

// fieldsOf returns the index of each field of struct t by its name in YAML.
func fieldsOf(t reflect.Type) map[string][]int {
	fields := make(map[string][]int, t.NumField())
	for _, f := range named(t) {
		fields[fieldName(f)] = f.Index
	}
	return fields
}

// named returns the fields of struct t that the file has names for. Those of an embedded struct are
// fields of t.
func named(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		return f.Anonymous || fieldName(f) == unnamed
	})
}

// unnamed is the name of a field that the file has no name for.
const unnamed = "-"

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// suggestion says which field may be meant by an unknown name in struct t: one
// of t spelt much like it, or one of the same name elsewhere.
func suggestion(t reflect.Type, name string) string {
	best, distance := "", 3 // two slips of the finger
	for _, f := range named(t) {
		known := fieldName(f)
		if n := editDistance(strings.ToLower(known), strings.ToLower(name)); n < distance {
			best, distance = known, n
		}
	}
	if best == "" {
		best = elsewhere(reflect.TypeFor[Config](), "", name)
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// elsewhere returns the path of a field called name in t or below, "" if none.
func elsewhere(t reflect.Type, path, name string) string {
	for _, f := range named(t) {
		at := join(path, fieldName(f))
		if strings.EqualFold(fieldName(f), name) {
			return at
		}
		if sub, list := structIn(f.Type); sub != nil {
			if list {
				at += "[]"
			}
			if found := elsewhere(sub, at, name); found != "" {
				return found
			}
		}
	}
	return ""
}

// structIn returns the struct with fields of ours that t is or is a list of, nil
// if neither: a time has none, and a selector Kubernetes'.
func structIn(t reflect.Type) (sub reflect.Type, list bool) {
	if list = t.Kind() == reflect.Slice; list {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == durationType {
		return nil, false
	}
	return t, list
}

// editDistance counts the letters to add, drop or replace to get from a to b.
// Names much longer than any of ours are not compared letter by letter.
func editDistance(a, b string) int {
	if len(b) > 64 {
		return len(b)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
