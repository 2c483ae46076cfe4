// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/tenants"
)

// cloud has the ports of several projects.
type cloud struct {
	mu    sync.Mutex        // of calls: several credentials are asked at the same time
	ports map[string]string // project by ID
	calls []string
}

// session sees the ports of one project, or all. Each call may fail.
type session struct {
	tenants.Session // other calls are none of these tests
	*cloud
	project string
	all     bool
	failing error
}

func (s *session) note(call string, ids ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, strings.TrimSpace(s.project+" "+call+" "+strings.Join(ids, " ")))
	return s.failing
}

func (s *session) sees(id string) bool {
	of, is := s.ports[id]
	return is && (s.all || of == s.project)
}

func (s *session) CreatePorts(_ context.Context, _ sdn.Owner, r sdn.PortRequest, n int) ([]sdn.Port, error) {
	if err := s.note("create"); err != nil {
		return nil, err
	}
	id := fmt.Sprint("port-", len(s.ports))
	s.ports[id] = s.project
	return []sdn.Port{{ID: id, ProjectID: r.ProjectID}}, nil
}

func (s *session) Port(_ context.Context, id string) (sdn.Port, error) {
	if err := s.note("read", id); err != nil {
		return sdn.Port{}, err
	}
	if !s.sees(id) {
		return sdn.Port{}, sdn.ErrNotFound
	}
	return sdn.Port{ID: id, ProjectID: s.ports[id]}, nil
}

func (s *session) DeletePort(_ context.Context, id string) error {
	err := s.note("delete", id)
	if err == nil && s.sees(id) {
		delete(s.ports, id)
	}
	return err
}

func (s *session) ListPorts(context.Context) (all []sdn.PortSummary, err error) {
	if s.failing != nil {
		return nil, s.failing
	}
	for _, id := range slices.Sorted(maps.Keys(s.ports)) {
		if s.sees(id) {
			all = append(all, sdn.PortSummary{ID: id, ProjectID: s.ports[id]})
		}
	}
	return all, nil
}

// bed is a cloud with a main credential and those of projects red and blue.
type bed struct {
	*cloud
	*tenants.Cloud
	main, red, blue *session
	listed          []tenants.Tenant
}

func newBed(named map[string]string) *bed {
	c := &cloud{ports: map[string]string{}}
	b := &bed{
		cloud: c, main: &session{cloud: c, project: "main"}, red: &session{cloud: c, project: "red"}, blue: &session{cloud: c, project: "blue"},
		listed: []tenants.Tenant{{ProjectID: "red", Cloud: "r"}, {ProjectID: "blue", Cloud: "b"}},
	}
	b.Cloud = tenants.New(tenants.Options{
		Main:    b.main,
		Tenants: func() []tenants.Tenant { return b.listed },
		Open: func(t tenants.Tenant) tenants.Session {
			return map[string]tenants.Session{"red": b.red, "blue": b.blue}[t.ProjectID]
		},
		Named: func(_ context.Context, _ tenants.Kind, id string) (string, bool) { p, ok := named[id]; return p, ok },
	})
	return b
}

// since returns the calls since the last call of since.
func (b *bed) since() []string {
	calls := b.calls
	b.calls = nil
	slices.Sort(calls)
	return calls
}

// What a project has is made, read and deleted with its credential, and nothing with another. That
// is so without any knowledge, too, as after a restart.
func TestEachProjectHasItsCredential(t *testing.T) {
	b := newBed(nil)
	ids := map[string]string{}
	for _, project := range []string{"red", "blue", "", "other"} {
		ports, err := b.CreatePorts(t.Context(), sdn.Owner{}, sdn.PortRequest{ProjectID: project}, 1)
		if err != nil {
			t.Fatal(err)
		}
		ids[project] = ports[0].ID
	}
	if got, want := b.since(), []string{"blue create", "main create", "main create", "red create"}; !slices.Equal(got, want) {
		t.Errorf("creating: %q, want %q", got, want)
	}
	all, err := b.ListPorts(t.Context())
	if err != nil || len(all) != 4 {
		t.Errorf("ListPorts: %v, %v, want 4 ports", all, err)
	}
	if err := b.DeletePort(t.Context(), ids["red"]); err != nil {
		t.Error(err)
	}
	if got, want := b.since(), []string{"red delete " + ids["red"]}; !slices.Equal(got, want) {
		t.Errorf("deleting: %q, want %q", got, want)
	}

	fresh := newBed(map[string]string{"named": "red"})
	fresh.ports["named"], fresh.ports["unnamed"] = "red", "blue"
	for _, id := range []string{"named", "unnamed"} {
		if p, err := fresh.Port(t.Context(), id); err != nil || p.ProjectID != fresh.ports[id] {
			t.Errorf("Port(%s): %v, %v", id, p, err)
		}
	}
	want := []string{"blue read unnamed", "main read unnamed", "red read named", "red read unnamed"}
	if got := fresh.since(); !slices.Equal(got, want) {
		t.Errorf("reading after a restart: %q, want %q", got, want)
	}
	if err := fresh.DeletePort(t.Context(), "unnamed"); err != nil {
		t.Error(err)
	}
	if got, want := fresh.since(), []string{"blue delete unnamed"}; !slices.Equal(got, want) {
		t.Errorf("deleting what was read: %q, want %q", got, want)
	}
}

// Where a resource is, is remembered for placeAge after it was last seen, in the next map of places,
// too. What is not seen any more is forgotten then: the next read asks all credentials, as after a
// restart.
func TestPlacesAreForgotten(t *testing.T) {
	const age = 3*time.Hour + 3*time.Second
	synctest.Test(t, func(t *testing.T) {
		b := newBed(nil)
		see := func(id string) {
			t.Helper()
			b.ports[id] = "red"
			if _, err := b.ListPorts(t.Context()); err != nil {
				t.Fatal(err)
			}
			delete(b.ports, id)
		}
		see("gone")
		for i, want := range [][]string{
			{"red read gone"},
			{"red read gone"}, // from the older map
			{"blue read gone", "main read gone", "red read gone"},
		} {
			b.since()
			if _, err := b.Port(t.Context(), "gone"); !errors.Is(err, sdn.ErrNotFound) {
				t.Errorf("Port: %v, want ErrNotFound", err)
			}
			if got := b.since(); !slices.Equal(got, want) {
				t.Errorf("a port that was last seen %s ago: Port asks %q, want %q", time.Duration(i)*age, got, want)
			}
			for range 3 { // only the last time is late enough for a new map
				time.Sleep(age / 3)
				see("another")
			}
		}
	})
}

// A port that only a failing credential may see is not missing. Of the others' ports it is known.
func TestFailingCredential(t *testing.T) {
	b := newBed(map[string]string{"of-red": "red"})
	b.ports["of-blue"], b.ports["of-main"] = "blue", "main"
	b.blue.failing = fmt.Errorf("wrong password: %w", sdn.ErrLogin)
	if _, err := b.Port(t.Context(), "of-red"); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("the missing port of red: %v, want ErrNotFound", err)
	}
	if _, err := b.Port(t.Context(), "of-nobody"); !errors.Is(err, sdn.ErrLogin) || !strings.Contains(err.Error(), "projects[].cloud: b") {
		t.Errorf("a port that blue may have: %v, want ErrLogin that names projects[].cloud", err)
	}
	if err := b.DeletePort(t.Context(), "of-nobody"); !errors.Is(err, sdn.ErrLogin) {
		t.Errorf("deleting it: %v, want ErrLogin", err)
	}
	all, err := b.ListPorts(t.Context())
	if diff := cmp.Diff([]sdn.PortSummary{{ID: "of-main", ProjectID: "main"}}, all); diff != "" {
		t.Errorf("ListPorts: (-want +got)\n%s", diff)
	}
	if got := sdn.ErrorIn("blue", err); !errors.Is(got, sdn.ErrLogin) {
		t.Errorf("ErrorIn(blue) is %v, want ErrLogin", got)
	}
	if got := sdn.ErrorIn("red", err); got != nil || err == nil || errors.Is(err, sdn.ErrForbidden) {
		t.Errorf("ListPorts: %v, of red %v; want an error that is about blue only", err, got)
	}
	b.blue.failing, b.main.failing = nil, sdn.ErrUnavailable
	if all, err := b.ListPorts(t.Context()); !errors.Is(err, sdn.ErrUnavailable) || all != nil {
		t.Errorf("ListPorts without the main credential: %v, %v; want ErrUnavailable", all, err)
	}
}

// An administrator sees the ports of all. They are listed once, and deleted with the credential of
// their project.
func TestMainCredentialSeesAll(t *testing.T) {
	b := newBed(nil)
	b.main.all = true
	b.ports["of-red"], b.ports["of-main"] = "red", "main"
	all, err := b.ListPorts(t.Context())
	if err != nil || len(all) != 2 {
		t.Errorf("ListPorts: %v, %v; want each port once", all, err)
	}
	for _, id := range []string{"of-red", "of-main"} {
		if err := b.DeletePort(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if got, want := b.since(), []string{"main delete of-main", "red delete of-red"}; !slices.Equal(got, want) {
		t.Errorf("deleting: %q, want %q", got, want)
	}
}

// Without a project with a credential of its own all is the main one's, at no further request.
func TestOneCredential(t *testing.T) {
	b := newBed(nil)
	b.listed = nil
	if _, err := b.Port(t.Context(), "none"); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("Port: %v", err)
	}
	if err := b.DeletePort(t.Context(), "none"); err != nil {
		t.Errorf("DeletePort: %v", err)
	}
	if got, want := b.since(), []string{"main delete none", "main read none"}; !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

// A project that gets a credential of its own takes what the main one made for it with it.
func TestProjectGetsACredential(t *testing.T) {
	b := newBed(nil)
	b.main.all = true
	both := b.listed
	b.listed = both[:1] // red only
	b.ports["of-blue"] = "blue"
	if _, err := b.ListPorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.listed = both
	b.main.all = false // and is an administrator no more
	if err := b.DeletePort(t.Context(), "of-blue"); err != nil {
		t.Error(err)
	}
	if len(b.ports) != 0 {
		t.Errorf("port of-blue is still there; calls %q", b.since())
	}
}

// A deletion that every credential refuses is none.
func TestRefusedByAll(t *testing.T) {
	b := newBed(nil)
	b.ports["of-blue"] = "blue"
	for _, s := range []*session{b.main, b.red, b.blue} {
		s.failing = sdn.ErrForbidden
	}
	if err := b.DeletePort(t.Context(), "of-blue"); !errors.Is(err, sdn.ErrForbidden) {
		t.Errorf("DeletePort: %v, want ErrForbidden", err)
	}
	b.blue.failing = nil
	if err := b.DeletePort(t.Context(), "of-blue"); err != nil {
		t.Errorf("DeletePort: %v; the refusal of those that do not see the port is no answer", err)
	}
}

// TestWhatIsMadeIsRemembered: what a project's credential has made is asked for with that one alone.
func TestWhatIsMadeIsRemembered(t *testing.T) {
	b := newBed(nil)
	made, err := b.CreatePorts(t.Context(), sdn.Owner{}, sdn.PortRequest{ProjectID: "red"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	b.since()
	if _, err := b.Port(t.Context(), made[0].ID); err != nil {
		t.Fatal(err)
	}
	if got, want := b.since(), []string{"red read " + made[0].ID}; !slices.Equal(got, want) {
		t.Errorf("Port asks %q, want %q", got, want)
	}
}
