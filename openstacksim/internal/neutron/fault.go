// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/http"
	"strings"
)

// fault is a refusal. Its body is {"NeutronError": {"type": kind, "message": message, "detail":
// detail}}.
type fault struct {
	status                int
	kind, message, detail string
	// plain, if set, is the whole body as text. object is the body for clients that accept JSON.
	plain  string
	object any
}

// Error makes a fault an error, for callers in the same process.
func (f *fault) Error() string { return f.kind + ": " + f.message }

// refuse returns a fault. kind is the name of Neutron's exception.
func refuse(status int, kind, format string, args ...any) *fault {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	return &fault{status: status, kind: kind, message: message}
}

// badRequest returns a refusal by Neutron's API layer itself (webob's HTTPBadRequest).
func badRequest(format string, args ...any) *fault {
	return refuse(http.StatusBadRequest, "HTTPBadRequest", format, args...)
}

// invalid returns a refusal by a converter or a plugin because of a value.
func invalid(format string, args ...any) *fault {
	f := refuse(http.StatusBadRequest, "InvalidInput", format, args...)
	f.message = "Invalid input for operation: " + f.message + "."
	return f
}

// noSuchPath returns the API layer's answer for a missing resource. A resource that the caller
// may not see gets the same answer.
func noSuchPath() *fault {
	return refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
}

// nowhere returns the answer to a path outside of Neutron's error translation. It is text, or
// JSON for clients that accept JSON (observed on Neutron 21.0.0).
func nowhere() *fault {
	f := noSuchPath()
	f.plain = "404 Not Found\n\nThe resource could not be found.\n\n\n\n"
	f.object = map[string]any{"code": 404, "description": nil, "title": "Not Found"}
	return f
}

// noExtension returns the same answer of the extensions' part of Neutron.
func noExtension(alias string) *fault {
	f := noSuchPath()
	said := "Extension with alias " + alias + " does not exist"
	f.plain = "404 Not Found\n\nThe resource could not be found.\n\n " + said + "\n\n"
	f.object = map[string]string{
		"code": "404 Not Found", "title": "Not Found",
		"message": "The resource could not be found.<br /><br />\n" + said + "\n\n",
	}
	return f
}

// page returns the body of a fault and its content type.
func (f *fault) page(r *http.Request) (kind string, text []byte) {
	switch {
	case f.plain == "":
		return "application/json", encode(f.body())
	case strings.Contains(r.Header.Get("Accept"), "application/json"):
		return "application/json", encode(f.object)
	}
	return "text/plain; charset=UTF-8", []byte(f.plain)
}

// notAllowed returns the answer for a method that the path does not have.
func notAllowed() *fault {
	return refuse(http.StatusMethodNotAllowed, "HTTPMethodNotAllowed",
		"The server could not comply with the request since it is either malformed or otherwise incorrect.")
}

// conflict returns a refusal because of the current state.
func conflict(kind, format string, args ...any) *fault {
	return refuse(http.StatusConflict, kind, format, args...)
}

func (f *fault) body() map[string]any {
	return map[string]any{"NeutronError": map[string]string{"type": f.kind, "message": f.message, "detail": f.detail}}
}

// internalError is Neutron's answer if it has a fault itself.
func internalError() *fault {
	return refuse(http.StatusInternalServerError, "HTTPInternalServerError",
		"Request Failed: internal server error while processing your request.")
}
