// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/dial"
	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
	"github.com/kuryr-go/kuryr/openstacksim/internal/lbaasv2"
	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

// maxBody is more than any client sends: a bulk create of 10,000 ports has 5 MB.
const maxBody = 64 << 20

// ServeHTTP answers one request to any of the services, or to the simulator itself.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	service, path := c.route(r.URL.Path)
	if service == "" {
		http.NotFound(w, r)
		return
	}
	if service == admin {
		c.admin(w, withPath(r, path, r.Body))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		c.unread(w, r, err, service, path)
		return
	}
	c.serve(w, withPath(r, path, whole{bytes.NewReader(body), body}), body, service, path) //nolint:contextcheck // it is in the request
}

// whole is a body that was read already. A service may use its bytes, which do not change, instead
// of reading it again.
type whole struct {
	*bytes.Reader
	text []byte
}

func (b whole) Close() error  { return nil }
func (b whole) Bytes() []byte { return b.text }

// unread logs a call whose body was incomplete.
func (c *Cloud) unread(w http.ResponseWriter, r *http.Request, err error, service, path string) {
	call := Call{At: c.o.Now(), Service: service, Method: r.Method, Path: path, Query: r.URL.RawQuery, Resource: resource(path), Outcome: "gone"}
	var tooLarge *http.MaxBytesError
	if !errors.As(err, &tooLarge) {
		c.log.add(call)
		cut(w, false)
		return
	}
	call.Status, call.Outcome = http.StatusRequestEntityTooLarge, fmt.Sprint(http.StatusRequestEntityTooLarge)
	c.log.add(call)
	http.Error(w, fmt.Sprintf("the request has more than %d bytes", tooLarge.Limit), call.Status)
}

const admin = "sim"

func withPath(r *http.Request, path string, body io.ReadCloser) *http.Request {
	inner, u := *r, *r.URL
	u.Path, u.RawPath = path, ""
	inner.URL, inner.Body = &u, body
	return &inner
}

// job is one call on its way through.
type job struct {
	Call
	r    *http.Request
	body []byte
	turn *dial.Turn // nil: nothing is dialled
	dial dial.Call
}

// serve does one call and logs it.
func (c *Cloud) serve(w http.ResponseWriter, r *http.Request, body []byte, service, path string) {
	j := &job{r: r, body: body, Call: Call{
		At: c.o.Now(), Service: service, Method: r.Method, Path: path, Query: r.URL.RawQuery, Resource: resource(path)}}
	if r.Method == http.MethodPost {
		j.Items = items(body)
	}
	start := time.Now()
	answered := func() { j.Took = time.Since(start); c.log.add(j.Call) }
	if !c.panel.Idle() {
		j.dial = dial.Call{Service: service, Method: r.Method, Path: path, Items: j.Items, Bound: bound(body)}
		j.turn = c.panel.Begin(j.dial)
		defer j.turn.End()
	}
	c.work(w, j, answered)
}

// errCut: the client gets no answer.
var errCut = errors.New("connection cut")

// work applies the dials, and executes the request in between. The call is logged before the client
// has the answer, so a client with the answer finds the call in the log.
func (c *Cloud) work(w http.ResponseWriter, j *job, answered func()) {
	leave, is := c.workers.enter(j.r.Context(), c.timers.done, j.Service)
	if !is {
		j.Outcome = "gone"
		answered()
		cut(w, false)
		return
	}
	defer leave()
	if err := c.before(j); err != nil {
		answered()
		cut(w, j.Outcome == "reset")
		return
	}
	if j.turn != nil && j.turn.Fault != nil && !j.turn.Fault.Effect {
		c.fail(w, j, answered)
		return
	}
	rec := newRecorder(w, j.turn != nil || c.o.After != nil)
	rec.commit = func(status int) { j.Status, j.Effect, j.Outcome = status, status, fmt.Sprint(status); answered() }
	c.handle(rec, j)
	if !rec.buffered {
		rec.finish()
		return
	}
	j.Effect = rec.status
	if err := c.afterwards(j, rec); err != nil {
		answered()
		cut(w, false)
		return
	}
	if j.turn != nil && j.turn.Fault != nil {
		c.fail(w, j, answered)
		return
	}
	rec.finish()
}

// before waits for the dialled latency and calls Options.Before. After an error the call ends here.
func (c *Cloud) before(j *job) error {
	if t := j.turn; t != nil {
		if !c.sleep(j.r, t.Wait) {
			j.Outcome = "gone"
			return errCut
		}
		if t.Stop == dial.Before {
			j.Outcome, j.Rule = "stopped", t.Rule
			c.stop(t.Rule)
			return errCut
		}
	}
	if c.o.Before != nil {
		if err := c.o.Before(j.Call); err != nil {
			j.Outcome = "stopped"
			return err
		}
	}
	return nil
}

// afterwards is before, after the effect.
func (c *Cloud) afterwards(j *job, rec *recorder) error {
	if t := j.turn; t != nil {
		if t.Rows {
			n := items(rec.body.Bytes())
			c.sleep(j.r, t.After(n))
		}
		if t.Stop == dial.After {
			j.Outcome, j.Rule = "stopped", t.Rule
			c.stop(t.Rule)
			return errCut
		}
	}
	if c.o.After != nil {
		if err := c.o.After(j.Call); err != nil {
			j.Outcome = "stopped"
			return err
		}
	}
	return nil
}

// sleep waits, and reports whether client and cloud still exist.
func (c *Cloud) sleep(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	case <-c.timers.done:
		return false
	}
}

// fail answers with the fault, or not at all.
func (c *Cloud) fail(w http.ResponseWriter, j *job, answered func()) {
	f := j.turn.Fault
	j.Rule = j.turn.Rule
	if f.Expire {
		c.identity.Revoke(j.r.Header.Get("X-Auth-Token"))
	}
	switch {
	case f.Hang:
		j.Outcome = "hang"
		answered()
		select {
		case <-j.r.Context().Done():
		case <-c.timers.done:
		}
		cut(w, false)
	case f.Cut:
		j.Outcome = f.Name
		answered()
		cut(w, !f.Effect)
	default:
		c.name(w, j)
		a := f.Answer(j.dial, c.facts(j))
		j.Status, j.Outcome = a.Status, fmt.Sprint(a.Status)
		answered()
		for k, v := range a.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(a.Status)
		_, _ = w.Write(a.Body)
	}
}

// cut ends the connection without an answer; reset as if the other end had died.
func cut(w http.ResponseWriter, reset bool) {
	if h, can := w.(http.Hijacker); can {
		conn, _, err := h.Hijack()
		if err == nil {
			if tcp, is := conn.(*net.TCPConn); is && reset {
				_ = tcp.SetLinger(0) // an RST instead of a FIN
			}
			_ = conn.Close()
			return
		}
	}
	panic(http.ErrAbortHandler)
}

// handle gives the call to its service.
func (c *Cloud) handle(w http.ResponseWriter, j *job) {
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			c.o.Log.ErrorContext(j.r.Context(), "a service panicked", "panic", p, "method", j.Method, "path", j.Path, "stack", string(debug.Stack()))
			http.Error(w, "the simulator has a fault: see its log", http.StatusInternalServerError)
		}
	}()
	c.name(w, j)
	if j.Service == dial.Identity {
		c.identity.ServeHTTP(w, j.r)
		return
	}
	var who keystone.Caller
	if j.Path != "/" { // version discovery is for all
		var known bool
		if who, known = c.identity.Authenticate(j.r.Header.Get("X-Auth-Token")); !known {
			c.unauthorized(w, j)
			return
		}
	}
	j.Project, j.User = who.ProjectName, who.UserName
	r := j.r
	if t := j.turn; t != nil && t.Fault != nil && t.Fault.Death != "" {
		r = r.WithContext(octavia.WithDeath(r.Context(), octavia.Death(t.Fault.Death)))
	}
	c.service(j).Handle(w, r, who)
}

// service returns the service that answers the call, unless that is Keystone.
func (c *Cloud) service(j *job) api {
	switch j.Service {
	case dial.Network:
		if c.lbaas != nil && lbaasv2.Serves(j.Path) {
			return c.lbaas
		}
		return c.network
	case dial.LoadBalancer:
		return c.balancer
	}
	return c.added[j.Service]
}

const requestID = "X-Openstack-Request-Id"

// name gives the answer the name of its request. Neutron does so below /v2.0
// only. Observed on neutron 21.0.0.
func (c *Cloud) name(w http.ResponseWriter, j *job) {
	id := "req-" + c.calls.UUID()
	if j.Service != dial.Network || strings.HasPrefix(j.Path, "/v2.0") {
		w.Header().Set(requestID, id)
	}
}

// unauthorized is the answer of keystonemiddleware 10.1.0 in front of Neutron and Octavia:
// auth_token/__init__.py
func (c *Cloud) unauthorized(w http.ResponseWriter, j *job) {
	if j.Service == dial.LoadBalancer {
		w.Header().Del(requestID) // the middleware runs before the part that names requests: observed
	}
	w.Header().Set("WWW-Authenticate", fmt.Sprintf("Keystone uri=%q", c.o.URL+identityPath+"/v3"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, `{"error": {"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}}`)
}

// facts are the values that a fault's message may contain.
func (c *Cloud) facts(j *job) dial.Facts {
	f := dial.Facts{AuthURL: c.o.URL + identityPath + "/v3", Network: word(j.body, "network_id"), Subnet: word(j.body, "subnet_id"), Address: word(j.body, "ip_address")}
	c.guess(&f)
	return f
}

// word is the first string that the body has under key.
func word(body []byte, key string) string {
	_, rest, found := bytes.Cut(body, []byte(`"`+key+`"`))
	if !found {
		return ""
	}
	parts := bytes.SplitN(rest, []byte(`"`), 3)
	if len(parts) < 3 || strings.TrimSpace(string(parts[0])) != ":" {
		return ""
	}
	return string(parts[1])
}

// bound reports whether the request binds a port. It examines the text only: a host name there is
// enough.
func bound(body []byte) bool { return word(body, "binding:host_id") != "" }

// mustURL is for URLs that this package made.
func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}
