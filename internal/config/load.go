// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// maxSize bounds what is read: a ConfigMap cannot hold more than 1 MiB.
const maxSize = 1 << 20

// Load reads and checks the file at path. Faults of its content are a *FaultsError with all faults.
func Load(path string) (*Config, error) { return load(path, false) }

// LoadDraft is Load of a file before a first start. Subnets of pods and Services and security groups
// of pods may be missing in it, or still be those of the example: such lists are empty.
func LoadDraft(path string) (*Config, error) { return load(path, true) }

func load(path string, draft bool) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	c, err := parse(data, draft)
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
func Parse(data []byte) (*Config, error) { return parse(data, false) }

func parse(data []byte, draft bool) (*Config, error) {
	root, err := document(data)
	if err != nil {
		return nil, err
	}
	c := New()
	c.APIVersion, c.Kind = "", "" // have to be said
	d := decoder{lines: map[string]int{}, draft: draft}
	d.document(root, c)
	d.subnets(&c.Pods)
	if draft {
		blank(c)
	}
	check(c, &d)
	if err := d.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// blank empties the lists of IDs of a draft that hold the example's ID.
func blank(c *Config) {
	for _, ids := range []*[]string{&c.Pods.SubnetIDs, &c.Pods.SecurityGroupIDs, &c.Services.SubnetIDs} {
		if slices.Contains(*ids, exampleID) {
			*ids = nil
		}
	}
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

// tabbed is a line that is indented with a tab.
var tabbed = regexp.MustCompile(`(?m)^[ -]*\t`)

// syntaxFault turns the YAML parser's one error about data into our form.
func syntaxFault(data []byte, err error) error {
	var at *yaml.LoadError
	if !errors.As(err, &at) {
		return &FaultsError{Faults: []Fault{{Message: "not YAML: " + err.Error()}}}
	}
	f := Fault{Line: at.Mark.Line, Message: "not YAML: " + at.Message} // no line known is line 0
	if tab := tabbed.FindIndex(data); tab != nil && at.Stage == yaml.ScannerStage {
		f = Fault{Line: 1 + bytes.Count(data[:tab[0]], []byte("\n")), Message: "not YAML: a tab: indent with spaces"}
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

// lookEvery is the time between two reads of the file. The kubelet takes up to a minute and a half to
// write a changed ConfigMap, so there is nothing to gain by watching the file.
const lookEvery = time.Second

// Watch calls changed with the configuration at path and the Hash of the file, now and after each
// change of the file's content. If the file cannot be read or has faults, it calls changed with an
// error (see Load); the caller keeps the older configuration. The calls are sequential, from this
// goroutine. Watch returns when ctx is done.
//
// It follows a file of a mounted ConfigMap, which kubelet replaces by swapping a symbolic link
// beside it. A file mounted by subPath never changes.
func Watch(ctx context.Context, path string, changed func(c *Config, hash string, err error)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var reported, before string
	for {
		data, err := read(path)
		now := Hash(data)
		if err != nil {
			now = err.Error()
		}
		// A change counts if two reads show it: an editor takes several steps to replace a file.
		if now != reported && (reported == "" || now == before) {
			reported = now
			report(path, data, err, changed)
		}
		before = now
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// report calls changed with what was read.
func report(path string, data []byte, err error, changed func(*Config, string, error)) {
	if err != nil {
		changed(nil, "", err)
		return
	}
	c, err := Parse(data)
	if err != nil {
		err = fmt.Errorf("reading configuration %s: %w", path, err)
	}
	changed(c, Hash(data), err)
}

// Hash names the content of a configuration file: "sha256:" and its SHA-256 in hex.
func Hash(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
