// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decoder fills a Config from YAML and collects what does not fit, because people correct a file
// faster when they see everything at once. It finds the field of each value, and encoding/json
// decodes the value. The strict modes of the YAML libraries stop at the first wrong type
// (sigs.k8s.io/yaml), or know neither paths nor the types of Kubernetes (go.yaml.in/yaml).
type decoder struct {
	faults []Fault
	lines  map[string]int // of each path that was there
	draft  bool           // pods.subnetIDs may be missing
}

// fault records what is wrong at path, unless path or a part that contains it already has a fault:
// one mistake, one message.
func (d *decoder) fault(path, format string, args ...any) {
	if !d.faulty(path) {
		d.add(d.lines[path], path, format, args...)
	}
}

func (d *decoder) add(line int, path, format string, args ...any) {
	d.faults = append(d.faults, Fault{Line: line, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (d *decoder) faulty(path string) bool {
	return slices.ContainsFunc(d.faults, func(f Fault) bool {
		rest, within := strings.CutPrefix(path, f.Path)
		return within && (f.Path == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

func (d *decoder) err() error {
	if len(d.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(d.faults, func(a, b Fault) int { return cmp.Compare(order(a), order(b)) })
	return &FaultsError{Faults: d.faults}
}

func order(f Fault) int {
	if f.Line == 0 {
		return math.MaxInt
	}
	return f.Line
}

func (d *decoder) document(root *yaml.Node, c *Config) {
	d.lines[""] = root.Line
	d.value(root, reflect.ValueOf(c).Elem(), "")
}

var durationType = reflect.TypeFor[metav1.Duration]()

// value sets v from n. Null leaves v at its default. It recurses no deeper
// than Config does, so an alias to what contains it ends as a wrong type.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Tag == "!!null":
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case v.Kind() == reflect.Struct && v.Type() != durationType, v.Kind() == reflect.Map:
		d.mapping(n, v, path)
	case v.Kind() == reflect.Slice:
		d.list(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

// mapping sets the fields of a struct, or the labels of a selector.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, v, path)
		return
	}
	labels := v.Kind() == reflect.Map
	if labels {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		line, twice := d.lines[at]
		field := fieldOf(v, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode:
			d.add(key.Line, path, "unknown field: a name is a string")
			continue
		case twice:
			d.add(key.Line, at, "said twice, first in line %d: remove one", line)
			continue
		case labels:
			field = reflect.New(v.Type().Elem()).Elem()
		case !field.IsValid():
			d.add(key.Line, at, "unknown field: %s", suggestion(v.Type(), key.Value))
			continue
		}
		d.lines[at] = key.Line
		if pods, ok := v.Addr().Interface().(*Pods); ok && key.Value == "subnetIDs" {
			d.subnets(val, pods, at)
			continue
		}
		if d.value(val, field, at); labels {
			v.SetMapIndex(reflect.ValueOf(key.Value), field)
		}
	}
}

// subnets is for the one list in Config whose entries may be lists themselves.
func (d *decoder) subnets(n *yaml.Node, p *Pods, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.SequenceNode {
		d.value(n, reflect.ValueOf(&p.SubnetIDs).Elem(), path)
		return
	}
	p.MoreSubnetIDs = map[string][]string{}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		ids := make([]string, 1)
		if item.Kind != yaml.SequenceNode {
			d.value(item, reflect.ValueOf(&ids[0]).Elem(), at)
		} else if d.list(item, reflect.ValueOf(&ids).Elem(), at); len(ids) == 0 {
			d.fault(at, "an empty list: write the IDs of the subnets for this address")
			continue
		}
		first := strings.ToLower(ids[0])
		if p.SubnetIDs = append(p.SubnetIDs, first); len(ids) > 1 {
			p.MoreSubnetIDs[first] = ids[1:]
		}
	}
	if len(p.MoreSubnetIDs) == 0 {
		p.MoreSubnetIDs = nil
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, v, path)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		d.value(item, v.Index(i), at)
	}
}

// scalar takes strings only where a string is wanted: an unquoted 1234 or yes is a string to its
// author and something else to YAML, which would change it (0123, 1e3).
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	text, err := []byte(n.Value), error(nil)
	if n.Tag == "!!str" {
		text, err = json.Marshal(n.Value)
	}
	if err != nil || n.Kind != yaml.ScalarNode || json.Unmarshal(text, v.Addr().Interface()) != nil {
		d.wrong(n, v, path)
	}
}

// wanted says what a value of a kind is, and how to write it.
var wanted = map[reflect.Kind][2]string{
	reflect.Bool: {"true or false"}, reflect.Int: {"a whole number"}, reflect.Int32: {"a whole number"}, reflect.Float64: {"a number"},
	reflect.String: {"a string", ": put it in quotes"}, reflect.Slice: {"a list", ": write it as [a, b]"},
	reflect.Struct: {"fields"}, reflect.Map: {"labels", `: write each as name: "value"`},
}

// wrong records that n is no value for v.
func (d *decoder) wrong(n *yaml.Node, v reflect.Value, path string) {
	want := wanted[v.Kind()]
	switch {
	case v.Type() == durationType:
		want = [2]string{"a time", ": write a number with its unit, as in 90s, 10m or 1h30m"}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		want[1] = ": begin each entry with '- '"
	case strings.HasSuffix(path, "IDs"):
		want = [2]string{"a list of UUIDs", ": write it as [UUID]"}
	}
	got := n.Value
	switch {
	case n.Kind == yaml.MappingNode:
		got = "fields"
	case n.Kind == yaml.SequenceNode:
		got = "a list"
	case n.Tag == "!!str":
		got = strconv.Quote(n.Value)
	}
	d.fault(path, "want %s, got %s%s", want[0], got, want[1])
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
