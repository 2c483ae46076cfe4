// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// exampleT is an openstacksim.T where there is no test: in an example.
type exampleT struct {
	ctx     context.Context
	cleanup []func()
}

// example returns a T, and what ends it.
func example() (t *exampleT, end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	t = &exampleT{ctx: ctx}
	return t, func() {
		cancel()
		for _, f := range slices.Backward(t.cleanup) {
			f()
		}
	}
}

func (t *exampleT) Context() context.Context          { return t.ctx }
func (t *exampleT) Helper()                           {}
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *exampleT) Cleanup(f func())                  { t.cleanup = append(t.cleanup, f) }

func (t *exampleT) TempDir() string {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// echo answers with what it is asked. Its type is what it is.
type echo string

func (e echo) Type() string { return string(e) }

func (e echo) Handle(w http.ResponseWriter, r *http.Request, who openstacksim.Caller) {
	if strings.HasSuffix(r.URL.Path, "/panic") {
		panic("as asked")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
	fmt.Fprintf(w, "%s %s?%s %s by %q in %q, admin: %v", r.Method, r.URL.Path, r.URL.RawQuery, body, who.UserName, who.ProjectName, who.Admin())
}

// versioned is an echo with a version in its URL.
type versioned struct {
	echo
	version string
}

func (v versioned) Version() string { return v.version }

func withServices(all ...openstacksim.Service) func(*openstacksim.Options) {
	return func(o *openstacksim.Options) { o.Services = all }
}

// A service that was added is found in the catalogue, with a token only, and logged.
func TestService(t *testing.T) {
	c := openstacksim.Start(t, withServices(echo("image"), versioned{"compute", "v2.1"}))
	login := c.ClientConfig()
	login.Username, login.ProjectName = "tenant", "k8s"
	p := must[*gophercloud.ProviderClient](t)(openstack.AuthenticatedClient(t.Context(), authOptions(login)))
	for kind, want := range map[string]string{"image": c.URL() + "/image/", "compute": c.URL() + "/compute/v2.1/", "network": c.URL() + "/networking/"} {
		opts := gophercloud.EndpointOpts{Type: kind, Region: login.RegionName, Availability: gophercloud.AvailabilityPublic}
		if got, err := p.EndpointLocator(opts); err != nil || got != want {
			t.Errorf("%s is at %s, %v, want %s", kind, got, err, want)
		}
	}
	k := &client{t: t, url: c.URL(), token: p.Token(), http: http.DefaultClient}
	if got, want := k.must(200, http.MethodPut, "/compute/v2.1/servers/1?x=y", "body"), `PUT /v2.1/servers/1?x=y body by "tenant" in "k8s", admin: false`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	k.must(404, http.MethodGet, "/computer/v2.1/servers", "")
	k.must(500, http.MethodGet, "/compute/v2.1/panic", "")
	k.token = "none"
	k.must(401, http.MethodPut, "/compute/v2.1/servers/1", "")
	if got, want := k.must(200, http.MethodGet, "/image", ""), `GET /?  by "" in "", admin: false`; got != want {
		t.Errorf("version discovery without a token: got %s, want %s", got, want)
	}
	if all, ok, refused := c.Count("PUT", "servers/{id}"), c.Count("PUT", "servers/{id}", "200"), c.Count("PUT", "servers/{id}", "401"); all != 2 || ok != 1 || refused != 1 {
		t.Errorf("the log has %d calls, %d answered, %d refused, want 2, 1, 1: %+v", all, ok, refused, c.Counts())
	}
	last := c.Calls()[len(c.Calls())-1]
	if last.Service != "image" || last.Resource != "versions" {
		t.Errorf("the last call is %+v", last)
	}
}

// Dials and hooks are for added services, too, and 401 when a token has expired.
func TestServiceIsDialled(t *testing.T) {
	var before, after atomic.Int32
	count := func(n *atomic.Int32) func(openstacksim.Call) error {
		return func(c openstacksim.Call) error {
			if c.Service == "compute" {
				n.Add(1)
				if c.Path == "/v2.1/cut" {
					return errors.New("cut")
				}
			}
			return nil
		}
	}
	c := openstacksim.Start(t, withServices(echo("compute")), func(o *openstacksim.Options) { o.Before, o.After = count(&before), count(&after) })
	k := as(t, c, "admin", "admin")
	const servers = "/compute/v2.1/servers"
	if err := c.Dial("compute POST /v2.1/servers: [{status: 409, message: no host}, lost, ok]"); err != nil {
		t.Fatal(err)
	}
	if got := k.must(409, http.MethodPost, servers, "{}"); !strings.Contains(got, "no host") {
		t.Errorf("the fault says %s", got)
	}
	if a := k.send(http.MethodPost, servers, "{}"); a.err == nil {
		t.Errorf("a lost answer came: %+v", a)
	}
	k.must(200, http.MethodPost, servers, "{}")
	if before, after := before.Load(), after.Load(); before != 3 || after != 2 {
		t.Errorf("hooks saw %d calls before and %d after, want 3 and 2", before, after)
	}
	if a := k.send(http.MethodGet, "/compute/v2.1/cut", ""); a.err == nil {
		t.Errorf("a call that was cut was answered: %+v", a)
	}
	if lost := c.Count("POST", "servers", "lost"); lost != 1 {
		t.Errorf("%d answers were lost, want 1: %+v", lost, c.Counts())
	}
	k.must(204, http.MethodPut, "/sim/dials", "calls: [{on: compute GET /v2.1/servers, fault: expired-token}]\nworkers: {compute: 1}")
	k.must(204, http.MethodPatch, "/sim/dials", "calls: [{on: compute GET /v2.1/servers, times: 1, fault: 503}]")
	k.must(503, http.MethodGet, servers, "")
	k.must(401, http.MethodGet, servers, "")
	k.must(401, http.MethodGet, projectsPath, "")
	if err := c.Dial("compte GET /v2.1/servers: 503"); err == nil || !strings.Contains(err.Error(), "compute") {
		t.Errorf("a misspelled service: %v, want what may be written", err)
	}
}

func TestServicesThatCannotBe(t *testing.T) {
	for want, services := range map[string][]openstacksim.Service{
		"there is network already, at /networking":       {echo("network")},
		"networking cannot be added: there is network":   {echo("networking")},
		"there is sim already, at /sim":                  {echo("sim")},
		"there is identity already, at /identity":        {echo("identity")},
		"there is load-balancer already":                 {echo("load-balancer")},
		"there is compute already, at /compute":          {echo("compute"), echo("image"), echo("compute")},
		`"" is no type of a service`:                     {echo("")},
		`"Compute" is no type of a service`:              {echo("Compute")},
		`"a/b" is no type of a service`:                  {echo("a/b")},
		`"*" is no type of a service`:                    {echo("*")},
		`"2nd" is no type of a service`:                  {echo("2nd")},
		`"block--storage" is no type of a service`:       {echo("block--storage")},
		"Services[1] is nil":                             {echo("image"), nil},
		`service compute: "2.1" is no version: write it`: {versioned{"compute", "2.1"}},
	} {
		_, err := openstacksim.New(openstacksim.Options{URL: "http://cloud.invalid", Services: services})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New with %v: got %v, want %q", services, err, want)
		}
	}
}
