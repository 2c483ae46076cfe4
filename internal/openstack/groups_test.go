// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// groupRequests notes what is asked about security groups.
type groupRequests struct {
	mu  sync.Mutex
	all []string
}

func (g *groupRequests) note(_ http.ResponseWriter, r *http.Request, body object) bool {
	_, path, is := strings.Cut(r.URL.Path, "/v2.0/security-group")
	if !is {
		return false
	}
	what := r.Method + " " + strings.TrimPrefix(path, "s")
	if i := strings.LastIndex(what, "/"); i > 0 {
		what = what[:i] + "/ID"
	}
	if name := r.URL.Query().Get("name"); name != "" {
		what += " of " + name
	}
	if rules, ok := body["security_group_rules"].([]any); ok {
		what += fmt.Sprintf(" of %d", len(rules))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, what)
	return false
}

// taken returns what was asked since the last time, in its order; what follows itself is
// counted.
func (g *groupRequests) taken() (out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for i, what := range g.all {
		n++
		if i+1 < len(g.all) && g.all[i+1] == what {
			continue
		}
		if n > 1 {
			what = fmt.Sprintf("%d x %s", n, what)
		}
		out, n = append(out, what), 0
	}
	g.all = nil
	return out
}

// unmark takes its mark off a group, and checks that it is not deleted then.
func unmark(t *testing.T, asked *groupRequests, r *realServices, id string) {
	none := ""
	_, err := groups.Update(t.Context(), r.client, id, groups.UpdateOpts{Description: &none}).Extract()
	must(t, err)
	if err := r.services(t, "one").DeleteSecurityGroup(t.Context(), id); !errors.Is(err, sdn.ErrInvalid) {
		t.Errorf("DeleteSecurityGroup of one without a mark: %v, want ErrInvalid", err)
	}
	asked.taken()
}

func groupFront(t *testing.T, change ...func(*openstacksim.Options)) (*groupRequests, *realServices, func(string, ...sdn.Rule) (sdn.SecurityGroup, error)) {
	f, asked := newFront(t, change...), &groupRequests{}
	f.before = asked.note
	r := f.services(t)
	b := r.services(t, "one")
	owner := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "shop", Name: "web"}
	return asked, r, func(id string, rules ...sdn.Rule) (sdn.SecurityGroup, error) {
		return b.EnsureSecurityGroup(t.Context(), owner, sdn.SecurityGroup{ID: id, Name: "shop/web", ProjectID: r.project, Rules: rules})
	}
}

func rulesFrom(n int) []sdn.Rule {
	var all []sdn.Rule
	for i := range n {
		all = append(all, sdn.Rule{Protocol: "TCP", From: 80, To: 80, Remote: fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)})
	}
	return all
}

// TestRequestsOfASecurityGroup: one that is known is asked for itself, and no other of
// the cloud's is.
func TestRequestsOfASecurityGroup(t *testing.T) {
	asked, r, ensure := groupFront(t)
	asked.taken()
	var id string
	step := func(what, known string, rules []sdn.Rule, want ...string) {
		t.Helper()
		g, err := ensure(known, rules...)
		must(t, err)
		if diff := cmp.Diff(want, asked.taken()); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", what, diff)
		}
		if id != "" && g.ID != id {
			t.Errorf("%s: it is %s, want %s", what, g.ID, id)
		}
		id = g.ID
	}
	step("a new one", "", rulesFrom(2), "GET  of shop/web", "POST ", "2 x DELETE -rules/ID", "POST -rules of 2")
	step("as it is", id, rulesFrom(2), "GET /ID")
	step("forgotten", "", rulesFrom(2), "GET  of shop/web", "GET /ID")
	unmark(t, asked, r, id)
	step("somebody has taken its mark off", id, rulesFrom(2), "GET /ID", "PUT /ID")
	step("marked again", "", rulesFrom(2), "GET  of shop/web", "GET /ID")
	step("not this one", "00000000-0000-4000-8000-000000000000", rulesFrom(2), "GET /ID", "GET  of shop/web", "GET /ID")
}

// TestRulesChange: who is not to come in is kept out first, and new rules come not too many
// at once. A rule that lets in somebody who is to come in by a new one goes after that.
func TestRulesChange(t *testing.T) {
	asked, _, ensure := groupFront(t, func(o *openstacksim.Options) { o.Quota = map[string]int{"security_group_rule": -1} })
	g, err := ensure("", rulesFrom(1)...)
	must(t, err)
	asked.taken()
	all := rulesFrom(251)
	_, err = ensure(g.ID, all[1:]...)
	must(t, err)
	want := []string{"GET /ID", "DELETE -rules/ID", "2 x POST -rules of 100", "POST -rules of 50"}
	if diff := cmp.Diff(want, asked.taken()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	wide, narrow, other := all[0], all[0], all[0]
	wide.Remote, narrow.Remote, other.Remote = "198.18.0.0/15", "198.18.0.0/16", "198.51.100.0/24"
	_, err = ensure(g.ID, wide, other)
	must(t, err)
	asked.taken()
	_, err = ensure(g.ID, narrow)
	must(t, err)
	if diff := cmp.Diff([]string{"GET /ID", "DELETE -rules/ID", "POST -rules of 1", "DELETE -rules/ID"}, asked.taken()); diff != "" {
		t.Errorf("requests for a narrower range (-want +got):\n%s", diff)
	}
}

// TestRulesAtTheQuota: one range for another needs no more rules than there are, and
// whoever is not to come in does not, though there are too few for all others.
func TestRulesAtTheQuota(t *testing.T) {
	// The project's own group, default, has four rules.
	asked, _, ensure := groupFront(t, func(o *openstacksim.Options) { o.Quota = map[string]int{"security_group_rule": 4 + 5} })
	all := rulesFrom(10)
	g, err := ensure("", all[:5]...)
	must(t, err)
	asked.taken()
	_, err = ensure(g.ID, all[1:6]...)
	must(t, err)
	if diff := cmp.Diff([]string{"GET /ID", "DELETE -rules/ID", "POST -rules of 1"}, asked.taken()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if _, err = ensure(g.ID, all[4:]...); !errors.Is(err, sdn.ErrQuota) {
		t.Errorf("six rules of five: %v, want ErrQuota", err)
	}
	asked.taken()
	_, err = ensure(g.ID, all[4:6]...)
	must(t, err)
	if diff := cmp.Diff([]string{"GET /ID"}, asked.taken()); diff != "" {
		t.Errorf("what is too many has not gone: requests (-want +got):\n%s", diff)
	}
}
