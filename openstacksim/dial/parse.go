// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

//go:embed measured.yaml
var measured []byte

var presets = map[string][]byte{"measured": measured}

// Presets are the names that preset: takes.
func Presets() []string { return []string{"measured"} }

// FaultsError lists all mistakes in a text, each with line and path.
type FaultsError []string

func (f FaultsError) Error() string {
	if len(f) == 1 {
		return f[0]
	}
	return fmt.Sprintf("%d faults:\n  %s", len(f), strings.Join(f, "\n  "))
}

// Parse reads a Set as YAML (so JSON too). If anything is wrong, the error is a FaultsError with
// all mistakes. An empty text is a Set without effect.
//
// Rules may name the simulator's services and the given ones, which are the types of additional
// services. The rules of Add and Patch may name them, too.
func Parse(text []byte, services ...string) (*Set, error) {
	root, err := document(text)
	if err != nil {
		return nil, err
	}
	return parse(root, services)
}

func document(text []byte) (*yaml.Node, error) {
	empty := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return empty, nil
	case err != nil:
		return nil, FaultsError{syntax(err)}
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, FaultsError{"more than one document: leave out what follows ---"}
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return empty, nil
	}
	return root, nil
}

// clone copies a node and everything below it: yaml v4.0.0 removes the tags of what it marshals.
func clone(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, below := range n.Content {
		out.Content[i] = clone(below)
	}
	return &out
}

// syntax returns the error of invalid YAML, with its place.
func syntax(err error) string {
	var at *yaml.LoadError
	if !errors.As(err, &at) {
		return err.Error()
	}
	if at.Mark.Line > 0 {
		return fmt.Sprintf("line %d: %s", at.Mark.Line, at.Message)
	}
	return at.Message
}

func parse(root *yaml.Node, services []string) (*Set, error) {
	r := reader{services: services}
	s := r.set(root)
	if len(r.faults) > 0 {
		return nil, r.faults
	}
	text, err := yaml.Marshal(clone(root))
	if err != nil {
		return nil, fmt.Errorf("writing the dials: %w", err)
	}
	s.source, s.services = text, services
	if s.Preset == "" {
		return s, nil
	}
	base, err := Parse(presets[s.Preset])
	if err != nil {
		return nil, fmt.Errorf("reading preset %s: %w", s.Preset, err)
	}
	s.under(base)
	return s, nil
}

// under appends the rules of base to those of s.
func (s *Set) under(base *Set) {
	s.Calls = append(s.Calls, base.Calls...)
	s.Ports = append(s.Ports, base.Ports...)
	s.Balances = append(s.Balances, base.Balances...)
	for service, n := range base.Workers {
		if _, has := s.Workers[service]; !has {
			if s.Workers == nil {
				s.Workers = map[string]int{}
			}
			s.Workers[service] = n
		}
	}
}

// YAML returns s as Parse reads it, without the rules of a preset.
func (s *Set) YAML() []byte {
	if len(s.source) == 0 {
		return []byte("{}\n")
	}
	return s.source
}

// Patch returns s with the changes of text: its rules come first, its other keys replace those of
// s. Services are as for Parse, in addition to those of s.
func (s *Set) Patch(text []byte, services ...string) (*Set, error) {
	services = s.with(services)
	if _, err := Parse(text, services...); err != nil {
		return nil, err
	}
	top, err := document(text)
	if err != nil {
		return nil, err
	}
	return s.merge(top, services)
}

// with returns services and those of s, without duplicates.
func (s *Set) with(services []string) []string {
	all := slices.Clone(s.services)
	for _, service := range services {
		if !slices.Contains(all, service) {
			all = append(all, service)
		}
	}
	return all
}

func (s *Set) merge(top *yaml.Node, services []string) (*Set, error) {
	root, err := document(s.YAML())
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		at := slices.IndexFunc(root.Content, func(n *yaml.Node) bool { return n.Value == key.Value })
		switch {
		case at < 0 || at%2 == 1:
			root.Content = append(root.Content, key, value)
		case value.Kind == yaml.SequenceNode:
			merged := *value
			merged.Content = append(slices.Clone(value.Content), root.Content[at+1].Content...)
			root.Content[at+1] = &merged
		default:
			root.Content[at+1] = value
		}
	}
	root.Style = 0
	return parse(root, services)
}

// Add returns s with one more line, which --dial takes:
//
//	network POST /v2.0/ports: 503
//	network POST /v2.0/ports: [ok, lost]
//	network POST /v2.0/ports: {latency: 1s, times: 3}
//	preset: measured
//
// The line comes before the rules of s. Services are as for Parse, in addition to those of s.
func (s *Set) Add(line string, services ...string) (*Set, error) {
	services = s.with(services)
	top, err := document([]byte(line))
	if err != nil {
		return nil, err
	}
	if top.Kind != yaml.MappingNode || len(top.Content) != 2 {
		return nil, FaultsError{fmt.Sprintf("%q: write a pattern, a colon and what shall happen, as in network POST /v2.0/ports: 503", line)}
	}
	key, value := top.Content[0], top.Content[1]
	if !slices.Contains(topKeys, key.Value) {
		top = inCalls(key, value)
	}
	if _, err := parse(top, services); err != nil {
		return nil, err
	}
	return s.merge(top, services)
}

var topKeys = []string{"preset", "workers", "calls", "ports", "balancers"}

// inCalls is the document with the one rule in it.
func inCalls(pattern, value *yaml.Node) *yaml.Node {
	rule := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{word("on"), pattern}}
	switch value.Kind {
	case yaml.MappingNode:
		rule.Content = append(rule.Content, value.Content...)
	case yaml.SequenceNode:
		rule.Content = append(rule.Content, word("script"), value)
	default:
		rule.Content = append(rule.Content, word("fault"), value)
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{rule}}
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{word("calls"), list}}
}

func word(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }
