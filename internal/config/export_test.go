// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Paths returns the paths of all fields, for tests.
func Paths() []string {
	var paths []string
	each(reflect.ValueOf(Config{}), "", func(path string, _ reflect.Value) { paths = append(paths, path) })
	return paths
}

// Entries returns the paths of the fields in lists, for tests.
func Entries() []string {
	var paths []string
	each(reflect.ValueOf(Config{}), "", func(path string, v reflect.Value) {
		if t := v.Type(); t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			for _, f := range named(t.Elem()) {
				paths = append(paths, path+"[]."+fieldName(f))
			}
		}
	})
	return paths
}

// Unchanged returns the paths of the fields that are equal in a and b.
func Unchanged(a, b *Config) []string {
	values := map[string]any{}
	each(reflect.ValueOf(*a), "", func(path string, v reflect.Value) { values[path] = v.Interface() })
	var same []string
	each(reflect.ValueOf(*b), "", func(path string, v reflect.Value) {
		if reflect.DeepEqual(values[path], v.Interface()) {
			same = append(same, path)
		}
	})
	return same
}

func each(v reflect.Value, path string, f func(string, reflect.Value)) {
	for _, field := range named(v.Type()) {
		at, value := strings.TrimPrefix(path+"."+fieldName(field), "."), v.FieldByIndex(field.Index)
		if value.Kind() == reflect.Struct && value.Type() != reflect.TypeFor[metav1.Duration]() {
			each(value, at, f)
			continue
		}
		f(at, value)
	}
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
