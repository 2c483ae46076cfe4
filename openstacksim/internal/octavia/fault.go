// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"html"
	"net/http"
	"strings"
)

// fault is a refusal.
type fault struct {
	status int
	text   string
	// routing faults come from pecan before it calls WSME, and have another form. Some faults
	// that Octavia raises there have that form, too. Their title is webob's for a 400.
	routing bool
	title   string
	allow   string // header Allow of a 405
	// rootless faults are about paths outside of the API's versions.
	rootless bool
}

func refuse(status int, format string, args ...any) *fault {
	return &fault{status: status, text: fmt.Sprintf(format, args...)}
}

// The messages are those of octavia 11.0.0: common/exceptions.py.

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

// crash returns a 500 that Octavia answers, too. Its text is that of an uncaught Python
// exception, such as for {"listener": null}.
func crash(format string, args ...any) *fault {
	return refuse(http.StatusInternalServerError, format, args...)
}

// lost returns the answer of a look-up before the handler: octavia 11.0.0,
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

// body returns the body of the answer and its type.
func (f *fault) body(r *http.Request) (text []byte, contentType string) {
	if f.routing {
		return f.routed(r)
	}
	code := "Client"
	if f.status >= http.StatusInternalServerError {
		code = "Server"
	}
	return encode(struct {
		Code  string  `json:"faultcode"`
		Text  string  `json:"faultstring"`
		Debug *string `json:"debuginfo"`
	}{code, f.text, nil}), "application/json"
}

// routed returns webob 1.8's answer to an unhandled fault: JSON, HTML or plain text, as the
// client accepts. The default is plain text.
func (f *fault) routed(r *http.Request) (text []byte, contentType string) {
	why := map[int]string{
		http.StatusBadRequest:       "The server could not comply with the request since it is either malformed or otherwise incorrect.",
		http.StatusNotFound:         "The resource could not be found.",
		http.StatusMethodNotAllowed: "The method " + r.Method + " is not allowed for this resource. ",
	}[f.status]
	if f.text != "" { // all of Octavia's own faults have the text of a 400
		why = "The server could not comply with the request since it is either malformed or otherwise incorrect."
	}
	tail := "\n\n"
	if f.status == http.StatusMethodNotAllowed {
		tail = ""
	}
	head := fmt.Sprintf("%d %s", f.status, f.title)
	switch accepted(r.Header.Get("Accept")) {
	case "json":
		return encode(struct {
			Code        int     `json:"code"`
			Title       string  `json:"title"`
			Description *string `json:"description"`
		}{f.status, f.title, f.detail()}), "application/json"
	case "html":
		page := "<html>\n <head>\n  <title>%s</title>\n </head>\n <body>\n  <h1>%s</h1>\n  %s<br /><br />\n%s%s\n </body>\n</html>"
		detail := strings.NewReplacer("&#39;", "&#x27;", "&#34;", "&quot;").Replace(html.EscapeString(f.text))
		return fmt.Appendf(nil, page, head, head, why, detail, tail), "text/html; charset=UTF-8"
	}
	return []byte(head + "\n\n" + why + "\n\n " + f.text + strings.ReplaceAll(tail, "\n", " ")), "text/plain; charset=UTF-8"
}

// detail returns the text that JSON shows in addition to the title. It is null if no controller
// was called.
func (f *fault) detail() *string {
	if f.rootless {
		return nil
	}
	return &f.text
}

// accepted returns which of HTML and JSON the client prefers.
func accepted(header string) string {
	for one := range strings.SplitSeq(header, ",") {
		kind, _, _ := strings.Cut(one, ";")
		switch strings.TrimSpace(kind) {
		case "application/json", "application/*":
			return "json"
		case "text/html", "text/*", "*/*":
			return "html"
		}
	}
	return ""
}
