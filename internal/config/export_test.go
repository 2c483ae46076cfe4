// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"reflect"

	"github.com/fsnotify/fsnotify"
)

// Unwatched has nothing to watch files with until it is undone.
func Unwatched() (undo func()) {
	was := newWatcher
	newWatcher = func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open files") }
	return func() { newWatcher = was }
}

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
		if sub, list := structIn(v.Type()); list {
			for i := range sub.NumField() {
				paths = append(paths, path+"[]."+fieldName(sub.Field(i)))
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
	for i := range v.NumField() {
		if fieldName(v.Type().Field(i)) == unnamed {
			continue
		}
		at := join(path, fieldName(v.Type().Field(i)))
		if v.Field(i).Kind() == reflect.Struct && v.Field(i).Type() != durationType {
			each(v.Field(i), at, f)
			continue
		}
		f(at, v.Field(i))
	}
}
