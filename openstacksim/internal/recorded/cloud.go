// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package recorded

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Cloud is a real cloud with two projects made for the scenarios. Close removes the projects and
// everything in them.
type Cloud struct {
	Target
	admin    *Target  // the cloud's own admin, who makes the projects
	projects []string // IDs
	users    []string
}

// roles are the roles that the projects' users get, if the cloud has them. An operator gives
// Octavia's users load-balancer_member.
var roles = map[string][]string{
	"kuryr":  {"admin", "member", "load-balancer_member"},
	"tenant": {"member", "load-balancer_member"},
	"admin":  {"admin"},
}

// Open logs in with an entry of a clouds.yaml, whose user must be admin, and makes the projects
// and users. Close must be called even after an error.
func Open(ctx context.Context, file, name string) (*Cloud, error) {
	user, url, err := entry(file, name)
	if err != nil {
		return nil, err
	}
	root := strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/v3")
	c := &Cloud{admin: &Target{
		Endpoints: map[string]string{"identity": root},
		Users:     map[string]User{"own": user},
		Client:    &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}},
	}}
	if err := c.admin.catalog(ctx); err != nil {
		return c, err
	}
	c.Target = Target{Endpoints: c.admin.Endpoints, Client: c.admin.Client, Users: map[string]User{}, Vars: map[string]string{}, Patience: patience, Rest: rest}
	if err := c.populate(ctx); err != nil {
		return c, err
	}
	c.Vars["host"], err = c.admin.host(ctx)
	return c, err
}

// Existing returns a cloud without other users, such as a simulator. Its users are the entries
// kuryr, tenant and admin of a clouds.yaml. Nothing is removed.
func Existing(ctx context.Context, file string) (*Target, error) {
	t := &Target{Endpoints: map[string]string{}, Users: map[string]User{}, Vars: map[string]string{}, Client: &http.Client{},
		Patience: 5 * time.Second}
	for _, name := range []string{"kuryr", "tenant", "admin"} {
		user, url, err := entry(file, name)
		if err != nil {
			return nil, err
		}
		t.Endpoints["identity"] = strings.TrimSuffix(url, "/v3")
		t.Users[name] = user
		if err := t.identify(ctx, name); err != nil {
			return nil, err
		}
	}
	t.Users["own"] = t.Users["kuryr"]
	if err := t.catalog(ctx); err != nil {
		return nil, err
	}
	t.Vars["host"], _ = t.host(ctx)
	return t, nil
}

// identify looks up the IDs of a user and of its project.
func (t *Target) identify(ctx context.Context, name string) error {
	token, err := t.token(ctx, name)
	if err != nil {
		return err
	}
	a, err := t.send(ctx, call{
		method: "GET", url: t.Endpoints["identity"] + "/v3/auth/tokens",
		header: http.Header{"X-Auth-Token": {token}, "X-Subject-Token": {token}},
	})
	project := "project"
	if name == "admin" {
		project = "admin_project"
	}
	t.know(name, Lookup(a.body, "token.user.id"), project, Lookup(a.body, "token.project.id"))
	return err
}

// know sets the variables of a user.
func (t *Target) know(name, id, project, projectID string) {
	u := t.Users[name]
	t.Vars[name+"_user"], t.Vars[name+"_name"], t.Vars[name+"_password"] = id, u.Name, u.Password
	t.Vars[project], t.Vars[project+"_name"] = projectID, u.Project
}

// entry reads a clouds.yaml of the only form needed here: user and password.
func entry(file, name string) (User, string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return User{}, "", err
	}
	var all struct {
		Clouds map[string]struct {
			Auth struct {
				URL      string `yaml:"auth_url"`
				Username string `yaml:"username"`
				Password string `yaml:"password"`
				Project  string `yaml:"project_name"`
			} `yaml:"auth"`
		} `yaml:"clouds"`
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		return User{}, "", fmt.Errorf("reading %s: %w", file, err)
	}
	c, ok := all.Clouds[name]
	if !ok || c.Auth.Password == "" {
		return User{}, "", fmt.Errorf("%s has no entry %q with a password", file, name)
	}
	return User{Name: c.Auth.Username, Password: c.Auth.Password, Project: c.Auth.Project}, c.Auth.URL, nil
}

// catalog looks up the URLs of the other services.
func (t *Target) catalog(ctx context.Context) error {
	var got struct {
		Catalog []struct {
			Type      string `json:"type"`
			Endpoints []struct {
				Interface string `json:"interface"`
				URL       string `json:"url"`
			} `json:"endpoints"`
		} `json:"catalog"`
	}
	if err := t.call(ctx, "GET", "identity", "/v3/auth/catalog", nil, &got); err != nil {
		return err
	}
	for _, service := range got.Catalog {
		for _, e := range service.Endpoints {
			if _, known := t.Endpoints[service.Type]; !known && e.Interface == "public" {
				t.Endpoints[service.Type] = strings.TrimSuffix(e.URL, "/")
			}
		}
	}
	return nil
}

// call sends a request as the only user, and fails unless it succeeds.
func (t *Target) call(ctx context.Context, method, service, path string, in, out any) error {
	token, err := t.token(ctx, "own")
	if err != nil {
		return err
	}
	body := ""
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = string(text)
	}
	a, err := t.send(ctx, call{
		method: method, url: t.Endpoints[service] + path, body: body,
		header: http.Header{"X-Auth-Token": {token}, "Content-Type": {"application/json"}},
	})
	switch {
	case err != nil:
		return err
	case a.status >= 300:
		return &statusError{what: method + " " + path, status: a.status, body: a.body}
	case out != nil:
		return json.Unmarshal(a.body, out)
	}
	return nil
}

type statusError struct {
	what   string
	status int
	body   []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: status %d, %s", e.what, e.status, e.body)
}

type object = map[string]any

// populate makes a project with the users kuryr and tenant, and another project with the user
// admin.
func (c *Cloud) populate(ctx context.Context) error {
	mark := make([]byte, 4)
	_, _ = rand.Read(mark)
	suffix := "-simtest-" + hex.EncodeToString(mark)
	known, err := c.roles(ctx)
	if err != nil {
		return err
	}
	for _, user := range []string{"kuryr", "tenant", "admin"} {
		project := "project"
		if user == "admin" {
			project = "admin_project"
		}
		if c.Vars[project] == "" {
			id, err := c.make(ctx, "project", object{"name": project + suffix, "domain_id": "default"})
			if err != nil {
				return err
			}
			c.projects, c.Vars[project] = append(c.projects, id), id
		}
		if err := c.enrol(ctx, user, suffix, project, known); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cloud) enrol(ctx context.Context, user, suffix, project string, known map[string]string) error {
	u := User{Name: user + suffix, Password: "secret" + suffix, Project: project + suffix}
	id, err := c.make(ctx, "user", object{"name": u.Name, "password": u.Password, "domain_id": "default"})
	if err != nil {
		return err
	}
	c.users = append(c.users, id)
	c.Users[user] = u
	c.know(user, id, project, c.Vars[project])
	for _, role := range roles[user] {
		if known[role] == "" {
			continue
		}
		path := "/v3/projects/" + c.Vars[project] + "/users/" + id + "/roles/" + known[role]
		if err := c.admin.call(ctx, "PUT", "identity", path, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cloud) make(ctx context.Context, kind string, in object) (string, error) {
	var out map[string]struct {
		ID string `json:"id"`
	}
	err := c.admin.call(ctx, "POST", "identity", "/v3/"+kind+"s", object{kind: in}, &out)
	return out[kind].ID, err
}

func (c *Cloud) roles(ctx context.Context) (map[string]string, error) {
	var got struct {
		Roles []struct{ ID, Name string } `json:"roles"`
	}
	err := c.admin.call(ctx, "GET", "identity", "/v3/roles", nil, &got)
	known := map[string]string{}
	for _, r := range got.Roles {
		known[r.Name] = r.ID
	}
	return known, err
}

// host returns a host that ports can be bound to.
func (t *Target) host(ctx context.Context) (string, error) {
	var got struct {
		Agents []struct {
			Host  string `json:"host"`
			Alive bool   `json:"alive"`
		} `json:"agents"`
	}
	if err := t.call(ctx, "GET", "network", "/v2.0/agents", nil, &got); err != nil {
		return "", err
	}
	for _, a := range got.Agents {
		if a.Alive {
			return a.Host, nil
		}
	}
	return "", errors.New("no agent is alive: ports cannot be bound")
}

// Close removes everything in the projects, then the users and the projects.
func (c *Cloud) Close(ctx context.Context) error {
	err := c.Empty(ctx)
	for _, id := range c.users {
		err = errors.Join(err, c.admin.call(ctx, "DELETE", "identity", "/v3/users/"+id, nil, nil))
	}
	for _, id := range c.projects {
		err = errors.Join(err, c.admin.call(ctx, "DELETE", "identity", "/v3/projects/"+id, nil, nil))
	}
	return err
}

// Empty removes everything in the projects, so that the next scenario finds them empty.
func (c *Cloud) Empty(ctx context.Context) error {
	for end := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		err := c.sweep(ctx)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
