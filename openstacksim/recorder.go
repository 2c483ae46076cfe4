// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"bytes"
	"context"
	"net/http"
	"sync"
)

// recorder takes an answer: it either keeps all of it, or forwards it and reports it before its
// first byte is sent.
type recorder struct {
	to       http.ResponseWriter
	header   http.Header
	status   int
	body     bytes.Buffer
	buffered bool
	begun    bool
	commit   func(status int)
}

func newRecorder(to http.ResponseWriter, buffered bool) *recorder {
	return &recorder{to: to, header: http.Header{}, buffered: buffered}
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status != 0 {
		return
	}
	r.status = status
	if !r.buffered {
		r.begin()
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if r.buffered {
		return r.body.Write(b)
	}
	return r.to.Write(b)
}

func (r *recorder) begin() {
	r.begun = true
	if r.commit != nil {
		r.commit(r.status)
	}
	for k, v := range r.header {
		r.to.Header()[k] = v
	}
	r.to.WriteHeader(r.status)
}

// finish sends the rest.
func (r *recorder) finish() {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if !r.begun {
		r.begin()
		_, _ = r.to.Write(r.body.Bytes())
	}
}

// workers lets only so many requests of a service be worked on at once.
type workers struct {
	mu    sync.RWMutex
	slots map[string]chan struct{}
}

func (w *workers) set(n map[string]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots = map[string]chan struct{}{}
	for service, n := range n {
		w.slots[service] = make(chan struct{}, n)
	}
}

// enter waits for a worker; leave gives it back. false: the client went, or the
// cloud was closed.
func (w *workers) enter(ctx context.Context, closed <-chan struct{}, service string) (leave func(), is bool) {
	w.mu.RLock()
	slot := w.slots[service]
	w.mu.RUnlock()
	if slot == nil {
		return func() {}, true
	}
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, true
	case <-ctx.Done():
	case <-closed:
	}
	return nil, false
}

// items counts the elements of the list that is the first value of the body's
// object: ports of a bulk create, rows of an answer.
// It looks at the text only, so it is cheap for any size.
func items(body []byte) (n int) {
	i := bytes.IndexByte(body, ':')
	if i < 0 {
		return 0
	}
	rest := bytes.TrimLeft(body[i+1:], " \t\r\n")
	if len(rest) == 0 || rest[0] != '[' {
		return 0
	}
	rest = bytes.TrimLeft(rest[1:], " \t\r\n")
	if len(rest) == 0 || rest[0] == ']' {
		return 0
	}
	n, depth, quoted := 1, 0, false
	for i := 0; i < len(rest); i++ {
		switch b := rest[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			if depth--; depth < 0 {
				return n
			}
		case b == ',' && depth == 0:
			n++
		}
	}
	return n
}
