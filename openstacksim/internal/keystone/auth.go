// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
)

// login is what a token request has proved so far.
type login struct {
	methods    []string
	user       *user
	credential *credential
	old        *token // of method token
	scope      scope
}

type scope struct {
	project, domain string
	system          bool
	unscoped        bool // the request asks for an unscoped token by name
}

// issue answers POST /v3/auth/tokens. keystone 22.0.2: api/auth.py, auth/core.py. The checks run
// in Keystone's order, because the order decides which fault the client sees.
func (s *Service) issue(r *request) (reply, *fault) {
	l, f := s.logIn(r.body)
	if f != nil {
		return reply{}, f
	}
	s.settle(l)
	t := s.newToken(l)
	if !t.unscoped() && len(s.rolesOf(t)) == 0 {
		return reply{}, unauthorized()
	}
	s.sweep()
	s.tokens[t.id] = t
	_, bare := r.query["nocatalog"]
	return reply{http.StatusCreated, s.render(t, !bare), http.Header{"X-Subject-Token": {t.id}}}, nil
}

// sweep drops expired tokens. It runs once in 1024 new tokens.
func (s *Service) sweep() {
	if len(s.tokens)%1024 != 1023 {
		return
	}
	now := s.now()
	for id, t := range s.tokens {
		if !now.Before(t.until) {
			delete(s.tokens, id)
		}
	}
}

func (s *Service) newToken(l *login) *token {
	now := s.now()
	t := &token{
		id: s.tokenID(), methods: l.methods, user: l.user.ID, audits: []string{s.auditID()},
		project: l.scope.project, domain: l.scope.domain, system: l.scope.system,
		issued: now, until: now.Add(s.lifetime),
	}
	if l.credential != nil {
		t.credential = l.credential.ID
		if e := l.credential.expires; !e.IsZero() && e.Before(t.until) {
			t.until = e
		}
	}
	if l.old != nil { // a token expires no later than the token it was made from
		t.until = l.old.until
		t.audits = append(t.audits, l.old.audits[len(l.old.audits)-1])
		for _, m := range l.old.methods {
			if !slices.Contains(t.methods, m) {
				t.methods = append(t.methods, m)
			}
		}
	}
	return t
}

// tokenID has the form of a Fernet token, whose first bytes are its version and the time. Clients
// do not read them.
func (s *Service) tokenID() string {
	var b []byte
	for range 5 {
		sum := sha256.Sum256([]byte(s.newID()))
		b = append(b, sum[:]...)
	}
	return "gAAAAAB" + base64.RawURLEncoding.EncodeToString(b)[:177]
}

func (s *Service) auditID() string {
	sum := sha256.Sum256([]byte(s.newID()))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

func (s *Service) logIn(body map[string]any) (*login, *fault) {
	given, has := body["auth"]
	if given != nil {
		if f := tokenSchema.check(given); f != nil {
			return nil, f
		}
	}
	auth := object(given)
	if !has || len(auth) == 0 {
		return nil, missing("auth", "request body")
	}
	identity := object(auth["identity"])
	l := &login{methods: []string{}}
	for _, m := range list(identity["methods"]) {
		if m, ok := m.(string); ok && !slices.Contains(l.methods, m) {
			l.methods = append(l.methods, m)
		}
	}
	if f := named(auth, identity); f != nil {
		return nil, f
	}
	if f := knownMethods(l.methods, identity); f != nil {
		return nil, f
	}
	if f := s.readScope(l, auth, identity); f != nil {
		return nil, f
	}
	for _, m := range l.methods {
		if f := s.show(l, m, object(identity[m])); f != nil {
			return nil, f
		}
	}
	if l.user == nil { // the request used no method
		return nil, unauthorized()
	}
	return l, nil
}

// named checks that each user, project and domain has a name or an ID. keystone 22.0.2:
// auth/schema.py
func named(auth, identity map[string]any) *fault {
	at := func(path string, in map[string]any, key string) *fault {
		v, has := in[key]
		if !has || v == nil {
			return nil
		}
		o := object(v)
		if o["id"] == nil && o["name"] == nil {
			return refuse(http.StatusBadRequest, "Invalid input for field %s: id or name must be present.", path)
		}
		return nil
	}
	password, scope := object(identity["password"]), object(auth["scope"])
	user, project := object(password["user"]), object(scope["project"])
	for _, f := range []*fault{
		at("identity/password/user", password, "user"),
		at("identity/password/user/domain", user, "domain"),
		at("scope/project", scope, "project"),
		at("scope/project/domain", project, "domain"),
		at("scope/domain", scope, "domain"),
	} {
		if f != nil {
			return f
		}
	}
	return nil
}

// allMethods are the methods of Keystone's default configuration. Keystone lists them in its
// answer to a request with another method. Observed on keystone 22.0.2. The simulator does not
// implement external, oauth1 and mapped.
var allMethods = []string{"external", "password", "token", "oauth1", "mapped", "application_credential"}

func knownMethods(methods []string, identity map[string]any) *fault {
	for _, m := range methods {
		if _, has := identity[m]; !has {
			return missing(m, "identity")
		}
	}
	for _, m := range methods {
		if !slices.Contains(allMethods, m) {
			f := refuse(http.StatusUnauthorized, "Attempted to authenticate with an unsupported method.")
			f.with = map[string]any{"identity": map[string]any{"methods": allMethods}}
			return f
		}
	}
	return nil
}

// show checks the proof of one method and stores its user in l.
func (s *Service) show(l *login, method string, proof map[string]any) *fault {
	var u *user
	switch method {
	case "password":
		known, f := s.userOf(proof)
		if f != nil {
			return f
		}
		if p, _ := object(proof["user"])["password"].(string); p == "" || p != known.password {
			return unauthorized()
		}
		u = known
	case "token":
		id, _ := proof["id"].(string)
		t, f := s.look(id)
		if f != nil {
			return f
		}
		// Such a token may not be exchanged for another: keystone 22.0.2, auth/plugins/token.py
		if t.credential != "" {
			return forbidden("rescope a token made by an application credential")
		}
		l.old, u = t, s.users.byID[t.user]
	case "application_credential":
		secret, _ := proof["secret"].(string)
		c := l.credential
		if c == nil || secret != c.secret || !c.expires.IsZero() && !s.now().Before(c.expires) {
			return unauthorized()
		}
		u = s.users.byID[c.UserID]
	}
	if u == nil || !u.Enabled || l.user != nil && l.user != u {
		return unauthorized()
	}
	l.user = u
	return nil
}

// userOf finds the user that a password proof names. keystone 22.0.2: auth/plugins/core.py. The
// messages name no method: observed.
func (s *Service) userOf(proof map[string]any) (*user, *fault) {
	if _, has := proof["user"]; !has {
		return nil, missing("user", "None")
	}
	given := object(proof["user"])
	name, _ := given["name"].(string)
	if name == "" {
		id, _ := given["id"].(string)
		if id == "" {
			return nil, missing("id or name", "user")
		}
		if u := s.users.byID[id]; u != nil {
			return u, nil
		}
		return nil, unauthorized()
	}
	if _, has := given["domain"]; !has {
		return nil, missing("domain", "user")
	}
	d, f := s.domainOf(object(given["domain"]))
	if f != nil {
		return nil, f
	}
	if u := s.userNamed(name, d); u != nil {
		return u, nil
	}
	return nil, unauthorized()
}

func (s *Service) domainOf(given map[string]any) (string, *fault) {
	name, _ := given["name"].(string)
	id, _ := given["id"].(string)
	d := s.domains.byID[id]
	if name != "" {
		d = s.domains.find(func(d *domain) bool { return d.Name == name })
	}
	if d == nil || !d.Enabled {
		return "", unauthorized()
	}
	return d.ID, nil
}

// settle scopes an unscoped login to the user's default project. keystone 22.0.2:
// api/_shared/authentication.py
func (s *Service) settle(l *login) {
	if l.scope != (scope{}) || l.user.DefaultProjectID == "" {
		return
	}
	p := s.projects.byID[l.user.DefaultProjectID]
	if p != nil && p.Enabled && len(s.rolesIn(l.user.ID, p.ID)) > 0 {
		l.scope.project = p.ID
	}
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}
