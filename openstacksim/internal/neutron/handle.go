// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim/internal/keystone"
)

// maxBody is larger than any request of a client: a bulk POST of thousands of resources.
const maxBody = 64 << 20

// action is an action with a path of its own: PUT /v2.0/routers/ID/add_router_interface.
type action struct {
	method, kind, verb string
	run                func(c *call, id string, body map[string]any) (any, *fault)
}

// action serves a path such as "/routers/{id}/add_router_interface".
func (s *Service) action(method, path string, f func(c *call, id string, body map[string]any) (any, *fault)) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	s.actions = append(s.actions, action{method, parts[0], parts[2], f})
}

// Handle answers a request. Its path is as Neutron sees it: "/v2.0/networks".
func (s *Service) Handle(w http.ResponseWriter, r *http.Request, who keystone.Caller) {
	body, err := whole(w, r)
	if err != nil {
		writeText(w, http.StatusRequestEntityTooLarge, "application/json", encode(badRequest("reading the request: %v", err).body()))
		return
	}
	var status int
	var text []byte
	var long pager
	kind := "application/json"
	s.do(who, r, func(c *call) *fault {
		st, answer, f := c.answer(r, body)
		if status = st; f != nil {
			return f
		}
		if p, is := answer.(pager); is {
			// Other requests need not wait until it is written.
			long = p
		} else {
			text = encode(answer)
		}
		return nil
	}, func(f *fault) {
		status = f.status
		kind, text = f.page(r)
	})
	if long != nil {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		long.write(w)
		return
	}
	writeText(w, status, kind, text)
}

// whole returns the body. It reads the body unless an earlier reader has kept it.
func whole(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if b, is := r.Body.(interface{ Bytes() []byte }); is {
		return b.Bytes(), nil
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
}

// do runs f under the lock, and undoes everything if f refuses or panics. Then it starts the
// delayed steps.
func (s *Service) do(who keystone.Caller, r *http.Request, f func(*call) *fault, refused func(*fault)) {
	s.follow(s.locked(&call{Service: s, who: who, request: r}, f, refused))
}

// locked is do without the delayed steps. It passes a panic on to the caller, after undoing every
// change.
func (s *Service) locked(c *call, f func(*call) *fault, refused func(*fault)) []later {
	s.mu.Lock()
	defer s.mu.Unlock()
	returned := false
	defer func() {
		if !returned {
			c.rollback()
		}
	}()
	fault := f(c)
	returned = true
	if fault != nil {
		c.rollback()
		refused(fault)
	}
	return c.laters
}

// follow runs each delayed step when it is due, with the service's own rights.
func (s *Service) follow(laters []later) {
	for _, l := range laters {
		s.After(l.after, func() {
			s.do(keystone.Caller{Roles: []string{"admin"}}, nil, func(c *call) *fault {
				l.do(c)
				return nil
			}, func(*fault) {})
		})
	}
}

// inside runs f with the service's own rights, all or nothing.
func (s *Service) inside(f func(*call) *fault) error {
	var err error
	s.do(keystone.Caller{Roles: []string{"admin"}}, nil, f, func(f *fault) { err = f })
	return err
}

func encode(v any) []byte {
	if v == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte(`{"NeutronError": {"type": "HTTPInternalServerError", "message": "", "detail": ""}}`)
	}
	return text
}

func writeText(w http.ResponseWriter, status int, kind string, text []byte) {
	if status != http.StatusNoContent {
		w.Header().Set("Content-Type", kind)
		if text == nil {
			text = []byte("null") // the answer to a PUT of a tag (observed on Neutron 21.0.0)
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// answer dispatches a request by its path.
func (c *call) answer(r *http.Request, body []byte) (int, any, *fault) {
	path := strings.TrimSuffix(r.URL.Path, ".json")
	if rest, ok := strings.CutPrefix(path, "/v2.0"); ok && (rest == "" || rest[0] == '/') {
		return c.versioned(rest, body)
	}
	if path == "" || path == "/" {
		if r.Method != http.MethodGet {
			return 0, nil, notAllowed()
		}
		return http.StatusOK, c.versions(), nil
	}
	return 0, nil, nowhere()
}

func (c *call) versioned(path string, body []byte) (int, any, *fault) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for _, p := range parts[1:] {
		if p == "" {
			return 0, nil, noSuchPath()
		}
	}
	if len(parts) > 1 && !deep(parts) {
		return 0, nil, noSuchPath()
	}
	switch parts[0] {
	case "":
		return c.resources(path)
	case "extensions":
		return c.extensions(parts[1:])
	case "quotas":
		return c.quota(parts[1:], body)
	case "agents":
		return c.agents(parts[1:])
	case "network-ip-availabilities":
		return c.occupancy(parts[1:])
	case "availability_zones":
		return c.availability(parts[1:])
	}
	h := c.kinds[parts[0]]
	if h == nil {
		return 0, nil, noSuchPath()
	}
	if len(parts) >= 3 && parts[2] == "tags" {
		return c.tags(h, parts[1], parts[3:], body)
	}
	if len(parts) == 3 {
		return c.act(parts, body)
	}
	return h.handle(c, parts[1:], body)
}

// deep reports whether a path has the depth of a resource that is no kind. Below such a resource
// no path exists, except for quotas.
func deep(parts []string) bool {
	switch parts[0] {
	case "agents", "extensions", "availability_zones", "network-ip-availabilities":
		return len(parts) == 2
	}
	return true
}

// act runs an action of a resource.
func (c *call) act(parts []string, body []byte) (int, any, *fault) {
	known := false
	for _, a := range c.actions {
		if a.kind != parts[0] || a.verb != parts[2] {
			continue
		}
		if known = true; a.method != c.request.Method {
			continue
		}
		var object map[string]any
		if len(body) > 0 && a.method != http.MethodGet {
			v, err := decode(body)
			var ok bool
			if object, ok = v.(map[string]any); err != nil || !ok {
				return 0, nil, badRequest("Body contains invalid data")
			}
		}
		answer, f := a.run(c, parts[1], object)
		return http.StatusOK, answer, f
	}
	if known {
		return 0, nil, notAllowed()
	}
	return 0, nil, noSuchPath()
}

// kindOf returns the kind with a singular name.
func (c *call) kindOf(one string) handler {
	for _, h := range c.kinds {
		if name, _ := h.name(); name == one {
			return h
		}
	}
	return nil
}
