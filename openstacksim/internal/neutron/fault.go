// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"net/http"
	"strings"
)

// fault is an answer that is no success. On the wire it is
// {"NeutronError": {"type": kind, "message": message, "detail": detail}}.
type fault struct {
	status                int
	kind, message, detail string
	// plain, if set, is the whole body, as text; object is it for who wants JSON.
	plain  string
	object any
}

// Error makes a fault an error for who calls the service in process.
func (f *fault) Error() string { return f.kind + ": " + f.message }

// refuse makes a fault. The kind is the name of Neutron's exception.
func refuse(status int, kind, format string, args ...any) *fault {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	return &fault{status: status, kind: kind, message: message}
}

// badRequest is what Neutron's API layer itself refuses (webob's HTTPBadRequest).
func badRequest(format string, args ...any) *fault {
	return refuse(http.StatusBadRequest, "HTTPBadRequest", format, args...)
}

// invalid is what a converter or a plugin finds wrong with a value.
func invalid(format string, args ...any) *fault {
	f := refuse(http.StatusBadRequest, "InvalidInput", format, args...)
	f.message = "Invalid input for operation: " + f.message + "."
	return f
}

// noSuchPath is what the API layer says where there is nothing, and where the
// caller is not to know that there is something.
func noSuchPath() *fault {
	return refuse(http.StatusNotFound, "HTTPNotFound", "The resource could not be found.")
}

// nowhere is what comes from outside of Neutron's error translation: text, or
// JSON for who accepts that (observed on Neutron 21.0.0).
func nowhere() *fault {
	f := noSuchPath()
	f.plain = "404 Not Found\n\nThe resource could not be found.\n\n\n\n"
	f.object = map[string]any{"code": 404, "description": nil, "title": "Not Found"}
	return f
}

// noExtension is the same from the extensions' own part of Neutron.
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

// page is what a client gets to see of a fault, and its type.
func (f *fault) page(r *http.Request) (kind string, text []byte) {
	switch {
	case f.plain == "":
		return "application/json", encode(f.body())
	case strings.Contains(r.Header.Get("Accept"), "application/json"):
		return "application/json", encode(f.object)
	}
	return "text/plain; charset=UTF-8", []byte(f.plain)
}

// notAllowed: a path does not have that method.
func notAllowed() *fault {
	return refuse(http.StatusMethodNotAllowed, "HTTPMethodNotAllowed",
		"The server could not comply with the request since it is either malformed or otherwise incorrect.")
}

// conflict is a refusal because of how things are.
func conflict(kind, format string, args ...any) *fault {
	return refuse(http.StatusConflict, kind, format, args...)
}

func (f *fault) body() map[string]any {
	return map[string]any{"NeutronError": map[string]string{"type": f.kind, "message": f.message, "detail": f.detail}}
}
