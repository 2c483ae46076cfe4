// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// fixture is a Keystone whose clock stands still until a test moves it.
type fixture struct {
	*keystone.Service
	t   *testing.T
	now time.Time
}

const lifetime = time.Hour

func newKeystone(t *testing.T) *fixture {
	k := &fixture{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	n := 0
	k.Service = keystone.New(keystone.Options{
		URL: "http://cloud/identity", Password: "secret", Lifetime: lifetime, Now: func() time.Time { return k.now },
		NewID:    func() string { n++; return fmt.Sprintf("%08x-0000-4000-8000-000000000000", n) },
		Services: []keystone.Catalog{{Type: "network", Name: "neutron", URL: "http://cloud/networking"}},
	})
	return k
}

// do sends a request; header is "Name: value".
func (k *fixture) do(method, path, body string, header ...string) (*http.Response, string) {
	k.t.Helper()
	r := httptest.NewRequestWithContext(k.t.Context(), method, path, strings.NewReader(body))
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	k.ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// want sends a request and checks the status and a part of the answer, which it returns.
func (k *fixture) want(status int, part, method, path, body string, header ...string) string {
	k.t.Helper()
	answer, text := k.do(method, path, body, header...)
	if answer.StatusCode != status || !strings.Contains(text, part) {
		k.t.Errorf("%s %s %s\ngot  %d %s\nwant %d with %s", method, path, body, answer.StatusCode, text, status, part)
	}
	return text
}

func byPassword(user, password, scope string) string {
	body := fmt.Sprintf(`{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":%q,"domain":{"name":"Default"},"password":%q}}}`, user, password)
	if scope != "" {
		body += `,"scope":` + scope
	}
	return body + "}}"
}

func inProject(name string) string {
	return fmt.Sprintf(`{"project":{"name":%q,"domain":{"id":"default"}}}`, name)
}

// token logs in and returns the header with the token.
func (k *fixture) token(body string) string {
	k.t.Helper()
	answer, text := k.do(http.MethodPost, "/v3/auth/tokens", body)
	if answer.StatusCode != http.StatusCreated {
		k.t.Fatalf("logging in with %s: %d %s", body, answer.StatusCode, text)
	}
	return "X-Auth-Token: " + answer.Header.Get("X-Subject-Token")
}

func id(header string) string { _, v, _ := strings.Cut(header, ": "); return v }

// The messages are those that keystone 22.0.2 was observed to answer with.
func TestIssue(t *testing.T) {
	const unauthorized = `"The request you have made requires authentication."`
	old := newKeystone(t).token(byPassword("admin", "secret", ""))
	for name, tc := range map[string]struct {
		body   string
		status int
		part   string
	}{
		"unscoped":          {byPassword("admin", "secret", ""), 201, `"methods":["password"]`},
		"project by name":   {byPassword("kuryr", "secret", inProject("k8s")), 201, `"name":"neutron"`},
		"system":            {byPassword("admin", "secret", `{"system":{"all":true}}`), 201, `"system":{"all":true}`},
		"said unscoped":     {byPassword("admin", "secret", `"unscoped"`), 201, `"token"`},
		"token":             {`{"auth":{"identity":{"methods":["token"],"token":{"id":"` + id(old) + `"}},"scope":` + inProject("admin") + `}}`, 201, `"methods":["token","password"]`},
		"wrong password":    {byPassword("admin", "guess", ""), 401, unauthorized},
		"unknown user":      {byPassword("nobody", "secret", ""), 401, unauthorized},
		"foreign project":   {byPassword("kuryr", "secret", inProject("admin")), 401, unauthorized},
		"unknown project":   {byPassword("kuryr", "secret", inProject("none")), 401, unauthorized},
		"domain, no role":   {byPassword("admin", "secret", `{"domain":{"id":"default"}}`), 401, unauthorized},
		"no method":         {`{"auth":{"identity":{"methods":[]}}}`, 401, unauthorized},
		"another method":    {`{"auth":{"identity":{"methods":["magic"],"magic":{}}}}`, 401, `"Attempted to authenticate with an unsupported method."`},
		"unknown token":     {`{"auth":{"identity":{"methods":["token"],"token":{"id":"x"}}}}`, 404, `"Could not recognize Fernet token"`},
		"empty scope":       {byPassword("admin", "secret", `{}`), 400, "Expecting to find system, project, domain, OS-TRUST:trust or unscoped in scope."},
		"project, nowhere":  {byPassword("admin", "secret", `{"project":{"name":"admin"}}`), 400, "Expecting to find domain in project."},
		"project, nameless": {byPassword("admin", "secret", `{"project":{}}`), 400, "Invalid input for field scope/project: id or name must be present."},
		"no domain":         {`{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":"admin","password":"secret"}}}}}`, 400, "Expecting to find domain in user."},
		"no user":           {`{"auth":{"identity":{"methods":["password"],"password":{}}}}`, 400, "Expecting to find user in None."},
		"no proof":          {`{"auth":{"identity":{"methods":["password"]}}}`, 400, "Expecting to find password in identity."},
		"name is a number":  {`{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":5}}}}}`, 400, "Invalid input for field 'identity/password/user/name': 5 is not of type 'string'"},
		"methods is a word": {`{"auth":{"identity":{"methods":"password"}}}`, 400, "Invalid input for field 'identity/methods': 'password' is not of type 'array'"},
		"no methods":        {`{"auth":{"identity":{}}}`, 400, "Invalid input for field 'identity': 'methods' is a required property"},
		"no identity":       {`{"auth":{}}`, 400, `"'identity' is a required property"`},
		"no auth":           {`{}`, 400, "Expecting to find auth in request body."},
		"a list":            {`[]`, 400, "Expecting to find valid JSON in request body."},
		"half of it":        {`{"auth":`, 400, "Expecting to find valid JSON in request body."},
		"credential, gone":  {`{"auth":{"identity":{"methods":["application_credential"],"application_credential":{"id":"x","secret":"y"}}}}`, 404, `"Could not find Application Credential: x."`},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeystone(t)
			k.token(byPassword("admin", "secret", "")) // the same as old
			k.want(tc.status, tc.part, http.MethodPost, "/v3/auth/tokens", tc.body)
		})
	}
}

func TestCaller(t *testing.T) {
	k := newKeystone(t)
	who, ok := k.Authenticate(id(k.token(byPassword("tenant", "secret", inProject("k8s")))))
	if !ok || who.Admin() || who.ProjectName != "k8s" || who.UserName != "tenant" || !who.Has("member") || !who.Has("reader") {
		t.Errorf("tenant is %+v, %v", who, ok)
	}
	if who, ok := k.Authenticate(id(k.token(byPassword("kuryr", "secret", inProject("k8s"))))); !ok || !who.Admin() {
		t.Errorf("kuryr is %+v, %v", who, ok)
	}
	if who, ok := k.Authenticate("made up"); ok {
		t.Errorf("a made-up token is %+v", who)
	}
}

func TestTokensEnd(t *testing.T) {
	k := newKeystone(t)
	short, revoked := k.token(byPassword("admin", "secret", "")), k.token(byPassword("admin", "secret", ""))
	k.now = k.now.Add(lifetime - time.Second)
	late := k.token(byPassword("admin", "secret", ""))
	valid := func(when, header string, want bool) {
		t.Helper()
		if _, ok := k.Authenticate(id(header)); ok != want {
			t.Errorf("%s: valid is %v, want %v", when, ok, want)
		}
	}
	valid("a second before its end", short, true)
	k.now = k.now.Add(time.Second)
	valid("at its end", short, false)
	k.want(401, "requires authentication", http.MethodGet, "/v3/auth/projects", "", short)
	valid("a newer one", late, true)
	k.want(404, "", http.MethodDelete, "/v3/auth/tokens", "", late, "X-Subject-Token: "+id(revoked))
	another := k.token(byPassword("admin", "secret", ""))
	k.want(204, "", http.MethodDelete, "/v3/auth/tokens", "", late, "X-Subject-Token: "+id(another))
	valid("revoked", another, false)
	all := k.token(byPassword("admin", "secret", ""))
	k.Revoke(id(late))
	valid("revoked from inside", late, false)
	k.RevokeAll()
	valid("all revoked", all, false)
}

// A token that was made from another one expires when that one does.
func TestRescopedTokenLivesNoLonger(t *testing.T) {
	k := newKeystone(t)
	old := k.token(byPassword("admin", "secret", ""))
	k.now = k.now.Add(lifetime / 2)
	text := k.want(201, "", http.MethodPost, "/v3/auth/tokens",
		`{"auth":{"identity":{"methods":["token"],"token":{"id":"`+id(old)+`"}},"scope":`+inProject("admin")+`}}`)
	if !strings.Contains(text, `"expires_at":"2026-01-02T04:04:05.000000Z"`) {
		t.Errorf("it does not expire with the old one: %s", text)
	}
}

func TestApplicationCredential(t *testing.T) {
	k := newKeystone(t)
	member := k.token(byPassword("tenant", "secret", inProject("k8s")))
	who, _ := k.Authenticate(id(member))
	path := "/v3/users/" + who.UserID + "/application_credentials"
	made := k.want(201, `"secret":"s1"`, http.MethodPost, path, `{"application_credential":{"name":"ac1","secret":"s1"}}`, member)
	var ac struct {
		C struct{ ID string } `json:"application_credential"`
	}
	if err := json.Unmarshal([]byte(made), &ac); err != nil {
		t.Fatal(err)
	}
	k.want(409, "Duplicate entry found with name ac1.", http.MethodPost, path, `{"application_credential":{"name":"ac1"}}`, member)
	k.want(400, "'name' is a required property", http.MethodPost, path, `{"application_credential":{}}`, member)
	k.want(400, "unassigned role", http.MethodPost, path, `{"application_credential":{"name":"b","roles":[{"name":"admin"}]}}`, member)
	k.want(400, "Timestamp not in expected format.", http.MethodPost, path, `{"application_credential":{"name":"b","expires_at":"soon"}}`, member)
	k.want(400, "must not be before now.", http.MethodPost, path, `{"application_credential":{"name":"b","expires_at":"2001-01-01T00:00:00"}}`, member)
	k.want(403, "identity:create_application_credential", http.MethodPost, path, `{"application_credential":{"name":"b"}}`, k.token(byPassword("admin", "secret", inProject("admin"))))

	login := `{"auth":{"identity":{"methods":["application_credential"],"application_credential":{%s,"secret":"s1"}}%s}}`
	byID, byName := fmt.Sprintf(`"id":%q`, ac.C.ID), `"name":"ac1","user":{"name":"tenant","domain":{"name":"Default"}}`
	token := k.token(fmt.Sprintf(login, byID, ""))
	k.token(fmt.Sprintf(login, byName, ""))
	k.want(401, "cannot request a scope", http.MethodPost, "/v3/auth/tokens", fmt.Sprintf(login, byID, `,"scope":`+inProject("k8s")))
	k.want(401, "", http.MethodPost, "/v3/auth/tokens", strings.Replace(fmt.Sprintf(login, byID, ""), "s1", "s2", 1))
	k.want(403, "managing additional application credentials", http.MethodPost, path, `{"application_credential":{"name":"c"}}`, token)
	if who, ok := k.Authenticate(id(token)); !ok || who.ProjectName != "k8s" || !who.Has("member") {
		t.Errorf("the credential stands for %+v, %v", who, ok)
	}
	k.want(204, "", http.MethodDelete, path+"/"+ac.C.ID, "", member)
	k.want(404, "Could not find Application Credential", http.MethodDelete, path+"/"+ac.C.ID, "", member)
	if _, ok := k.Authenticate(id(token)); ok {
		t.Error("a token of a credential that is gone is still valid")
	}
}

// Projects, users and roles are created and deleted, which changes the rights of tokens.
func TestProjectsUsersRoles(t *testing.T) {
	k := newKeystone(t)
	admin, member := k.token(byPassword("admin", "secret", inProject("admin"))), k.token(byPassword("tenant", "secret", inProject("k8s")))
	k.want(403, "identity:create_project.", http.MethodPost, "/v3/projects", `{"project":{"name":"p"}}`, member)
	k.want(403, "identity:list_users.", http.MethodGet, "/v3/users", "", member)
	p := one(t, k.want(201, `"parent_id":"default"`, http.MethodPost, "/v3/projects", `{"project":{"name":"p"}}`, admin), "project")
	k.want(409, "it is not permitted to have two projects", http.MethodPost, "/v3/projects", `{"project":{"name":"p"}}`, admin)
	u := one(t, k.want(201, "", http.MethodPost, "/v3/users", `{"user":{"name":"u","password":"pw"}}`, admin), "user")
	k.want(409, "Duplicate entry found with name u at domain ID default.", http.MethodPost, "/v3/users", `{"user":{"name":"u"}}`, admin)
	k.want(400, "'' is too short", http.MethodPost, "/v3/users", `{"user":{"name":""}}`, admin)

	k.want(401, "", http.MethodPost, "/v3/auth/tokens", byPassword("u", "pw", inProject("p")))
	var roles struct{ Roles []struct{ ID string } }
	if err := json.Unmarshal([]byte(k.want(200, "", http.MethodGet, "/v3/roles?name=member", "", admin)), &roles); err != nil || len(roles.Roles) != 1 {
		t.Fatalf("looking for one role: %v, %v", roles, err)
	}
	grant := "/v3/projects/" + p + "/users/" + u + "/roles/" + roles.Roles[0].ID
	k.want(404, "", http.MethodHead, grant, "", admin)
	k.want(204, "", http.MethodPut, grant, "", admin)
	k.want(204, "", http.MethodHead, grant, "", admin)
	k.want(404, "Could not find user: nope.", http.MethodPut, strings.Replace(grant, u, "nope", 1), "", admin)
	token := k.token(byPassword("u", "pw", inProject("p")))
	k.want(200, `"name":"p"`, http.MethodGet, "/v3/auth/projects", "", token)
	k.want(200, `"name":"u"`, http.MethodGet, "/v3/users/"+u, "", token)

	k.want(204, "", http.MethodDelete, grant, "", admin)
	k.want(404, "Could not find role assignment", http.MethodDelete, grant, "", admin)
	if _, ok := k.Authenticate(id(token)); ok {
		t.Error("a token is valid although its role is gone")
	}
	k.want(200, `"extra":{}`, http.MethodPatch, "/v3/projects/"+p, `{"project":{"enabled":false}}`, admin)
	k.want(204, "", http.MethodDelete, "/v3/users/"+u, "", admin)
	k.want(404, "Could not find user", http.MethodGet, "/v3/users/"+u, "", admin)
	k.want(204, "", http.MethodDelete, "/v3/projects/"+p, "", admin)
}

func one(t *testing.T, text, key string) string {
	t.Helper()
	var body map[string]struct{ ID string }
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		t.Fatal(err)
	}
	return body[key].ID
}

func TestDiscovery(t *testing.T) {
	k := newKeystone(t)
	k.want(300, `"href":"http://cloud/identity/v3/"`, http.MethodGet, "/", "")
	k.want(200, `"id":"v3.14"`, http.MethodGet, "/v3", "")
	k.want(200, `"version"`, http.MethodGet, "/v3/", "")
	k.want(404, "<title>404 Not Found</title>", http.MethodGet, "/v2.0", "")
	k.want(405, "The method is not allowed for the requested URL.", http.MethodPut, "/v3/auth/tokens", "{}")
	k.want(401, "requires authentication", http.MethodGet, "/v3/projects", "")
}

// No input from any caller leads to a panic or a 5xx.
func FuzzServe(f *testing.F) {
	for _, path := range []string{"/v3/auth/tokens", "/v3/users", "/v3/projects/x", "/v3/users/x/application_credentials", "/v3/role_assignments?user.id=x", "/v3/projects/x/users/y/roles/z"} {
		f.Add("POST", path, byPassword("admin", "secret", inProject("admin")))
		f.Add("PATCH", path, `{"project":{"name":null,"tags":[1]},"user":{"options":{"a":1}},"application_credential":{"name":"x","roles":[{}]}}`)
	}
	f.Add("POST", "/v3/auth/tokens", `{"auth":{"identity":{"methods":["application_credential","token","password"],"token":{"id":"x"},"password":{"user":null},"application_credential":{"name":"n","user":{"id":1}}},"scope":{"system":0}}}`)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://x", strings.NewReader(body))
		if err != nil {
			return
		}
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
		k := newKeystone(t)
		token := k.token(byPassword("admin", "secret", inProject("admin")))
		r.Header.Set("X-Auth-Token", id(token))
		w := httptest.NewRecorder()
		k.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s %s %s: %d %s", method, path, body, w.Code, w.Body)
		}
	})
}
