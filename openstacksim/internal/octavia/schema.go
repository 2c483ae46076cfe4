// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// descriptions are what hack/octavia-api.py writes of the Octavia of each release.
//
//go:embed api-zed.json api-2025.1.json
var descriptions embed.FS

// schema describes the valid bodies: the attributes of each object, in Octavia's order. The order
// decides which error is returned.
type schema map[string][]attribute

// ofZed and of2025 are the descriptions, which are read at first use.
var (
	ofZed  = sync.OnceValue(func() schema { return load("api-zed.json") })
	of2025 = sync.OnceValue(func() schema { return load("api-2025.1.json") })
)

type attribute struct {
	Name      string
	Type      kind
	Mandatory bool
	Default   json.RawMessage // absent: unset
}

// kind is the type of a value in WSME.
type kind struct {
	Kind             string // object, list, map, enum, integer, string, text, bool, float, uuid, address, cidr, alpn, url, path, time
	Object           string // of kind object: its name in the schema
	attributes       []attribute
	Item             *kind  // of lists and maps
	Base             string // of enums: str, int, float
	Values           []any  // of enums
	Minimum, Maximum *int64 // of integers; of strings, the length
	Pattern          string // of strings
	match            *regexp.Regexp
}

func load(name string) schema {
	data, err := descriptions.ReadFile(name)
	out := schema{}
	if err = cmp.Or(err, json.Unmarshal(data, &out)); err != nil {
		panic(fmt.Sprintf("reading the embedded %s: %v", name, err))
	}
	for _, attributes := range out {
		for i := range attributes {
			attributes[i].Type.compile(out)
		}
	}
	return out
}

// hostNames identifies the pattern of domain names. It uses look-ahead and look-behind, which
// Go's expressions lack.
const hostNames = "^(?=.{1,253}"

func (k *kind) compile(all schema) {
	k.attributes = all[k.Object]
	if k.Item != nil {
		k.Item.compile(all)
	}
	if k.Pattern == "" || strings.HasPrefix(k.Pattern, hostNames) {
		return
	}
	// Python's $ also matches before a final newline.
	k.match = regexp.MustCompile(strings.ReplaceAll(k.Pattern, "$", `(?:\n?\z)`))
}

// matches reports whether text matches the kind's pattern.
func (k *kind) matches(text string) bool {
	if k.match != nil {
		return k.match.MatchString(text)
	}
	return k.Pattern == "" || hostName(text)
}

var label = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// hostName checks what Octavia's constants.DOMAIN_NAME_REGEX requires: underscores in the last
// label only, and no hyphen at either end of a label.
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
