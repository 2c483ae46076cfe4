// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxSize bounds what is read: a ConfigMap cannot hold more than 1 MiB.
const maxSize = 1 << 20

// Load reads and checks the file at path. What is wrong with its content is a
// *FaultsError with everything there is to mend.
func Load(path string) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading configuration %s: %w", path, err)
	}
	return c, nil
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("reading configuration %s: it is larger than %d bytes", path, maxSize)
	}
	return data, nil
}

// Parse is Load of a file's content.
func Parse(data []byte) (*Config, error) {
	root, err := document(data)
	if err != nil {
		return nil, err
	}
	c := New()
	c.APIVersion, c.Kind = "", "" // have to be said
	d := decoder{lines: map[string]int{}}
	d.document(root, c)
	check(c, &d)
	if err := d.err(); err != nil {
		return nil, err
	}
	canonical(c)
	return c, nil
}

// document returns the root of the only YAML document in data.
func document(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return &yaml.Node{Kind: yaml.MappingNode, Line: 1}, nil // all that is required is missing
	} else if err != nil {
		return nil, syntaxFault(data, err)
	}
	switch err := dec.Decode(&next); {
	case err == nil:
		return nil, &FaultsError{Faults: []Fault{{
			Line: next.Line, Message: "a second YAML document: a configuration is one; remove what follows ---",
		}}}
	case !errors.Is(err, io.EOF):
		return nil, syntaxFault(data, err)
	}
	return doc.Content[0], nil
}

var (
	yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)
	// What the parser says of a tab, and where one is that it may mean: it often
	// names the line before.
	tabError = regexp.MustCompile(`cannot start any token|tab character`)
	tabbed   = regexp.MustCompile(`(?m)^[ -]*\t`)
)

// syntaxFault turns the YAML parser's one error about data into our form.
func syntaxFault(data []byte, err error) error {
	if at := tabbed.FindIndex(data); at != nil && tabError.MatchString(err.Error()) {
		return &FaultsError{Faults: []Fault{{
			Line: 1 + bytes.Count(data[:at[0]], []byte("\n")), Message: "not YAML: a tab: indent with spaces",
		}}}
	}
	f := Fault{Message: "not YAML: " + yamlError.ReplaceAllString(err.Error(), "")}
	if m := yamlError.FindStringSubmatch(err.Error()); m != nil {
		f.Line, _ = strconv.Atoi(m[1]) // no line said is line 0
	}
	return &FaultsError{Faults: []Fault{f}}
}

// Fault is one thing to mend in a configuration file.
type Fault struct {
	Line    int    // 0 if it is about nothing that is there
	Path    string // of the field, as in pods.subnetIDs[1]; empty for the whole file
	Message string
}

func (f Fault) String() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", f.Line)
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	return b.String() + f.Message
}

// FaultsError is all that is wrong with a configuration file, in the order of
// the file; what is missing comes last.
type FaultsError struct{ Faults []Fault }

func (e *FaultsError) Error() string {
	if len(e.Faults) == 1 {
		return e.Faults[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults", len(e.Faults))
	for _, f := range e.Faults {
		b.WriteString("\n  " + f.String())
	}
	return b.String()
}
