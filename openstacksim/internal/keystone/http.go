// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxBody is Keystone's own limit: 114688 bytes (oslo.middleware, sizelimit). Callers of
// ServeHTTP set a limit of their own.
const maxBody = 114688

// request is one call in progress. The service's lock is held.
type request struct {
	*http.Request
	ids   []string // the path segments that matched *
	query url.Values
	body  map[string]any // nil: the request had no body
	token *token         // nil: the request had no token
	who   Caller
}

func (r *request) admin() bool { return r.who.Admin() }

// reply is a successful answer.
type reply struct {
	status int
	body   any
	header http.Header
}

// route maps a method and a path to a function. Paths are written as Keystone sees them.
type route struct {
	method string
	path   []string // * matches one segment
	open   bool     // needs no token
	serve  func(*request) (reply, *fault)
}

func on(method, path string, serve func(*request) (reply, *fault)) route {
	return route{method: method, path: strings.Split(path, "/"), serve: serve}
}

func ok(body any) (reply, *fault)      { return reply{status: http.StatusOK, body: body}, nil }
func created(body any) (reply, *fault) { return reply{status: http.StatusCreated, body: body}, nil }
func done() (reply, *fault)            { return reply{status: http.StatusNoContent}, nil }

// ServeHTTP answers one request to Keystone. Its path has no prefix: /v3/....
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	if path == "" || path == "v3" {
		s.discover(w, r, path)
		return
	}
	w.Header().Set("Vary", "X-Auth-Token") // keystone 22.0.2: server/flask/application.py
	rest, v3 := strings.CutPrefix(path, "v3/")
	matched, ids, allow := s.match(r.Method, rest)
	if !v3 || matched == nil && len(allow) == 0 {
		nowhere(w)
		return
	}
	if matched == nil {
		// Observed on keystone 22.0.2: this is Flask's message, not Keystone's.
		if slices.Contains(allow, http.MethodGet) {
			allow = append(allow, http.MethodHead)
		}
		w.Header().Set("Allow", strings.Join(append(allow, http.MethodOptions), ", "))
		answer(w, http.StatusMethodNotAllowed, map[string]string{"message": "The method is not allowed for the requested URL."})
		return
	}
	got, f := s.serve(matched, ids, r)
	if f != nil {
		f.write(w, s.url+"/v3")
		return
	}
	for k, v := range got.header {
		w.Header()[k] = v
	}
	answer(w, got.status, got.body)
}

// match finds the route of a path. If the path has routes for other methods only, it returns
// those methods.
func (s *Service) match(method, path string) (*route, []string, []string) {
	if method == http.MethodHead {
		method = http.MethodGet // the HTTP server drops the body of the answer
	}
	parts := strings.Split(path, "/")
	var allow []string
	for i := range s.routes {
		ids, fits := fit(s.routes[i].path, parts)
		if !fits {
			continue
		}
		if s.routes[i].method == method {
			return &s.routes[i], ids, nil
		}
		allow = append(allow, s.routes[i].method)
	}
	return nil, nil, allow
}

func fit(pattern, parts []string) ([]string, bool) {
	if len(pattern) != len(parts) {
		return nil, false
	}
	var ids []string
	for i, p := range pattern {
		if p == "*" && parts[i] != "" {
			ids = append(ids, parts[i])
		} else if p != parts[i] {
			return nil, false
		}
	}
	return ids, true
}

func (s *Service) serve(m *route, ids []string, r *http.Request) (reply, *fault) {
	body, f := decode(r)
	if f != nil {
		return reply{}, f
	}
	write := m.method != http.MethodGet
	if write {
		s.mu.Lock()
		defer s.mu.Unlock()
	} else {
		s.mu.RLock()
		defer s.mu.RUnlock()
	}
	q := &request{Request: r, ids: ids, query: r.URL.Query(), body: body}
	if m.open {
		return m.serve(q)
	}
	t, f := s.look(r.Header.Get("X-Auth-Token"))
	if f != nil {
		return reply{}, unauthorized()
	}
	q.token, q.who = t, s.caller(t)
	return m.serve(q)
}

// decode reads the body. keystone 22.0.2: server/flask/request_processing/json_body.py
func decode(r *http.Request) (map[string]any, *fault) {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(b) > maxBody {
		return nil, refuse(http.StatusRequestEntityTooLarge, "Request is too large.")
	}
	if len(b) == 0 {
		return nil, nil
	}
	if t := r.Header.Get("Content-Type"); t != "" && !isJSON(t) {
		return nil, missing("application/json", "Content-Type header")
	}
	var body map[string]any
	if err := json.Unmarshal(b, &body); err != nil || body == nil {
		return nil, missing("valid JSON", "request body")
	}
	return body, nil
}

func isJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json"))
}

// discover answers on / and /v3. keystone 22.0.2: api/discovery.py
func (s *Service) discover(w http.ResponseWriter, r *http.Request, path string) {
	w.Header().Set("Vary", "X-Auth-Token")
	if !slices.Contains([]string{http.MethodGet, http.MethodHead}, r.Method) {
		w.Header().Set("Allow", "HEAD, OPTIONS, GET")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusMethodNotAllowed)
		_, _ = io.WriteString(w, "<!doctype html>\n<html lang=en>\n<title>405 Method Not Allowed</title>\n"+
			"<h1>Method Not Allowed</h1>\n<p>The method is not allowed for the requested URL.</p>\n")
		return
	}
	self := s.url + "/v3/"
	v3 := map[string]any{
		"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
		"links":       []map[string]string{{"rel": "self", "href": self}},
		"media-types": []map[string]string{{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}},
	}
	if path == "v3" {
		answer(w, http.StatusOK, map[string]any{"version": v3})
		return
	}
	w.Header().Set("Location", self)
	answer(w, http.StatusMultipleChoices, map[string]any{"versions": map[string]any{"values": []any{v3}}})
}

func (s *Service) makeRoutes() []route {
	auth := on(http.MethodPost, "auth/tokens", s.issue)
	auth.open = true
	routes := []route{
		auth,
		on(http.MethodGet, "auth/tokens", s.validate),
		on(http.MethodDelete, "auth/tokens", s.revoke),
		on(http.MethodGet, "auth/projects", s.ownProjects),
		on(http.MethodGet, "auth/domains", s.ownDomains),
		on(http.MethodGet, "auth/system", s.ownSystem),
		on(http.MethodGet, "auth/catalog", s.showCatalog),
		on(http.MethodGet, "users/*/projects", s.projectsOf),
		on(http.MethodGet, "users/*/application_credentials", s.listCredentials),
		on(http.MethodPost, "users/*/application_credentials", s.makeCredential),
		on(http.MethodGet, "users/*/application_credentials/*", s.showCredential),
		on(http.MethodDelete, "users/*/application_credentials/*", s.dropCredential),
		on(http.MethodPost, "projects", s.makeProject),
		on(http.MethodPatch, "projects/*", s.changeProject),
		on(http.MethodDelete, "projects/*", s.dropProject),
		on(http.MethodPost, "users", s.makeUser),
		on(http.MethodPatch, "users/*", s.changeUser),
		on(http.MethodDelete, "users/*", s.dropUser),
		on(http.MethodPost, "roles", s.makeRole),
		on(http.MethodGet, "role_assignments", s.assignments),
		on(http.MethodGet, "groups", s.noGroups),
	}
	for _, target := range []string{"projects", "domains"} {
		routes = append(routes,
			on(http.MethodGet, target+"/*/users/*/roles", s.grantsOf),
			on(http.MethodGet, target+"/*/users/*/roles/*", s.hasGrant),
			on(http.MethodPut, target+"/*/users/*/roles/*", s.makeGrant),
			on(http.MethodDelete, target+"/*/users/*/roles/*", s.dropGrant))
	}
	return append(routes, s.reads()...)
}
