// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decoder fills a struct from YAML and collects what does not fit. The YAML
// libraries' own strict modes stop at the first wrong type or name no path,
// and people mend a file faster when they see everything at once.
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
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return // comments only: the same as an empty file
	}
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
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	switch {
	case v.Kind() == reflect.Pointer: // not nil: it was said
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), path)
	case v.Type() == durationType:
		d.duration(n, v, path)
	case v.Kind() == reflect.Struct:
		d.mapping(n, v, path)
	case v.Kind() == reflect.Map:
		d.labels(n, v, path)
	case v.Kind() == reflect.Slice:
		d.list(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fault(path, "want fields, got %s", describe(n))
		return
	}
	fields := fieldsOf(v.Type())
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		if line, twice := seen[key.Value]; twice {
			d.add(key.Line, at, "said twice, first in line %d: remove one", line)
			continue
		}
		seen[key.Value] = key.Line
		index, known := fields[key.Value]
		if !known || key.Kind != yaml.ScalarNode {
			d.add(key.Line, at, "unknown field%s", suggestion(v.Type(), key.Value))
			continue
		}
		d.lines[at] = key.Line
		if pods, ok := v.Addr().Interface().(*Pods); ok && v.FieldByIndex(index).Addr().Interface() == any(&pods.SubnetIDs) {
			d.subnets(val, pods, at)
			continue
		}
		d.value(val, v.FieldByIndex(index), at)
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
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if item.Kind != yaml.SequenceNode {
			var id string
			d.value(item, reflect.ValueOf(&id).Elem(), at)
			p.SubnetIDs = append(p.SubnetIDs, id)
			continue
		}
		var ids []string
		d.value(item, reflect.ValueOf(&ids).Elem(), at)
		if len(ids) == 0 {
			d.fault(at, "an empty list: write the IDs of the subnets for this address")
			continue
		}
		if p.SubnetIDs = append(p.SubnetIDs, ids[0]); len(ids) > 1 {
			if p.MoreSubnetIDs == nil {
				p.MoreSubnetIDs = map[string][]string{}
			}
			p.MoreSubnetIDs[ids[0]] = ids[1:]
		}
	}
}

// labels is for the one map in Config, of strings: a selector's labels.
func (d *decoder) labels(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fault(path, "want labels, got %s: write each as name: \"value\"", describe(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		d.lines[at] = key.Line
		if line, twice := seen[key.Value]; twice {
			d.add(key.Line, at, "said twice, first in line %d: remove one", line)
			continue
		}
		seen[key.Value] = key.Line
		text := reflect.New(v.Type().Elem()).Elem()
		d.value(val, text, at)
		v.SetMapIndex(reflect.ValueOf(key.Value), text)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.fault(path, "want a list%s", wanted(n, v, path))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		d.value(item, v.Index(i), at)
	}
}

// wanted ends the complaint that n is not the list v.
func wanted(n *yaml.Node, v reflect.Value, path string) string {
	switch {
	case v.Type().Elem().Kind() == reflect.Struct:
		return fmt.Sprintf(", got %s: begin each entry with '- '", describe(n))
	case !strings.HasSuffix(path, "IDs"):
		return fmt.Sprintf(", got %s: write it as [a, b]", describe(n))
	}
	example := "UUID"
	if uuidForm.MatchString(n.Value) {
		example = n.Value
	}
	return fmt.Sprintf(" of UUIDs, got %s: write it as [%s]", describe(n), example)
}

func (d *decoder) duration(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		d.fault(path, "want a time, got %s", describe(n))
		return
	}
	t, err := time.ParseDuration(n.Value)
	if err != nil {
		d.fault(path, "%q is no time: write a number with its unit, as in 90s, 10m or 1h30m", n.Value)
		return
	}
	v.Set(reflect.ValueOf(metav1.Duration{Duration: t}))
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.String:
		d.text(n, v, path)
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
			d.fault(path, "want true or false, got %s", describe(n))
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int, reflect.Int32:
		i, err := strconv.ParseInt(n.Value, 10, v.Type().Bits())
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
			d.fault(path, "want a whole number, got %s", describe(n))
			return
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || (n.Tag != "!!int" && n.Tag != "!!float") || err != nil {
			d.fault(path, "want a number, got %s", describe(n))
			return
		}
		v.SetFloat(f)
	default:
		panic("config: no decoding for " + v.Type().String())
	}
}

// text takes strings only: an unquoted 1234 or yes is a string to its author
// and something else to YAML, which would change it (0123, 1e3).
func (d *decoder) text(n *yaml.Node, v reflect.Value, path string) {
	switch {
	case n.Kind != yaml.ScalarNode:
		d.fault(path, "want a string, got %s", describe(n))
	case n.Tag != "!!str":
		d.fault(path, "want a string, got %s: put it in quotes", describe(n))
	default:
		v.SetString(n.Value)
	}
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!str":
			return strconv.Quote(n.Value)
		case "!!null":
			return "nothing"
		}
		return n.Value
	default:
		return "an alias"
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
