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

// suggestion says what to write in place of an unknown name in struct t: the field with the name in
// other letters, or else any field.
func suggestion(t reflect.Type, name string) string {
	var fields []string
	for _, f := range named(t) {
		if fields = append(fields, fieldName(f)); strings.EqualFold(fieldName(f), name) {
			return "did you mean " + fieldName(f) + "?"
		}
	}
	return "want one of " + strings.Join(fields, ", ")
}
