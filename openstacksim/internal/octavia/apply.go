// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"encoding/json"
	"reflect"
	"strings"
)

// apply sets a row's fields to the values of a request with the same JSON names. Null becomes the
// zero value. Names that rows lack are ignored.
func apply(row any, in values) {
	v := reflect.ValueOf(row).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		value, given := in[name]
		if name == "" || !given {
			continue
		}
		field := v.FieldByIndex(f.Index)
		field.SetZero()
		if value == nil {
			continue
		}
		if text, err := json.Marshal(value); err == nil {
			_ = json.Unmarshal(text, field.Addr().Interface()) // the schema has checked the value already
		}
	}
}

func (v values) clone() values {
	out := values{}
	for name, value := range v {
		out[name] = value
	}
	return out
}

// without returns a copy of v without some names.
func (v values) without(names ...string) values {
	out := v.clone()
	for _, name := range names {
		delete(out, name)
	}
	return out
}
