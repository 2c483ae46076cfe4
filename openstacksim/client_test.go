// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// client talks to a cloud without any library between.
type client struct {
	t     testing.TB
	url   string
	token string
	http  *http.Client
}

// as logs in as a user, in that user's project.
func as(t testing.TB, c *openstacksim.Cloud, user, project string) *client {
	t.Helper()
	k := &client{t: t, url: c.URL(), http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(k.http.CloseIdleConnections)
	return login(t, k, user, project)
}

func login(t testing.TB, k *client, user, project string) *client {
	t.Helper()
	answer := k.send(http.MethodPost, "/identity/v3/auth/tokens", fmt.Sprintf(`{"auth":{"identity":{"methods":["password"],"password":{"user":`+
		`{"name":%q,"domain":{"name":"Default"},"password":"secret"}}},"scope":{"project":{"name":%q,"domain":{"id":"default"}}}}}`, user, project))
	if answer.err != nil || answer.status != http.StatusCreated {
		t.Fatalf("logging in as %s: %v %d %s", user, answer.err, answer.status, answer.body)
	}
	k.token = answer.header.Get("X-Subject-Token")
	return k
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// send makes one attempt. Go's client repeats one that went over a connection
// that was in use before and closed; a new connection for each call avoids it.
func (k *client) send(method, path, body string) answer {
	k.t.Helper()
	r, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	r.Close = true
	return k.do(r)
}

// fast is send over a connection that stays.
func (k *client) fast(method, path, body string) answer {
	r, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	return k.do(r)
}

func (k *client) do(r *http.Request) answer {
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Auth-Token", k.token)
	got, err := k.http.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return answer{got.StatusCode, got.Header, string(text), err}
}

// must is send that is answered with status.
func (k *client) must(status int, method, path, body string) string {
	k.t.Helper()
	a := k.send(method, path, body)
	if a.err != nil || a.status != status {
		k.t.Fatalf("%s %s %s: got %v %d %s, want %d", method, path, body, a.err, a.status, a.body, status)
	}
	return a.body
}

// dialled starts a cloud that is told to fail as the lines say.
func dialled(t *testing.T, lines ...string) (*openstacksim.Cloud, *client) {
	t.Helper()
	c := openstacksim.Start(t)
	k := as(t, c, "admin", "admin")
	for _, line := range lines {
		if err := c.Dial(line); err != nil {
			t.Fatal(err)
		}
	}
	c.Reset()
	return c, k
}

const projectsPath = "/identity/v3/projects"

func newProject(name string) string { return fmt.Sprintf(`{"project":{"name":%q}}`, name) }

func exists(k *client, name string) bool {
	return strings.Contains(k.must(200, http.MethodGet, projectsPath, ""), `"name":"`+name+`"`)
}

// field is the first string under that name in text.
func field(text, name string) string {
	_, rest, _ := strings.Cut(text, `"`+name+`":`)
	value, _, _ := strings.Cut(strings.TrimLeft(rest, ` "`), `"`)
	return value
}
