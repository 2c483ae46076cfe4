// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// TestRecorded compares the answers with those of the real Octavia API.
func TestRecorded(t *testing.T) {
	for _, name := range []string{"ovn", "amphora"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("testdata/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			r := &replay{world: newWorld(t, nil), vars: map[string]string{"subnet": subnetID, "net": networkID}}
			for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n")[1:] {
				request, answer, _ := strings.Cut(block, "\n")
				r.step(t, request, answer)
			}
		})
	}
}

type replay struct {
	*world
	vars map[string]string
}

var (
	request  = regexp.MustCompile(`^(?:(\w+)=)?([A-Z]+) (\S+)(?: @(\S+))?(?: (.*))?$`)
	variable = regexp.MustCompile(`\$[a-z0-9]+`)
	anyID    = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	oneOf    = regexp.MustCompile(`(should be one of: )([^"]*)`)
)

func (r *replay) step(t *testing.T, line, want string) {
	t.Helper()
	r.settle()
	m := request.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("no request: %s", line)
	}
	fill := func(s string) string {
		return variable.ReplaceAllStringFunc(s, func(v string) string {
			if known, ok := r.vars[v[1:]]; ok {
				return known
			}
			return v
		})
	}
	path := fill(m[3])
	if rest, whole := strings.CutPrefix(path, "="); whole {
		path = rest
	} else {
		path = "/v2/lbaas" + path
	}
	q := httptest.NewRequest(m[2], path, strings.NewReader(fill(m[5])))
	q.Header.Set("Accept", "application/json")
	q.Header.Set("Content-Type", "application/json")
	who := tenant
	if roles, ok := strings.CutPrefix(m[4], "X-Roles="); ok {
		who = keystone.Caller{ProjectID: project, Roles: strings.Split(roles, ",")}
	}
	rec := httptest.NewRecorder()
	r.Handle(rec, q, who)
	got := strconv.Itoa(rec.Code) + " " + rec.Body.String()
	if m[1] != "" {
		var out map[string]map[string]any
		_ = json.Unmarshal(rec.Body.Bytes(), &out)
		for _, v := range out {
			r.vars[m[1]], _ = v["id"].(string)
		}
	}
	if diff := cmp.Diff(normal(fill(want)), normal(got)); diff != "" {
		t.Errorf("%s: recorded - got +\n%s", line, diff)
	}
}

// normal returns an answer without the parts that differ from run to run, and without the results
// of the providers' workers.
func normal(answer string) any {
	status, text, _ := strings.Cut(strings.TrimSpace(answer), " ")
	text = anyID.ReplaceAllString(text, "ID")
	text = oneOf.ReplaceAllStringFunc(text, func(s string) string {
		head, list, _ := strings.Cut(s, ": ")
		names := strings.Split(list, ", ")
		slices.Sort(names)
		return head + ": " + strings.Join(names, ", ")
	})
	var body any
	if json.Unmarshal([]byte(text), &body) != nil {
		body = text
	}
	return []any{status, scrub(body)}
}

func scrub(v any) any {
	switch in := v.(type) {
	case map[string]any:
		for _, name := range []string{"operating_status", "created_at", "updated_at", "vip_address"} {
			delete(in, name)
		}
		for k := range in {
			in[k] = scrub(in[k])
		}
	case []any:
		for i := range in {
			in[i] = scrub(in[i])
		}
	}
	return v
}
