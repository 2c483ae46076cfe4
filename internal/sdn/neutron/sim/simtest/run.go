// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Target is a cloud that scenarios run on, with a project of their own.
type Target struct {
	Endpoints map[string]string // identity, network, load-balancer → URL without a version
	Users     map[string]User   // kuryr: admin of Project; tenant: member of it; admin: of another
	Vars      map[string]string // known from the start: project, admin_project, host…
	Client    *http.Client

	tokens map[string]string
}

// User is how somebody logs in; all are of the domain "default".
type User struct {
	Name, Password, Project string
}

// Result is what a step was answered, in normal form.
type Result struct {
	Step *Step
	Got  string
	Err  error // the request could not be made
}

// patience bounds how long an "until" is waited for.
const patience = 90 * time.Second

// run is one scenario at work.
type run struct {
	*Target
	scenario *Scenario
	vars     map[string]string
}

// Run makes all requests of the scenario and returns the answers, one for each step.
func (t *Target) Run(ctx context.Context, s *Scenario) []Result {
	r := &run{Target: t, scenario: s, vars: map[string]string{}}
	for k, v := range t.Vars {
		r.vars[k] = v
	}
	results := make([]Result, len(s.Steps))
	for i, step := range s.Steps {
		got, err := r.step(ctx, step)
		results[i] = Result{Step: step, Got: got, Err: err}
	}
	return results
}

func (r *run) step(ctx context.Context, s *Step) (string, error) {
	status, header, body, err := r.ask(ctx, s)
	for end := time.Now().Add(patience); err == nil && !met(s, body) && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		status, header, body, err = r.ask(ctx, s)
	}
	if err != nil {
		return "", err
	}
	for _, save := range s.Save {
		value := Lookup(body, save[1])
		if save[1] == "X-Subject-Token" {
			value = header.Get(save[1])
		}
		if value == "" {
			err = fmt.Errorf("the answer has no %s: status %d, %s", save[1], status, body)
			continue
		}
		r.vars[save[0]] = value
	}
	if s.Quiet && status < 300 {
		return strconv.Itoa(status), err
	}
	n := &normal{
		literals: literals(r.scenario.source()), vars: r.vars, endpoints: r.Endpoints,
		ignore: append(slices.Clone(r.scenario.Ignore), s.Ignore...), ordered: s.Ordered,
	}
	return n.answer(status, header, body), err
}

// met says whether the answer is the one that the step waits for.
func met(s *Step, body []byte) bool {
	return !slices.ContainsFunc(s.Until, func(u [2]string) bool { return Lookup(body, u[0]) != u[1] })
}

func (r *run) ask(ctx context.Context, s *Step) (int, http.Header, []byte, error) {
	path, err := r.expand(s.Path)
	if err != nil {
		return 0, nil, nil, err
	}
	body, err := r.expand(s.Body)
	if err != nil {
		return 0, nil, nil, err
	}
	header := http.Header{}
	if body != "" {
		header.Set("Content-Type", "application/json")
	}
	for _, h := range s.Header {
		value, err := r.expand(h[1])
		if err != nil {
			return 0, nil, nil, err
		}
		header.Set(h[0], value)
	}
	if _, own := header["X-Auth-Token"]; s.User != "nobody" && !own {
		token, err := r.token(ctx, s.User)
		if err != nil {
			return 0, nil, nil, err
		}
		header.Set("X-Auth-Token", token)
	}
	return r.do(ctx, s.Method, r.Endpoints[s.Service]+path, header, body)
}

// expand puts values in the place of variables.
func (r *run) expand(s string) (string, error) {
	var err error
	out := variables.ReplaceAllStringFunc(s, func(name string) string {
		value := r.vars[name[1:]]
		if value == "" {
			err = fmt.Errorf("%s is not known: the step that saves it was answered otherwise", name)
		}
		return value
	})
	return out, err
}

func (t *Target) do(ctx context.Context, method, url string, header http.Header, body string) (int, http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header = header
	resp, err := t.Client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, got, err
}

// token logs the user in, once.
func (t *Target) token(ctx context.Context, name string) (string, error) {
	if t.tokens[name] != "" {
		return t.tokens[name], nil
	}
	u, ok := t.Users[name]
	if !ok {
		return "", fmt.Errorf("there is no user %q", name)
	}
	body, err := json.Marshal(u.login())
	if err != nil {
		return "", err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	status, got, _, err := t.do(ctx, http.MethodPost, t.Endpoints["identity"]+"/v3/auth/tokens", header, string(body))
	if err != nil || status != http.StatusCreated {
		return "", fmt.Errorf("logging %s in: status %d, %w", name, status, err)
	}
	if t.tokens == nil {
		t.tokens = map[string]string{}
	}
	t.tokens[name] = got.Get("X-Subject-Token")
	return t.tokens[name], nil
}

func (u User) login() any {
	type m = map[string]any
	domain := m{"id": "default"}
	return m{"auth": m{
		"identity": m{"methods": []string{"password"}, "password": m{"user": m{"name": u.Name, "password": u.Password, "domain": domain}}},
		"scope":    m{"project": m{"name": u.Project, "domain": domain}},
	}}
}

var index = regexp.MustCompile(`^\d+$`)

// Lookup returns what is at a path like "port.fixed_ips.0.ip_address", or "".
func Lookup(body []byte, path string) string {
	value, _ := decode(body)
	for _, key := range strings.Split(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			value = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if !index.MatchString(key) || err != nil || i >= len(v) {
				return ""
			}
			value = v[i]
		default:
			return ""
		}
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
