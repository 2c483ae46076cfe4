// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"fmt"
	"slices"
	"strings"
)

// Pattern is which calls a rule is for, written "network POST|PUT /v2.0/ports/*".
// In the path * is one segment, or a part of one, and ** as the last segment is
// all that follows. For service and method * is any.
type Pattern struct {
	Service string // empty: any
	Methods []string
	path    []string // nil: any
	text    string
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// ParsePattern reads a Pattern. It may name the simulator's services and the given ones. The error
// lists all mistakes.
func ParsePattern(s string, services ...string) (Pattern, error) {
	words := strings.Fields(s)
	if len(words) != 3 {
		return Pattern{}, fmt.Errorf("%q is no pattern: write service, method and path, as in network POST /v2.0/ports; * is any", s)
	}
	p := Pattern{text: strings.Join(words, " ")}
	var wrong []string
	if words[0] != "*" {
		p.Service = words[0]
		if known := slices.Concat(builtIn, services); !slices.Contains(known, p.Service) {
			wrong = append(wrong, fmt.Sprintf("%q is no service: write %s or *", words[0], strings.Join(known, ", ")))
		}
	}
	if words[1] != "*" {
		p.Methods = strings.Split(words[1], "|")
		for _, m := range p.Methods {
			if !slices.Contains(methods, m) {
				wrong = append(wrong, fmt.Sprintf("%q is no method: write some of %s with | between, or *", m, strings.Join(methods, ", ")))
			}
		}
	}
	if words[2] != "*" {
		if !strings.HasPrefix(words[2], "/") {
			wrong = append(wrong, fmt.Sprintf("%q is no path: begin it with /, as in /v2.0/ports/*", words[2]))
		}
		p.path = strings.Split(strings.Trim(words[2], "/"), "/")
		if p.Service == LoadBalancer && p.path[0] == "v2.0" {
			p.path[0] = "v2"
		}
		if i := slices.Index(p.path, "**"); i >= 0 && i < len(p.path)-1 {
			wrong = append(wrong, fmt.Sprintf("%q has something after **: put ** last", words[2]))
		}
	}
	if wrong != nil {
		return Pattern{}, fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return p, nil
}

var builtIn = []string{Identity, Network, LoadBalancer}

// String is p as it was written.
func (p Pattern) String() string { return p.text }

// Fits reports whether p matches the call. Octavia's /v2.0 is its /v2.
func (p Pattern) Fits(c Call) bool {
	if rest, is := strings.CutPrefix(c.Path, "/v2.0/"); is && c.Service == LoadBalancer && p.Service == LoadBalancer {
		c.Path = "/v2/" + rest
	}
	return (p.Service == "" || p.Service == c.Service) &&
		(p.Methods == nil || slices.Contains(p.Methods, c.Method)) &&
		(p.path == nil || fits(p.path, c.Path))
}

// changesBalancers reports whether p matches changes of Octavia's objects only.
func (p Pattern) changesBalancers() bool {
	return p.Service == LoadBalancer && len(p.Methods) > 0 &&
		!slices.ContainsFunc(p.Methods, func(m string) bool { return m != "PUT" && m != "DELETE" })
}

// writesBalancers reports whether p matches creations and changes of Octavia's objects only.
func (p Pattern) writesBalancers() bool {
	return p.Service == LoadBalancer && len(p.Methods) > 0 &&
		!slices.ContainsFunc(p.Methods, func(m string) bool { return m != "POST" && m != "PUT" && m != "DELETE" })
}

// fits compares segment by segment, without allocating: it runs for each rule and call.
func fits(pattern []string, path string) bool {
	path = strings.Trim(path, "/")
	for i, want := range pattern {
		if want == "**" {
			return true
		}
		segment, rest, more := strings.Cut(path, "/")
		if !glob(want, segment) {
			return false
		}
		if !more {
			return i == len(pattern)-1 || i == len(pattern)-2 && pattern[i+1] == "**"
		}
		path = rest
	}
	return false
}

// glob matches one segment; each * is any number of characters, but a segment is never empty.
func glob(pattern, s string) bool {
	if s == "" {
		return pattern == ""
	}
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], after
	}
}
