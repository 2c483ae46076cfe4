// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

var update = flag.Bool("update", false, "rewrite the plans in testdata")

// noon is the present in all tests; times in testdata count from it.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestPlan reads cases from testdata: each is a comment that says what is to be
// seen, a state and the plan for it.
func TestPlan(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("reading testdata: %v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i+1 < len(archive.Files); i += 2 {
				state, want := archive.Files[i], &archive.Files[i+1]
				in := parse(t, string(state.Data))
				got := describe(pool.Plan(in, noon))
				if diff := cmp.Diff(parse(t, string(state.Data)), in); diff != "" {
					t.Errorf("%s: the plan has changed the state (-was +is):\n%s", state.Name, diff)
				}
				if *update {
					want.Data = []byte(got)
				}
				if diff := cmp.Diff(string(want.Data), got); diff != "" {
					t.Errorf("%s: plan (-want +got):\n%s", state.Name, diff)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// parse reads a state, one fact a line: what it is, its name, key=value.
func parse(t *testing.T, text string) pool.State {
	t.Helper()
	s := pool.State{Levels: pool.Levels{Batch: 1}, Restoring: map[string]bool{}}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		name, facts := "", map[string]string{}
		for _, w := range f[1:] {
			if k, v, ok := strings.Cut(w, "="); ok {
				facts[k] = v
			} else if name == "" {
				name = w
			} else {
				facts[w] = "true"
			}
		}
		parseLine(t, &s, f[0], name, facts)
	}
	return s
}

func parseLine(t *testing.T, s *pool.State, what, name string, facts map[string]string) {
	t.Helper()
	after := func(key string) time.Duration { return duration(t, facts[key]) }
	switch what {
	case "levels":
		s.Levels = pool.Levels{
			Min: number(t, facts["min"]), Max: number(t, facts["max"]), Fill: number(t, facts["fill"]),
			Batch: max(1, number(t, facts["batch"])), TTL: after("ttl"), Cooldown: after("cooldown"),
		}
	case "pod":
		ref := v1.PodReference{Namespace: "ns", Name: name, UID: types.UID(name)}
		s.Pods = append(s.Pods, pool.Pod{Ref: ref, Created: noon.Add(-after("age")), Restore: facts["had"], Groups: groups(facts["groups"])})
	case "elsewhere":
		s.Elsewhere = append(s.Elsewhere, pool.Port{Name: name, Pod: claim(facts["of"]), Live: true, Attached: facts["attached"] != "", Lost: facts["lost"] != ""})
	case "port":
		s.Ports = append(s.Ports, pool.Port{
			Name: name, Pod: claim(facts["of"]), Live: facts["of"] != "" && facts["dead"] == "",
			Attached: facts["attached"] != "", Ready: facts["of"] == "" && facts["unready"] == "",
			Failed: facts["failed"] != "", Lost: facts["lost"] != "", Misplaced: facts["misplaced"] != "", Deleting: facts["deleting"] != "", Drifted: facts["drifted"] != "", Stuck: facts["stuck"] != "",
			Since: noon.Add(-after("free")), Rested: facts["fresh"] != "", Groups: groups(facts["groups"]),
		})
	case "unrecorded":
		s.Unrecorded = append(s.Unrecorded, pool.Unrecorded{ID: name, For: claim(facts["for"])})
	case "inflight":
		s.InFlight = number(t, name)
	case "restoring":
		s.Restoring[name] = true
	case "hold":
		s.Hold = noon.Add(duration(t, name))
	case "scarce":
		s.Scarce = true
	case "node":
		s.NodeGone = name == "gone"
	default:
		t.Fatalf("a line about %q", what)
	}
}

// groups reads security groups, none of which are the pool's.
func groups(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func number(t *testing.T, s string) int {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// describe writes a plan, one action a line.
func describe(a pool.Actions) string {
	var b bytes.Buffer
	binding := func(verb string, bs []pool.Binding) {
		for _, x := range bs {
			to := "free"
			if x.Pod != nil {
				to = "to " + x.Pod.Name
			}
			if x.Groups != nil {
				to += " with " + strings.Join(x.Groups, ",")
			}
			fmt.Fprintln(&b, verb, x.Port, to)
		}
	}
	names := func(verb string, ports []string) {
		for _, x := range ports {
			fmt.Fprintln(&b, verb, x)
		}
	}
	binding("bind", a.Bind)
	binding("adopt", a.Adopt)
	for _, x := range a.Restore {
		fmt.Fprintf(&b, "restore %s for %s\n", x.Port, x.Pod.UID)
	}
	names("recycle", a.Recycle)
	names("repair", a.Repair)
	names("delete", a.Delete)
	names("discard", a.Discard)
	if a.Want != (pool.Demand{}) {
		fmt.Fprintf(&b, "want %d for pods, %d spare\n", a.Want.Waiting, a.Want.Spare)
	}
	if a.Filled {
		fmt.Fprintln(&b, "filled")
	}
	if !a.Wake.IsZero() {
		fmt.Fprintln(&b, "wake in", a.Wake.Sub(noon))
	}
	l := a.Levels
	fmt.Fprintf(&b, "= available %d, bound %d, recycling %d, waiting %d\n", l.Available, l.Bound, l.Recycling, l.Waiting)
	return b.String()
}

// claim is that of a pod's only interface; an empty name is no pod's.
func claim(pod string) v1.Claim { return v1.Claim{UID: types.UID(pod)} }
