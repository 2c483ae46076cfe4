// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

//go:embed api.json
var apiJSON []byte

// schema is what a body has to look like: the attributes of each object, in the
// order in which the real one looks at them, which decides about the error given.
var schema = load()

type attribute struct {
	Name      string
	Type      kind
	Mandatory bool
	Default   json.RawMessage // absent: unset
}

// kind is the type of a value, as WSME has it.
type kind struct {
	Kind             string // object, list, map, enum, integer, string, text, bool, float, uuid, address, cidr, alpn, url, path, time
	Object           string // of kind object: its name in schema
	Item             *kind  // of lists and maps
	Base             string // of enums: str, int, float
	Values           []any  // of enums
	Minimum, Maximum *int64 // of integers; of strings, the length
	Pattern          string // of strings
	match            *regexp.Regexp
}

func load() map[string][]attribute {
	out := map[string][]attribute{}
	if err := json.Unmarshal(apiJSON, &out); err != nil {
		panic(fmt.Sprintf("api.json: %v", err))
	}
	for _, attributes := range out {
		for i := range attributes {
			attributes[i].Type.compile()
		}
	}
	return out
}

// hostNames stands for the pattern of domain names, which looks ahead and behind;
// Go's expressions cannot.
const hostNames = "^(?=.{1,253}"

func (k *kind) compile() {
	if k.Item != nil {
		k.Item.compile()
	}
	if k.Pattern == "" || strings.HasPrefix(k.Pattern, hostNames) {
		return
	}
	// Python's $ matches before a last newline, too.
	k.match = regexp.MustCompile(strings.ReplaceAll(k.Pattern, "$", `(?:\n?\z)`))
}

// matches reports whether text is of the kind's pattern.
func (k *kind) matches(text string) bool {
	if k.match != nil {
		return k.match.MatchString(text)
	}
	return k.Pattern == "" || hostName(text)
}

var label = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// hostName is what constants.DOMAIN_NAME_REGEX of Octavia asks for: underscores in
// the last label only, no hyphen at either end of one.
func hostName(text string) bool {
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > 253 {
		return false
	}
	labels := strings.Split(text, ".")
	for i, l := range labels {
		if !label.MatchString(l) || l[0] == '-' || l[len(l)-1] == '-' || i < len(labels)-1 && strings.Contains(l, "_") {
			return false
		}
	}
	return true
}
