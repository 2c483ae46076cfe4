// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package table

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// column is a field of a row.
type column struct {
	index []int
	kind  reflect.Kind
}

// columns are cached by row type: reflecting on a struct's tags is slow.
var columns sync.Map // reflect.Type → map[string]column

func columnsOf[T any]() map[string]column {
	t := reflect.TypeFor[T]()
	if known, ok := columns.Load(t); ok {
		return known.(map[string]column)
	}
	out := map[string]column{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "" || name == "-" {
			continue
		}
		out[name] = column{index: f.Index, kind: f.Type.Kind()}
	}
	columns.Store(t, out)
	return out
}

func (c column) value(row any) reflect.Value {
	return reflect.ValueOf(row).Elem().FieldByIndex(c.index)
}

func (c column) of(row any) any { return c.value(row).Interface() }

// Has reports whether rows have the field.
func Has[T any](field string) bool {
	_, ok := columnsOf[T]()[field]
	return ok
}

// Value returns a field of a row, nil if rows lack the field.
func Value[T any](row *T, field string) any {
	c, ok := columnsOf[T]()[field]
	if !ok {
		return nil
	}
	return c.of(row)
}

// Project returns a value that marshals to the named fields of row. Without names it marshals to
// the whole row. Unknown names are ignored.
func Project[T any](row *T, fields []string) any {
	if len(fields) == 0 {
		return row
	}
	out := make(map[string]any, len(fields))
	for _, name := range fields {
		if c, ok := columnsOf[T]()[name]; ok {
			out[name] = c.of(row)
		}
	}
	return out
}

// filters turns the filters of a query into tests of a row.
func filters[T any](wanted map[string][]string) []func(*T) bool {
	var tests []func(*T) bool
	for name, values := range wanted {
		c, ok := columnsOf[T]()[name]
		if !ok {
			continue
		}
		tests = append(tests, func(row *T) bool { return c.is(row, values) })
	}
	return tests
}

// is reports whether the field has one of the values. The empty string in a URL matches null.
func (c column) is(row any, values []string) bool {
	v := c.value(row)
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return slices.Contains(values, "")
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return slices.Contains(values, v.String())
	case reflect.Bool:
		return slices.ContainsFunc(values, func(s string) bool { return boolean(s) == v.Bool() })
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return slices.Contains(values, strconv.FormatInt(v.Int(), 10))
	case reflect.Slice:
		return slices.ContainsFunc(values, func(s string) bool { return contains(v, s) })
	default:
		return slices.Contains(values, fmt.Sprint(v.Interface()))
	}
}

func contains(list reflect.Value, s string) bool {
	for i := range list.Len() {
		if fmt.Sprint(list.Index(i).Interface()) == s {
			return true
		}
	}
	return false
}

// boolean reads a boolean as OpenStack's services do (oslo.utils: strutils.bool_from_string).
func boolean(s string) bool {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "t", "true", "on", "y", "yes", "1":
		return true
	}
	return false
}

// compareValues orders two values of one field. Null comes first, as in MySQL.
func compareValues(a, b any) int {
	va, vb := plain(a), plain(b)
	switch {
	case !va.IsValid() || !vb.IsValid():
		return cmp.Compare(rank(va), rank(vb))
	case va.Kind() != vb.Kind():
	case va.Kind() == reflect.String:
		return strings.Compare(va.String(), vb.String())
	case va.CanInt():
		return cmp.Compare(va.Int(), vb.Int())
	case va.Kind() == reflect.Bool:
		return cmp.Compare(number(va.Bool()), number(vb.Bool()))
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

func plain(a any) reflect.Value {
	v := reflect.ValueOf(a)
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v = v.Elem()
	}
	return v
}

func rank(v reflect.Value) int { return number(v.IsValid()) }

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
