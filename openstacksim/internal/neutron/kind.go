// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

// lostMarker says what a list shows after a marker row that does not exist: observed.
type lostMarker int

const (
	// The first page: Neutron looks for the marker as an object, and continues without it.
	_ lostMarker = iota
	// 404: these lists look for the marker in the database.
	refusesPage
	// An empty page: Neutron pages through a plugin's list.
	showsNothing
)

// kind is one type of resource. Rows are structs with JSON tags that embed standard. A row in the
// table is never changed in place; put replaces it.
type kind[T any] struct {
	one, many, title string // "port", "ports", "Port" (of PortNotFound)
	rows             *table.Table[T]

	// create completes and checks a new row. The row has its ID, its project, the defaults and
	// the given values. It is stored if create returns nil.
	create func(c *call, row *T, in values) *fault
	// update checks a changed copy. It is stored if update returns nil.
	update func(c *call, row *T, old *T, in values) *fault
	// remove refuses, or cleans up. The row is deleted if remove returns nil.
	remove func(c *call, row *T) *fault
	// created and updated run after the row is stored. They may replace it.
	created, updated func(c *call, row *T) *fault

	shown   func(c *call, row *T) bool // nil: own project, or admin
	filters map[string]func(c *call, row *T, values []string) bool
	hide    []string // attributes for administrators only, in addition to those in api-*.json
	// view returns the row for an answer, if that needs more than the stored row; nil: the stored
	// row.
	view func(c *call, row *T) *T
	// finish completes the result of view, using only that and the request. It runs without the
	// lock; a list calls it while the rows are written. nil: view is complete.
	finish func(c *call, row *T) *T
	// made returns the row for the answer to a POST; nil: as view.
	made func(c *call, row *T) *T
	// changed returns the answer to a PUT, if its form differs; nil: as view.
	changed func(row *T) map[string]any
	// batch runs before the items of a bulk POST are made one by one.
	batch func(c *call, items []values) *fault
	// listing runs before a list reads the rows.
	listing func(c *call)
	// missing returns NotFound with its message; nil: Neutron's usual message.
	missing func(id string) *fault
	// lost says what follows a marker that does not exist.
	lost lostMarker
	path string // in URLs; "" is many, with dashes

	attrs    *attributeList
	fields   map[string][]int // by JSON name, where in T
	optional map[string]bool  // fields that are omitted if empty
	public   []string         // fields shown to callers without administrator rights; nil: all
	full     []string         // fields shown to administrators; nil: all
	projects map[string]int   // number of rows by project
}

// handler is a kind, independent of its row type.
type handler interface {
	handle(c *call, rest []string, body []byte) (status int, answer any, f *fault)
	name() (one, many string)
	project(id string) string
	has(id string) bool
	count(project string) int
	notFound(id string) *fault
	tagged(c *call, id string) (*standard, func(*standard), *fault)
}

// register makes the service serve a kind: list, one, POST (single and bulk), PUT, DELETE, and
// tags if the kind has them.
func register[T any](s *Service, k *kind[T]) {
	attrs, ok := s.api.Resources[k.many]
	if !ok {
		panic("no attributes of " + k.many + " in Neutron's description of itself")
	}
	k.attrs, k.projects = &attrs, map[string]int{}
	if k.rows == nil {
		k.rows = table.New(func(row *T) string { return commonOf(row).ID })
	}
	k.index(s)
	if k.path == "" {
		k.path = strings.ReplaceAll(k.many, "_", "-")
	}
	s.kinds[k.path] = k
}

// index finds the position of each attribute in a row, and the fields that each group of callers
// may see.
func (k *kind[T]) index(s *Service) {
	k.fields, k.optional = map[string][]int{}, map[string]bool{}
	var all []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, flags, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "" || name == "-" {
			continue
		}
		k.fields[name], k.optional[name] = f.Index, flags == "omitempty"
		all = append(all, name)
	}
	visible := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		a := k.attrs.byName[name]
		return a == nil || !a.shown()
	})
	if len(visible) < len(all) {
		k.full = visible
	}
	secret := append(s.hidden(k.one, k.attrs), k.hide...)
	open := slices.DeleteFunc(slices.Clone(visible), func(name string) bool { return slices.Contains(secret, name) })
	if len(open) < len(all) {
		k.public = open
	}
}

func (k *kind[T]) name() (one, many string) { return k.one, k.many }

func (k *kind[T]) project(id string) string {
	if row, ok := k.rows.Get(id); ok {
		return commonOf(row).ProjectID
	}
	return ""
}

func (k *kind[T]) has(id string) bool {
	_, ok := k.rows.Get(id)
	return ok
}

// count returns the number of rows of a project.
func (k *kind[T]) count(project string) int { return k.projects[project] }

// put stores a row, and can be undone.
func (k *kind[T]) put(c *call, row *T) {
	r := commonOf(row)
	old, was := k.rows.Get(r.ID)
	k.store(row)
	c.undo(func() {
		if was {
			k.store(old)
		} else {
			k.delete(r.ID)
		}
	})
}

// drop removes a row, and can be undone.
func (k *kind[T]) drop(c *call, id string) {
	old, was := k.rows.Get(id)
	if !was {
		return
	}
	k.delete(id)
	c.undo(func() { k.store(old) })
}

func (k *kind[T]) store(row *T) {
	r := commonOf(row)
	if old, was := k.rows.Get(r.ID); was {
		k.projects[commonOf(old).ProjectID]--
	}
	k.rows.Put(row)
	k.projects[r.ProjectID]++
}

func (k *kind[T]) delete(id string) {
	if old, was := k.rows.Get(id); was {
		k.projects[commonOf(old).ProjectID]--
		k.rows.Delete(id)
	}
}

// sees reports whether the caller may see a row.
func (k *kind[T]) sees(c *call, row *T) bool {
	if c.admin() {
		return true
	}
	if k.shown != nil {
		return k.shown(c, row)
	}
	return c.owns(commonOf(row).ProjectID)
}

// find returns a row that the caller may see, otherwise 404.
func (k *kind[T]) find(c *call, id string) (*T, *fault) {
	if row, ok := k.rows.Get(id); ok && k.sees(c, row) {
		return row, nil
	}
	return nil, k.notFound(id)
}

func (k *kind[T]) notFound(id string) *fault {
	if k.missing != nil {
		return k.missing(id)
	}
	return refuse(404, k.title+"NotFound", "%s %s could not be found.", k.title, id)
}

// set copies the values of in into a row. It ignores names that rows lack.
func (k *kind[T]) set(row *T, in values) {
	v := reflect.ValueOf(row).Elem()
	for name, value := range in {
		index, ok := k.fields[name]
		if !ok {
			continue
		}
		assign(v.FieldByIndex(index), value)
	}
}

// assign sets a field to a JSON value. A value of the wrong type leaves the field unchanged; the
// checks let no such value pass.
func assign(field reflect.Value, value any) {
	if field.Kind() == reflect.Pointer && value != nil {
		p := reflect.New(field.Type().Elem())
		assign(p.Elem(), value)
		field.Set(p)
		return
	}
	v := reflect.ValueOf(value)
	switch {
	case value == nil:
		field.SetZero()
	case v.Type() == field.Type():
		field.Set(v)
	case field.Kind() == reflect.Interface && v.Type().Implements(field.Type()):
		field.Set(v)
	default:
		decodeInto(field, value)
	}
}

// decodeInto assigns values that are more than plain ones, by way of JSON.
func decodeInto(field reflect.Value, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		return
	}
	p := reflect.New(field.Type())
	if json.Unmarshal(text, p.Interface()) == nil {
		field.Set(p.Elem())
	}
}

// target returns a row's fields after the request, for the access rules.
func (k *kind[T]) target(row *T, in values) target {
	return func(field string) any {
		if v, ok := in[field]; ok {
			return v
		}
		if row == nil {
			return nil
		}
		return table.Value(row, field)
	}
}

// answer returns the fields of a row that the caller sees.
func (k *kind[T]) answer(c *call, row *T, fields []string) any {
	return k.pick(c, k.seen(c, row), fields)
}

// seen returns a row completed with values from elsewhere.
func (k *kind[T]) seen(c *call, row *T) *T {
	if k.view != nil {
		row = k.view(c, row)
	}
	if k.made != nil && c.request.Method == http.MethodPost {
		row = k.made(c, row)
	}
	return row
}

// pick returns the requested fields of a row that the caller may see. It needs no lock.
func (k *kind[T]) pick(c *call, row *T, fields []string) any {
	if k.finish != nil {
		row = k.finish(c, row)
	}
	may := k.full
	if !c.admin() {
		may = k.public
	}
	if fields != nil {
		may = k.among(fields, may)
	} else if may == nil {
		return row
	}
	v := reflect.ValueOf(row).Elem()
	out := make(map[string]any, len(may))
	for _, name := range may {
		if f := v.FieldByIndex(k.fields[name]); !k.optional[name] || !f.IsZero() {
			out[name] = f.Interface()
		}
	}
	return out
}

// among returns the requested fields that may be shown. A nil may allows all fields.
func (k *kind[T]) among(fields, may []string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(name string) bool {
		return k.fields[name] == nil || may != nil && !slices.Contains(may, name)
	})
}
