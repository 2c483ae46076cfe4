// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package recorded

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Values that differ between two runs on the same cloud.
var (
	token32   = `[0-9a-f]{32}`
	uuid      = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
	anyID     = regexp.MustCompile(`\b(` + uuid + `|` + token32 + `)\b`)
	request   = regexp.MustCompile(`req-` + uuid)
	idLists   = regexp.MustCompile(`(` + uuid + `|\$[a-z0-9_]+)(, ?(` + uuid + `|\$[a-z0-9_]+))+`)
	sets      = regexp.MustCompile(`\{'[^'{}]*'(, '[^'{}]*')+\}`)
	choices   = regexp.MustCompile(`(one of|Supported types|standard attribute|attributes): [A-Za-z][\w:-]*(, [A-Za-z][\w:-]*)+`)
	rules     = regexp.MustCompile(`rule:[\w:]+( and rule:[\w:]+)+`)
	hosts     = regexp.MustCompile(`\bhost-[0-9a-f]+-[0-9a-f-]*[0-9a-f]\b`)
	macs      = regexp.MustCompile(`\bfa:16:3e(:[0-9a-f]{2}){3}\b`)
	addresses = regexp.MustCompile(`[0-9a-f]*[:.][0-9a-f:.]*[0-9a-f]`)
	times     = regexp.MustCompile(`\b20\d\d-\d\d-\d\d([T ])\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?`)
	variables = regexp.MustCompile(`\$[a-z][a-z0-9_]*`)
)

// The keys of addresses that a cloud may choose.
var chosen = []string{"ip_address", "vip_address", "floating_ip_address", "fixed_ip_address"}

// The compared headers.
var headers = []string{
	"Allow", "Content-Type", "Location", "Openstack-Api-Version", "Retry-After",
	"Vary", "Www-Authenticate", "X-Openstack-Request-Id", "X-Subject-Token",
}

// normal turns answers into a text that is the same in each run.
type normal struct {
	literals  map[string]bool   // IDs and addresses that people wrote; they stay unchanged
	vars      map[string]string // name → value
	endpoints map[string]string // service → URL
	ignore    []string
	ordered   bool

	named map[string]string // of one answer: an ID without a variable → its number
}

// answer returns the status, headers and body in normal form.
func (n *normal) answer(status int, header http.Header, body []byte) string {
	n.named = map[string]string{}
	lines := []string{strconv.Itoa(status)}
	for _, name := range headers {
		for _, value := range header.Values(name) {
			if name == "X-Subject-Token" {
				value = "<token>"
			}
			lines = append(lines, name+": "+n.text(value, ""))
		}
	}
	return strings.TrimSpace(strings.Join(append(lines, n.body(body)), "\n"))
}

func (n *normal) body(body []byte) string {
	value, ok := decode(body)
	if !ok {
		return strings.TrimSpace(n.text(string(body), ""))
	}
	named := n.named
	n.named = nil
	value = n.value("", value)
	if !n.ordered {
		value = sorted(value)
	}
	n.named = named
	if value = n.value("", value); !n.ordered {
		value = sorted(value) // elements that were equal have numbers now
	}
	return encode(value)
}

// decode reads JSON and keeps the form of numbers.
func decode(body []byte) (any, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var value any
	err := d.Decode(&value)
	return value, err == nil && !d.More()
}

func encode(value any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(value); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

// value normalises a body in the order of its keys. While n.named is nil, all IDs without a
// variable become equal.
func (n *normal) value(path string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		return n.object(path, v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = n.value(path, e)
		}
		return out
	case string:
		return n.text(v, path)
	}
	return value
}

func (n *normal) object(path string, object map[string]any) any {
	out := map[string]any{}
	keys := make([]string, 0, len(object))
	for k := range object {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		below := strings.TrimPrefix(path+"."+k, ".")
		name := n.text(k, "")
		if n.ignores(below) {
			out[name] = ignored
			continue
		}
		out[name] = n.value(below, object[k])
	}
	n.forgetName(out)
	return out
}

// forgetName hides the name of a project or user with a known ID. Each cloud names them
// differently.
func (n *normal) forgetName(object map[string]any) {
	id, _ := object["id"].(string)
	_, named := object["name"].(string)
	if named && (strings.HasSuffix(id, "_project") || strings.HasSuffix(id, "_user") || id == "$project") {
		object["name"] = "<name of " + id + ">"
	}
}

func (n *normal) ignores(path string) bool {
	return slices.ContainsFunc(n.ignore, func(key string) bool { return path == key || strings.HasSuffix(path, "."+key) })
}

// text replaces known values by their variables, and random values by their form.
func (n *normal) text(s, path string) string {
	for service, url := range n.endpoints {
		s = strings.ReplaceAll(s, url, "<"+service+">")
	}
	s, _, _ = strings.Cut(s, "\n\nFailed validating ") // the rest is the whole schema, and the body
	s = n.names(s)
	s = request.ReplaceAllString(s, "req-<id>")
	s = times.ReplaceAllStringFunc(s, func(t string) string { return digits.ReplaceAllString(t, "0") })
	s = sets.ReplaceAllStringFunc(s, anyOrder)
	s = rules.ReplaceAllStringFunc(s, anyOrder)
	s = choices.ReplaceAllStringFunc(s, anyOrder)
	s = idLists.ReplaceAllStringFunc(s, anyOrder)
	s = n.unless(hosts, s, func(string) string { return "host-<ip>" })
	s = n.unless(macs, s, func(string) string { return "<mac>" })
	s = n.unless(anyID, s, n.number)
	if slices.ContainsFunc(chosen, func(k string) bool { return path == k || strings.HasSuffix(path, "."+k) }) {
		s = n.unless(addresses, s, form)
	}
	return s
}

var digits = regexp.MustCompile(`\d`)

// names replaces values by their variables, the longest value first.
func (n *normal) names(s string) string {
	names := make([]string, 0, len(n.vars))
	for name := range n.vars {
		// The name of a user is not random: it may be any word.
		if !strings.HasSuffix(name, "_name") && !strings.HasSuffix(name, "_password") {
			names = append(names, name)
		}
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := n.vars[names[i]], n.vars[names[j]]
		return len(a) > len(b) || len(a) == len(b) && names[i] < names[j]
	})
	for _, name := range names {
		if s == n.vars[name] {
			return "$" + name
		}
		if len(n.vars[name]) < 8 || strings.Contains(n.vars[name], "$") {
			continue
		}
		whole := regexp.MustCompile(`(^|[^0-9a-zA-Z.])` + regexp.QuoteMeta(n.vars[name]) + `($|[^0-9a-zA-Z])`)
		s = whole.ReplaceAllString(s, "${1}$$"+name+"${2}")
	}
	return s
}

// unless replaces the matches of the expression, except those that people wrote.
func (n *normal) unless(what *regexp.Regexp, s string, by func(string) string) string {
	return what.ReplaceAllStringFunc(s, func(found string) string {
		if n.literals[found] {
			return found
		}
		return by(found)
	})
}

// anyOrder sorts a list of IDs within a message, or a Python set. Their order differs from
// process to process.
func anyOrder(list string) string {
	before, after := "", ""
	if strings.HasPrefix(list, "{") {
		before, list, after = "{", strings.Trim(list, "{}"), "}"
	} else if words, choice, ok := strings.Cut(list, ": "); ok {
		before, list = words+": ", choice
	}
	separator := ","
	for _, longer := range []string{", ", " and "} {
		if strings.Contains(list, longer) {
			separator = longer
		}
	}
	members := strings.Split(anyID.ReplaceAllString(list, "<id>"), separator)
	slices.Sort(members)
	return before + strings.Join(members, separator) + after
}

// literals collects the IDs and addresses that people wrote, which are not random. A name that
// Neutron derives from an address counts as that address.
func literals(source string) map[string]bool {
	found := map[string]bool{}
	for _, kind := range []*regexp.Regexp{anyID, macs, addresses} {
		for _, s := range kind.FindAllString(source, -1) {
			found[s] = true
		}
	}
	for s := range found {
		if _, err := netip.ParseAddr(s); err == nil {
			found["host-"+strings.NewReplacer(".", "-", ":", "-").Replace(s)] = true
		}
	}
	return found
}

// number numbers the IDs of one answer, so that equal IDs stay equal.
func (n *normal) number(id string) string {
	if n.named == nil {
		return id
	}
	if n.named[id] == "" {
		n.named[id] = fmt.Sprintf("<id%d>", len(n.named)+1)
	}
	return n.named[id]
}

func form(s string) string {
	addr, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return s
	case addr.Is4():
		return "<ipv4>"
	}
	return "<ipv6>"
}

// sorted sorts lists by their text, with all IDs taken as equal. By default a cloud lists by ID,
// which is random. Only equal texts are ordered by ID.
func sorted(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for k := range v {
			v[k] = sorted(v[k])
		}
	case []any:
		for i := range v {
			v[i] = sorted(v[i])
		}
		slices.SortStableFunc(v, func(a, b any) int {
			x, y := encode(a), encode(b)
			return cmp.Or(cmp.Compare(alike(x), alike(y)), cmp.Compare(x, y))
		})
	}
	return value
}

func alike(text string) string { return aliases.ReplaceAllString(text, "<id>") }

var aliases = regexp.MustCompile(uuid + `|\b` + token32 + `\b|<id\d+>`)
