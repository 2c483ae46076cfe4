// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package recorded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Target is a cloud that scenarios run on, with its own project for them.
type Target struct {
	Endpoints map[string]string // identity, network, load-balancer → URL without a version
	Users     map[string]User   // kuryr: admin of Project; tenant: its member; admin: of another one
	Vars      map[string]string // set before the first step: project, admin_project, host…
	Client    *http.Client
	Patience  time.Duration // how long an "until" waits
	Rest      time.Duration // how long a "rest" waits

	// Fault changes the cloud in a way that no API request can. It runs before the step that asks
	// for it. Variables are filled in. If it is nil, this cloud supports no faults.
	//   lose-member POOL MEMBER     the provider forgets a member that Octavia has
	//   set-status BALANCER STATUS  in Octavia's database, of the load balancer alone
	Fault func(ctx context.Context, words []string) error

	tokens map[string]string
}

// User is the credentials of a user. All users are in the domain "default".
type User struct {
	Name, Password, Project string
}

// Result is the answer to a step, in normal form.
type Result struct {
	Step *Step
	Got  string
	Err  error // the request could not be sent
}

// A request with "until" is repeated after a pause, for a limited time.
const (
	patience = 90 * time.Second // on a real cloud
	// OVN's provider of 2025.1 shows a load balancer as ACTIVE after the first of several members, and
	// needs seconds for each of them.
	rest  = 15 * time.Second
	pause = 100 * time.Millisecond
)

// run is one run of a scenario.
type run struct {
	*Target
	scenario *Scenario
	vars     map[string]string
}

// Run sends all requests of the scenario and returns the answers, one for each step.
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
	n := &normal{
		literals: literals(r.scenario.source()), vars: r.vars, endpoints: r.Endpoints,
		ignore: append(slices.Clone(r.scenario.Ignore), s.Ignore...), ordered: s.Ordered,
	}
	if err := r.fault(ctx, s); err != nil {
		return "", err
	}
	if s.Rest {
		time.Sleep(r.Rest)
	}
	if s.Race > 0 {
		return r.race(ctx, s, n)
	}
	a, err := r.ask(ctx, s)
	for end := time.Now().Add(r.Patience); err == nil && !met(s, a.body) && time.Now().Before(end); {
		time.Sleep(pause)
		a, err = r.ask(ctx, s)
	}
	if err != nil {
		return "", err
	}
	err = r.save(s, a)
	if s.Quiet && a.status < 300 {
		return strconv.Itoa(a.status), err
	}
	return n.answer(a.status, a.header, a.body), err
}

// fault runs the fault that the step asks for.
func (r *run) fault(ctx context.Context, s *Step) error {
	if len(s.Fault) == 0 {
		return nil
	}
	if r.Fault == nil {
		return fmt.Errorf("fault %q: this cloud cannot be given faults", s.Fault)
	}
	words := slices.Clone(s.Fault)
	for i, word := range words {
		var err error
		if words[i], err = r.expand(word); err != nil {
			return err
		}
	}
	return r.Fault(ctx, words)
}

// save stores the values that later steps use.
func (r *run) save(s *Step, a answer) error {
	var errs error
	for _, save := range s.Save {
		value := Lookup(a.body, save[1])
		if save[1] == "X-Subject-Token" {
			value = a.header.Get(save[1])
		}
		if value == "" {
			errs = errors.Join(errs, fmt.Errorf("the answer has no %s: status %d, %s", save[1], a.status, a.body))
			continue
		}
		r.vars[save[0]] = value
	}
	return errs
}

// race sends the request several times in parallel. $i is the number of the request. It returns
// the distinct refusals.
func (r *run) race(ctx context.Context, s *Step, n *normal) (string, error) {
	var (
		wg      sync.WaitGroup
		answers = make([]answer, s.Race)
		errs    = make([]error, s.Race)
	)
	for i := range s.Race {
		r.vars["i"] = strconv.Itoa(i)
		req, err := r.request(ctx, s)
		if err != nil {
			return "", err
		}
		wg.Go(func() { answers[i], errs[i] = r.send(ctx, req) })
	}
	wg.Wait()
	delete(r.vars, "i")
	var refused []string
	for _, a := range answers {
		if a.status >= 300 {
			refused = append(refused, n.answer(a.status, a.header, a.body))
		}
	}
	slices.Sort(refused)
	return strings.Join(slices.Compact(refused), "\n"), errors.Join(errs...)
}

// met reports whether the step's condition holds for the answer.
func met(s *Step, body []byte) bool {
	return !slices.ContainsFunc(s.Until, func(u [2]string) bool { return Lookup(body, u[0]) != u[1] })
}

// call is a request with its variables filled in.
type call struct {
	method, url, body string
	header            http.Header
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (r *run) ask(ctx context.Context, s *Step) (answer, error) {
	c, err := r.request(ctx, s)
	if err != nil {
		return answer{}, err
	}
	return r.send(ctx, c)
}

func (r *run) request(ctx context.Context, s *Step) (call, error) {
	path, err := r.expand(s.Path)
	if err != nil {
		return call{}, err
	}
	body, err := r.expand(s.Body)
	if err != nil {
		return call{}, err
	}
	c := call{method: s.Method, url: r.Endpoints[s.Service] + path, body: body, header: http.Header{}}
	c.header.Set("Accept", "application/json") // as all clients do
	if body != "" {
		c.header.Set("Content-Type", "application/json")
	}
	for _, h := range s.Header {
		value, err := r.expand(h[1])
		if err != nil {
			return call{}, err
		}
		c.header.Set(h[0], value)
	}
	if _, own := c.header["X-Auth-Token"]; s.User == "nobody" || own {
		return c, nil
	}
	token, err := r.token(ctx, s.User)
	c.header.Set("X-Auth-Token", token)
	return c, err
}

// expand replaces variables by their values.
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

// send sends the request.
func (t *Target) send(ctx context.Context, c call) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.method, c.url, strings.NewReader(c.body))
	if err != nil {
		return answer{}, err
	}
	req.Header = c.header
	resp, err := t.Client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: got}, err
}

// token returns the user's token. It logs in once.
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
	a, err := t.send(ctx, call{
		method: http.MethodPost, url: t.Endpoints["identity"] + "/v3/auth/tokens",
		header: http.Header{"Content-Type": {"application/json"}}, body: string(body),
	})
	if err == nil && a.status != http.StatusCreated {
		err = fmt.Errorf("status %d, %s", a.status, a.body)
	}
	if err != nil {
		return "", fmt.Errorf("logging %s in: %w", name, err)
	}
	if t.tokens == nil {
		t.tokens = map[string]string{}
	}
	t.tokens[name] = a.header.Get("X-Subject-Token")
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

// Lookup returns the value at a path like "port.fixed_ips.0.ip_address", or "".
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
