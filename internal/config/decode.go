// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	kjson "sigs.k8s.io/json"
)

// decoder fills a Config from YAML and collects what does not fit, because people correct a file
// faster when they see everything at once.
type decoder struct {
	faults []Fault
	lines  map[string]int // of each path that was there
	draft  bool           // pods.subnetIDs may be missing
}

// fault records what is wrong at path, unless path or a part that contains it already has a fault:
// one mistake, one message.
func (d *decoder) fault(path, format string, args ...any) {
	faulty := slices.ContainsFunc(d.faults, func(f Fault) bool {
		rest, within := strings.CutPrefix(path, f.Path)
		return within && (f.Path == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
	})
	if !faulty {
		d.add(d.lines[path], path, format, args...)
	}
}

func (d *decoder) add(line int, path, format string, args ...any) {
	d.faults = append(d.faults, Fault{Line: line, Path: path, Message: fmt.Sprintf(format, args...)})
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

// document sets the fields of c that the document says. Kubernetes' strict decoder stops at a value
// of a wrong type, so it is called again without that value.
func (d *decoder) document(root *yaml.Node, c *Config) {
	d.note(root, "")
	var tree any
	if err := root.Decode(&tree); err != nil {
		d.add(0, "", "%v", err)
		return
	}
	for {
		text, err := json.Marshal(tree)
		if err != nil { // such as a number without an end
			d.add(0, "", "%v", err)
			return
		}
		unknown, err := kjson.UnmarshalStrict(text, c)
		for _, u := range unknown {
			if field, ok := errors.AsType[kjson.FieldError](u); ok {
				d.fault(field.FieldPath(), "unknown field")
			}
		}
		wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
		if !ok {
			if err != nil { // a time that is none
				d.add(0, "", "%v", err)
			}
			return
		}
		path := strings.ReplaceAll(wrong.Field, "NetworkChoice.", "") // the file does not have the embedded struct
		d.fault(path, "want %s, got %s", wanted[wrong.Type.Kind()], wrong.Value)
		if !remove(tree, strings.Split(path, ".")) {
			return
		}
	}
}

// wanted says what a value of a kind is.
var wanted = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Int32: "a whole number", reflect.Float64: "a number",
	reflect.String: "a string (a time has a unit, as in 90s)", reflect.Slice: "a list", reflect.Struct: "fields", reflect.Map: "fields",
}

// note records the line of each field. It removes fields that are null, which have their default, and
// those that are said twice. A label that is null has the empty value, and any name is text: a selector
// without one of its labels would select more.
func (d *decoder) note(n *yaml.Node, path string) {
	if _, known := d.lines[path]; !known { // the line of a field is that of its name
		d.lines[path] = n.Line
	}
	switch n.Kind {
	case yaml.MappingNode:
		var said []*yaml.Node
		for pair := range slices.Chunk(n.Content, 2) {
			if pair[0].Kind == yaml.ScalarNode {
				pair[0].Tag = "!!str"
			}
			if pair[1].Tag == "!!null" && !strings.HasSuffix(path, ".matchLabels") {
				continue
			}
			at := strings.TrimPrefix(path+"."+pair[0].Value, ".")
			if first, twice := d.lines[at]; twice && pair[0].Kind == yaml.ScalarNode {
				d.add(pair[0].Line, at, "said twice, first in line %d: remove one", first)
				continue
			}
			d.lines[at] = pair[0].Line
			d.note(pair[1], at)
			said = append(said, pair...)
		}
		n.Content = said
	case yaml.SequenceNode:
		for i, item := range n.Content {
			d.note(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.ScalarNode:
		if n.Tag == "!!timestamp" { // else it is rewritten, with a time of day
			n.Tag = "!!str"
		}
	default:
	}
}

// remove deletes a field, of each entry where path leads through a list. It reports whether it was
// there.
func remove(tree any, path []string) (was bool) {
	switch tree := tree.(type) {
	case []any:
		for _, entry := range tree {
			was = remove(entry, path) || was
		}
	case map[string]any:
		if len(path) > 1 {
			return remove(tree[path[0]], path[1:])
		}
		_, was = tree[path[0]]
		delete(tree, path[0])
	}
	return was
}

// subnets sets the subnets of pods from the entries in the file.
func (d *decoder) subnets(p *Pods) {
	for i, entry := range p.InFile {
		at := fmt.Sprintf("pods.subnetIDs[%d]", i)
		ids := make([]string, 1)
		if json.Unmarshal(entry, &ids[0]) != nil && json.Unmarshal(entry, &ids) != nil {
			d.fault(at, "want the ID of a subnet, or a list of IDs")
			continue
		}
		if len(ids) == 0 {
			d.fault(at, "an empty list: write the IDs of the subnets for this address")
			continue
		}
		first := strings.ToLower(ids[0])
		if p.SubnetIDs = append(p.SubnetIDs, first); len(ids) > 1 {
			if p.MoreSubnetIDs == nil {
				p.MoreSubnetIDs = map[string][]string{}
			}
			p.MoreSubnetIDs[first] = ids[1:]
		}
	}
	p.InFile = nil
}
