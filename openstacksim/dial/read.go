// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// longest is the longest delay: more is more likely a slip than meant.
const longest = time.Hour

// reader converts nodes into a Set and collects mistakes.
type reader struct {
	faults   FaultsError
	services []string // besides builtIn
}

func (r *reader) fault(n *yaml.Node, path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	if n.Line > 0 {
		text = fmt.Sprintf("line %d: %s", n.Line, text)
	}
	r.faults = append(r.faults, text)
}

func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// object calls the reader of each existing key.
func (r *reader) object(n *yaml.Node, path string, keys map[string]func(*yaml.Node, string)) {
	if n.Kind != yaml.MappingNode {
		r.fault(n, path, "want a mapping, got %s", kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read, known := keys[key.Value]
		switch {
		case seen[key.Value]:
			r.fault(key, below(path, key.Value), "written twice")
		case !known || key.Kind != yaml.ScalarNode:
			r.fault(key, below(path, key.Value), "unknown: write one of %s", strings.Join(sorted(keys), ", "))
		case value.Kind == yaml.AliasNode:
			r.fault(value, below(path, key.Value), "an alias: write it out")
		default:
			read(value, below(path, key.Value))
		}
		seen[key.Value] = true
	}
}

func sorted[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (r *reader) list(n *yaml.Node, path string, read func(*yaml.Node, string)) {
	if n.Kind != yaml.SequenceNode {
		r.fault(n, path, "want a list, got %s", kindOf(n))
		return
	}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item.Kind == yaml.AliasNode {
			r.fault(item, at, "an alias: write it out")
			continue
		}
		read(item, at)
	}
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	default:
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return strconv.Quote(n.Value)
}

func (r *reader) text(n *yaml.Node, path string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.fault(n, path, "want a word, got %s", kindOf(n))
		return "", false
	}
	return n.Value, true
}

func (r *reader) choice(n *yaml.Node, path string, words ...string) string {
	s, ok := r.text(n, path)
	if ok && !slices.Contains(words, s) {
		r.fault(n, path, "%q is none of %s", s, strings.Join(words, ", "))
	}
	return s
}

func (r *reader) count(n *yaml.Node, path string, low, high int) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || v < low || v > high {
		r.fault(n, path, "want a number from %d to %d, got %s", low, high, kindOf(n))
	}
	return v
}

func (r *reader) yes(n *yaml.Node, path string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		r.fault(n, path, "want true or false, got %s", kindOf(n))
	}
	return n.Value == "true"
}

func (r *reader) probability(n *yaml.Node, path string) float64 {
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || err != nil || math.IsNaN(v) || v <= 0 || v > 1 {
		r.fault(n, path, "want more than 0 and at most 1, got %s", kindOf(n))
	}
	return v
}

func (r *reader) duration(n *yaml.Node, path string) time.Duration {
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < 0 || v > longest {
		r.fault(n, path, "want a time from 0s to %v with its unit, as in 250ms, got %s", longest, kindOf(n))
	}
	return v
}

func (r *reader) delay(n *yaml.Node, path string) Delay {
	var d Delay
	if n.Kind == yaml.ScalarNode {
		return Fixed(r.duration(n, path))
	}
	if n.Kind == yaml.MappingNode && len(n.Content) != 2 {
		r.fault(n, path, "want one distribution: fixed, uniform, normal or lognormal")
		return d
	}
	r.object(n, path, map[string]func(*yaml.Node, string){
		"fixed":     func(n *yaml.Node, at string) { d = Fixed(r.duration(n, at)) },
		"uniform":   func(n *yaml.Node, at string) { d = r.uniform(n, at) },
		"normal":    func(n *yaml.Node, at string) { d = r.shaped(n, at, normal, "mean", "deviation") },
		"lognormal": func(n *yaml.Node, at string) { d = r.shaped(n, at, lognormal, "median", "p99") },
	})
	return d
}

func (r *reader) uniform(n *yaml.Node, path string) Delay {
	var ends []time.Duration
	r.list(n, path, func(n *yaml.Node, at string) { ends = append(ends, r.duration(n, at)) })
	if n.Kind == yaml.SequenceNode && (len(ends) != 2 || ends[0] > ends[1]) {
		r.fault(n, path, "want the least and the most, as in [10ms, 50ms]")
	}
	if len(ends) != 2 {
		return Delay{}
	}
	return Delay{uniform, ends[0], ends[1]}
}

func (r *reader) shaped(n *yaml.Node, path string, s shape, first, second string) Delay {
	d, seen, sound := Delay{shape: s}, 0, len(r.faults)
	r.object(n, path, map[string]func(*yaml.Node, string){
		first:  func(n *yaml.Node, at string) { d.a = r.duration(n, at); seen++ },
		second: func(n *yaml.Node, at string) { d.b = r.duration(n, at); seen++ },
	})
	switch {
	case len(r.faults) > sound:
	case seen != 2:
		r.fault(n, path, "want %s and %s", first, second)
	case s == lognormal && (d.a == 0 || d.b < d.a):
		r.fault(n, path, "want a median above 0s, and a p99 that is not below it")
	}
	return d
}
