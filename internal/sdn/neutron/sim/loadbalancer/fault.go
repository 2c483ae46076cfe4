// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// fault is an answer that is no success.
type fault struct {
	status int
	text   string
	// routing faults come from pecan, before WSME is asked, and have another form.
	// So have those that Octavia raises there; title then is webob's for a 400.
	routing bool
	title   string
	allow   string // header Allow of a 405
}

func refuse(status int, format string, args ...any) *fault {
	return &fault{status: status, text: fmt.Sprintf(format, args...)}
}

// The words are those of octavia 11.0.0: common/exceptions.py.

func invalid(format string, args ...any) *fault {
	return refuse(http.StatusBadRequest, "Validation failure: "+format, args...)
}

func notOption(value, option string) *fault {
	return refuse(http.StatusBadRequest, "%s is not a valid option for %s", value, option)
}

func notFound(kind, id string) *fault {
	return refuse(http.StatusNotFound, "%s %s not found.", kind, id)
}

func immutable(kind, id string) *fault {
	return refuse(http.StatusConflict, "%s %s is immutable and cannot be updated.", kind, id)
}

func quotaMet(kind string) *fault {
	return refuse(http.StatusForbidden, "Quota has been met for resources: %s", kind)
}

var forbidden = refuse(http.StatusForbidden, "Policy does not allow this request to be performed.")

// crash is a 500 that the real one gives, too: the words of the Python exception
// that nothing there catches, such as for {"listener": null}.
func crash(format string, args ...any) *fault {
	return refuse(http.StatusInternalServerError, format, args...)
}

// lost is what a look-up on the way to the handler answers: octavia 11.0.0,
// api/v2/controllers/pool.py, _lookup. Its title is webob's default.
func lost(kind, id string) *fault {
	return &fault{status: http.StatusNotFound, routing: true, title: "Bad Request", text: kind + " " + id + " not found."}
}

func misrouted(status int, allow string) *fault {
	return &fault{status: status, routing: true, title: http.StatusText(status), allow: allow}
}

func badQuery(format string, args ...any) *fault {
	return &fault{status: http.StatusBadRequest, routing: true, title: "Bad Request", text: fmt.Sprintf(format, args...)}
}

func (f *fault) body() []byte {
	var out any
	if f.routing {
		out = struct {
			Code        int    `json:"code"`
			Title       string `json:"title"`
			Description string `json:"description"`
		}{f.status, f.title, f.text}
	} else {
		code := "Client"
		if f.status >= http.StatusInternalServerError {
			code = "Server"
		}
		out = struct {
			Code  string  `json:"faultcode"`
			Text  string  `json:"faultstring"`
			Debug *string `json:"debuginfo"`
		}{code, f.text, nil}
	}
	text, _ := json.Marshal(out)
	return text
}
