// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// fault is a refusal, written as Keystone writes it.
type fault struct {
	status  int
	message string
	with    map[string]any // "identity" if an authentication plugin refuses
	title   string         // if it differs from HTTP's text for the status
}

func refuse(status int, format string, args ...any) *fault {
	return &fault{status: status, message: fmt.Sprintf(format, args...)}
}

// Messages of keystone 22.0.2: exception.py. Keystone does not say why it refuses a login,
// because insecure_debug is off.
const (
	requiresAuthentication = "The request you have made requires authentication."
	notAuthorized          = "You are not authorized to perform the requested action"
	malformed              = "The server could not comply with the request since it is either malformed or otherwise incorrect." +
		" The client is assumed to be in error."
)

func unauthorized() *fault { return refuse(http.StatusUnauthorized, requiresAuthentication) }

func forbidden(action string) *fault {
	return refuse(http.StatusForbidden, "%s: %s.", notAuthorized, action)
}

func missing(attribute, target string) *fault {
	return refuse(http.StatusBadRequest, "Expecting to find %s in %s. %s", attribute, target, malformed)
}

func notFound(kind, id string) *fault {
	return refuse(http.StatusNotFound, "Could not find %s: %s.", kind, id)
}

func conflict(kind, details string) *fault {
	return refuse(http.StatusConflict, "Conflict occurred attempting to store %s - %s.", kind, details)
}

// write answers with the fault. uri is the address at which clients authenticate.
func (f *fault) write(w http.ResponseWriter, uri string) {
	h := w.Header()
	if f.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", fmt.Sprintf("Keystone uri=%q", uri))
	}
	title := f.title
	if title == "" {
		title = http.StatusText(f.status)
	}
	body := map[string]any{"code": f.status, "title": title, "message": f.message}
	for k, v := range f.with {
		body[k] = v
	}
	answer(w, f.status, map[string]any{"error": body})
}

func answer(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	b, err := json.Marshal(body)
	if err != nil { // cannot happen: rows hold what was decoded from JSON
		b, status = []byte(`{}`), http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// nowhere writes Flask's answer for an unknown path. Observed on keystone 22.0.2.
func nowhere(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte("<!doctype html>\n<html lang=en>\n<title>404 Not Found</title>\n<h1>Not Found</h1>\n" +
		"<p>The requested URL was not found on the server. If you entered the URL manually please check your spelling and try again.</p>\n"))
}
