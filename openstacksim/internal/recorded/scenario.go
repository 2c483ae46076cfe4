// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package recorded holds exchanges with a real Keystone, Neutron and Octavia, as text files in
// testdata. It replays them on the simulator, which must give the same answers. It also replays
// them on a real cloud, to check whether the recordings still hold. If the simulator differs from
// a recording, the simulator is wrong.
//
// The package sends plain HTTP, because a client library would hide half of what is compared.
package recorded

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Scenario is one file: requests made one after the other in a project that is
// empty at first, and what was answered.
//
//	# What the file is about.
//	ignore KEY: REASON
//	dials FLOW-YAML
//
//	=== what this step shows
//	POST network /v2.0/ports as tenant
//	If-Match: revision_number=1
//	fault lose-member $pool $member
//	save port = port.id
//	{"port": {"network_id": "$net"}}
//	---
//	201
//	Content-Type: application/json
//	{
//	 "port": {…}
//	}
type Scenario struct {
	Head   []string // lines before the first step
	Ignore []string // keys whose values are not compared in any step
	Dials  string   // dials for the simulator, to make it as slow as a real cloud
	Steps  []*Step
}

// Step is one request. People write the lines above the "---". A recording writes those below it.
type Step struct {
	Title   string
	Request []string // the lines of the file, without the title

	Method, Service, Path, User string
	Header                      [][2]string
	Body                        string
	Fault                       []string    // the change made first, without the API: lose-member $pool $member
	Save                        [][2]string // variable, path in the answer's body
	Until                       [][2]string // path, value: repeat the request until the value is there
	Ignore                      []string
	Ordered                     bool   // the order of lists is compared
	Quiet                       bool   // only the status is kept: a preparation
	Rest                        bool   // wait first: a real cloud may still work on what it has shown as done
	Race                        int    // the number of parallel requests; only refusals are kept
	OnlyReal                    string // why the simulator's answer is not compared

	Want string // the recorded answer in normal form
}

// Fits reports whether an answer equals the recorded one. A race fits if each of its refusals is
// a recorded one, because the timing decides which of them occur.
func (s *Step) Fits(got string) bool {
	if s.Race == 0 || got == "" || s.Want == "" {
		return got == s.Want
	}
	recorded := ways(s.Want)
	return !slices.ContainsFunc(ways(got), func(way string) bool { return !slices.Contains(recorded, way) })
}

// ways returns the answers of a race, each of which begins with its status.
func ways(text string) (all []string) {
	for _, line := range strings.Split(text, "\n") {
		if statusLine.MatchString(line) || len(all) == 0 {
			all = append(all, line)
			continue
		}
		all[len(all)-1] += "\n" + line
	}
	return all
}

const (
	stepMark   = "=== "
	answerMark = "---"
	ignored    = "<ignored>"
)

var (
	requestLine = regexp.MustCompile(`^(GET|POST|PUT|DELETE|PATCH|HEAD|OPTIONS) (identity|network|load-balancer) (\S+)(?: as (\S+))?$`)
	headerLine  = regexp.MustCompile(`^([A-Z][A-Za-z-]*): (.*)$`)
	pairLine    = regexp.MustCompile(`^(save|until) (\S+) = (.+)$`)
	statusLine  = regexp.MustCompile(`^\d{3}$`)
	ignoreLine  = regexp.MustCompile(`^ignore (\S+): (.+)$`)
)

// Parse reads a scenario.
func Parse(text string) (*Scenario, error) {
	s := &Scenario{}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if title, ok := strings.CutPrefix(line, stepMark); ok {
			s.Steps = append(s.Steps, &Step{Title: title})
			continue
		}
		if len(s.Steps) > 0 {
			s.Steps[len(s.Steps)-1].Request = append(s.Steps[len(s.Steps)-1].Request, line)
			continue
		}
		s.Head = append(s.Head, line)
		if m := ignoreLine.FindStringSubmatch(line); m != nil {
			s.Ignore = append(s.Ignore, m[1])
		} else if dials, ok := strings.CutPrefix(line, "dials "); ok {
			s.Dials = dials
		} else if line != "" && !strings.HasPrefix(line, "#") {
			return nil, fmt.Errorf("line %d: %q is no comment and no ignore line", i+1, line)
		}
	}
	for _, step := range s.Steps {
		if err := step.parse(); err != nil {
			return nil, fmt.Errorf("step %q: %w", step.Title, err)
		}
	}
	return s, nil
}

// parse splits the step's lines, which are all in Request at first.
func (s *Step) parse() error {
	lines := s.Request
	if i := slices.Index(lines, answerMark); i >= 0 {
		s.Want = strings.TrimSpace(strings.Join(lines[i+1:], "\n"))
		lines = lines[:i]
	}
	s.Request = slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return l == "" })
	if len(s.Request) == 0 {
		return fmt.Errorf("no request")
	}
	m := requestLine.FindStringSubmatch(s.Request[0])
	if m == nil {
		return fmt.Errorf("%q is no request: METHOD SERVICE PATH [as USER]", s.Request[0])
	}
	s.Method, s.Service, s.Path, s.User = m[1], m[2], m[3], m[4]
	if s.User == "" {
		s.User = "kuryr"
	}
	var body []string
	for _, line := range s.Request[1:] {
		if !s.directive(line) {
			body = append(body, line)
		}
	}
	s.Body = strings.Join(body, "\n")
	return nil
}

// directive reads a line and reports whether it is a directive. Other lines belong to the body.
func (s *Step) directive(line string) bool {
	if reason, ok := strings.CutPrefix(line, "only real: "); ok {
		s.OnlyReal = reason
		return true
	}
	if times, ok := strings.CutPrefix(line, "race "); ok {
		s.Race, _ = strconv.Atoi(times)
		return s.Race > 0
	}
	if words, ok := strings.CutPrefix(line, "fault "); ok {
		s.Fault = strings.Fields(words)
		return true
	}
	if m := ignoreLine.FindStringSubmatch(line); m != nil {
		s.Ignore = append(s.Ignore, m[1])
		return true
	}
	if m := pairLine.FindStringSubmatch(line); m != nil {
		pair := [2]string{m[2], m[3]}
		if m[1] == "save" {
			s.Save = append(s.Save, pair)
		} else {
			s.Until = append(s.Until, pair)
		}
		return true
	}
	if m := headerLine.FindStringSubmatch(line); m != nil {
		s.Header = append(s.Header, [2]string{m[1], m[2]})
		return true
	}
	s.Ordered = s.Ordered || line == "ordered"
	s.Quiet = s.Quiet || line == "quiet"
	s.Rest = s.Rest || line == "rest"
	return line == "ordered" || line == "quiet" || line == "rest"
}

// Faulty reports whether a step asks for a fault. Not every cloud supports faults.
func (s *Scenario) Faulty() bool {
	return slices.ContainsFunc(s.Steps, func(step *Step) bool { return len(step.Fault) > 0 })
}

// String returns the file with the answers that the steps hold now.
func (s *Scenario) String() string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(strings.Join(s.Head, "\n")) + "\n")
	for _, step := range s.Steps {
		fmt.Fprintf(&b, "\n%s%s\n%s\n%s\n%s\n", stepMark, step.Title, strings.Join(step.Request, "\n"), answerMark, step.Want)
	}
	return b.String()
}

// source returns all request lines, which people wrote.
func (s *Scenario) source() string {
	var b strings.Builder
	for _, step := range s.Steps {
		b.WriteString(strings.Join(step.Request, "\n") + "\n")
	}
	return b.String()
}
