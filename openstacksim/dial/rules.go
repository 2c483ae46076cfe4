// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// what a key of a mapping does.
type keys = map[string]func(*yaml.Node, string)

func (r *reader) set(n *yaml.Node) *Set {
	s := &Set{}
	r.object(n, "", keys{
		"preset":  func(n *yaml.Node, at string) { s.Preset = r.choice(n, at, Presets()...) },
		"workers": func(n *yaml.Node, at string) { s.Workers = r.workers(n, at) },
		"calls": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) { s.Calls = append(s.Calls, r.rule(n, at)) })
		},
		"ports": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) { s.Ports = append(s.Ports, r.port(n, at)) })
		},
		"balancers": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) { s.Balances = append(s.Balances, r.balance(n, at)) })
		},
	})
	return s
}

func (r *reader) workers(n *yaml.Node, path string) map[string]int {
	w, each := map[string]int{}, keys{}
	for _, service := range slices.Concat(builtIn, r.services) {
		each[service] = func(n *yaml.Node, at string) { w[service] = r.count(n, at, 1, 10000) }
	}
	r.object(n, path, each)
	return w
}

// times adds the keys that say which calls a rule applies to.
func (r *reader) times(t *Times, to keys) keys {
	const most = 1_000_000_000
	to["from"] = func(n *yaml.Node, at string) { t.From = r.count(n, at, 1, most) }
	to["times"] = func(n *yaml.Node, at string) { t.Times = r.count(n, at, 1, most) }
	to["every"] = func(n *yaml.Node, at string) { t.Every = r.count(n, at, 1, most) }
	to["probability"] = func(n *yaml.Node, at string) { t.Probability = r.probability(n, at) }
	return to
}

func (r *reader) rule(n *yaml.Node, path string) Rule {
	var c Rule
	var fault, script, on bool
	r.object(n, path, r.times(&c.Times, keys{
		"name":    func(n *yaml.Node, at string) { c.Name, _ = r.text(n, at) },
		"on":      func(n *yaml.Node, at string) { c.On, on = r.pattern(n, at), true },
		"when":    func(n *yaml.Node, at string) { c.When = r.conditions(n, at) },
		"latency": func(n *yaml.Node, at string) { d := r.delay(n, at); c.Latency = &d },
		"perItem": func(n *yaml.Node, at string) { d := r.delay(n, at); c.PerItem = &d },
		"fault": func(n *yaml.Node, at string) {
			c.Script, c.Repeat, fault = []Step{{Fault: r.readFault(n, at)}}, true, true
		},
		"script": func(n *yaml.Node, at string) { c.Script, script = r.script(n, at), true },
		"repeat": func(n *yaml.Node, at string) { c.Repeat = r.yes(n, at) },
		"stop":   func(n *yaml.Node, at string) { c.Stop = Moment(r.choice(n, at, string(Before), string(After))) },
	}))
	switch {
	case n.Kind != yaml.MappingNode:
	case !on:
		r.fault(n, path, "on is missing: write which calls, as in network POST /v2.0/ports")
	case fault && script:
		r.fault(n, path, "fault and script: write one of them")
	case c.Latency == nil && c.PerItem == nil && !fault && !script && c.Stop == "":
		r.fault(n, path, "does nothing: write latency, perItem, fault, script or stop")
	}
	if on && c.says("immutable") && !c.On.changesBalancers() {
		r.fault(n, path, "immutable is what Octavia says of an object to change: write on: load-balancer PUT|DELETE and a path")
	}
	if on && (c.says("killed") || c.says("rolled-back")) && !c.On.writesBalancers() {
		r.fault(n, path, "killed and rolled-back are deaths of Octavia's API in a change: write on: load-balancer POST|PUT|DELETE and a path")
	}
	if c.Name == "" {
		c.Name = c.On.String()
	}
	return c
}

func (r *reader) pattern(n *yaml.Node, path string) Pattern {
	s, ok := r.text(n, path)
	if !ok {
		return Pattern{}
	}
	p, err := ParsePattern(s, r.services...)
	if err != nil {
		r.fault(n, path, "%v", err)
	}
	return p
}

func (r *reader) conditions(n *yaml.Node, path string) []Condition {
	var all []Condition
	one := func(n *yaml.Node, at string) {
		all = append(all, Condition(r.choice(n, at, string(Bulk), string(Single), string(Bound), string(Unbound), string(Parallel))))
	}
	if n.Kind == yaml.ScalarNode {
		one(n, path)
	} else {
		r.list(n, path, one)
	}
	if slices.Contains(all, Bulk) && slices.Contains(all, Single) || slices.Contains(all, Bound) && slices.Contains(all, Unbound) {
		r.fault(n, path, "no call is both: leave out one")
	}
	return all
}

func (r *reader) script(n *yaml.Node, path string) []Step {
	var steps []Step
	r.list(n, path, func(n *yaml.Node, at string) {
		if n.Kind == yaml.ScalarNode && n.Value == "ok" {
			steps = append(steps, Step{OK: true})
			return
		}
		steps = append(steps, Step{Fault: r.readFault(n, at)})
	})
	if n.Kind == yaml.SequenceNode && len(steps) == 0 {
		r.fault(n, path, "empty: write ok, a status or the name of a fault for each call")
	}
	return steps
}

// says reports whether the fault of that name is in the script.
func (r *Rule) says(name string) bool {
	return slices.ContainsFunc(r.Script, func(s Step) bool { return s.Fault.Name == name })
}

// readFault reads a status, a name, or a mapping with details.
func (r *reader) readFault(n *yaml.Node, path string) Fault {
	if n.Kind != yaml.MappingNode {
		return r.shortFault(n, path)
	}
	var base string
	var given Fault
	effect := "" // true or false if it is said
	r.object(n, path, keys{
		"status":     func(n *yaml.Node, at string) { given.Status = r.count(n, at, 400, 599) },
		"name":       func(n *yaml.Node, at string) { base = r.choice(n, at, sorted(named)...) },
		"type":       func(n *yaml.Node, at string) { given.Type, _ = r.text(n, at) },
		"message":    func(n *yaml.Node, at string) { given.Message, _ = r.text(n, at) },
		"retryAfter": func(n *yaml.Node, at string) { given.RetryAfter = r.duration(n, at) },
		"effect": func(n *yaml.Node, at string) {
			given.Effect = r.yes(n, at)
			effect = strconv.FormatBool(given.Effect)
		},
	})
	f := named[base]
	f.Name = base
	switch said := given.Status != 0 || given.Type != "" || given.Message != "" || given.RetryAfter != 0; {
	case base == "" && given.Status == 0:
		r.fault(n, path, "want a status or a name")
	case f.silent() && said:
		r.fault(n, path, "%s is no answer at all: leave out status, type, message and retryAfter", base)
	case base == "reset" && effect == "true":
		r.fault(n, path, "reset has no effect: write lost, which has")
	case (base == "lost" || f.Death != "") && effect == "false":
		r.fault(n, path, "%s has its effect: write reset, which has none", base)
	}
	return f.with(given)
}

// silent reports whether the client gets no answer.
func (f Fault) silent() bool { return f.Cut || f.Hang }

// with is f with what given says besides.
func (f Fault) with(given Fault) Fault {
	f.Status = cmp.Or(given.Status, f.Status)
	f.Type = cmp.Or(given.Type, f.Type)
	f.Message = cmp.Or(given.Message, f.Message)
	f.RetryAfter = cmp.Or(given.RetryAfter, f.RetryAfter)
	f.Effect = f.Effect || given.Effect
	return f
}

func (r *reader) shortFault(n *yaml.Node, path string) Fault {
	s, ok := r.text(n, path)
	if !ok {
		return Fault{}
	}
	if f, known := named[s]; known {
		f.Name = s
		return f
	}
	status, err := strconv.Atoi(s)
	if err != nil || status < 400 || status > 599 {
		r.fault(n, path, "%q is no fault: write a status from 400 to 599, or %s", s, strings.Join(sorted(named), ", "))
	}
	return Fault{Status: status}
}

func (r *reader) port(n *yaml.Node, path string) PortRule {
	var p PortRule
	said := false
	r.object(n, path, r.times(&p.Times, keys{
		"active": func(n *yaml.Node, at string) {
			said = true
			if n.Kind == yaml.ScalarNode && n.Value == "never" {
				p.Never = true
				return
			}
			p.After = r.delay(n, at)
		},
	}))
	if n.Kind == yaml.MappingNode && !said {
		r.fault(n, path, "active is missing: write after how long, or never")
	}
	return p
}

func (r *reader) balance(n *yaml.Node, path string) BalanceRule {
	var b BalanceRule
	said := false
	r.object(n, path, r.times(&b.Times, keys{
		"kind": func(n *yaml.Node, at string) {
			b.Kind = r.choice(n, at, "loadbalancer", "listener", "pool", "member", "healthmonitor", "l7policy", "l7rule")
		},
		"action": func(n *yaml.Node, at string) { b.Action = r.choice(n, at, "create", "update", "delete") },
		"delay":  func(n *yaml.Node, at string) { b.Delay, said = r.delay(n, at), true },
		"outcome": func(n *yaml.Node, at string) {
			said = true
			if b.Outcome = r.choice(n, at, "ACTIVE", Broken, Stuck); b.Outcome == "ACTIVE" {
				b.Outcome = ""
			}
		},
	}))
	if n.Kind == yaml.MappingNode && !said {
		r.fault(n, path, "does nothing: write delay or outcome")
	}
	return b
}
