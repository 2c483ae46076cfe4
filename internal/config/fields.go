// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"strings"
)

// fieldOf returns the field of struct v with a name in YAML; invalid: there is none.
func fieldOf(v reflect.Value, name string) reflect.Value {
	if v.Kind() == reflect.Struct {
		for _, f := range named(v.Type()) {
			if fieldName(f) == name {
				return v.FieldByIndex(f.Index)
			}
		}
	}
	return reflect.Value{}
}

// named returns the fields of struct t that the file has names for. Those of an embedded struct are
// fields of t.
func named(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
		return f.Anonymous || fieldName(f) == "-"
	})
}

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// suggestion says what to write in place of an unknown name in struct t: the field of t, or else of
// another struct, with the name in other letters, or else any field of t.
func suggestion(t reflect.Type, name string) string {
	var fields []string
	for _, f := range named(t) {
		if fields = append(fields, fieldName(f)); strings.EqualFold(fieldName(f), name) {
			return "did you mean " + fieldName(f) + "?"
		}
	}
	if found := elsewhere(reflect.TypeFor[Config](), "", name); found != "" {
		return "did you mean " + found + "?"
	}
	return "want one of " + strings.Join(fields, ", ")
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
