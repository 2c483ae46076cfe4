// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
)

// HTTPCloud is a cloud that is spoken to by HTTP.
type HTTPCloud struct {
	// Handler is the cloud, whose catalogue and links say that it is at URL.
	Handler http.Handler
	URL     string
	// Name names a request, as begin wants it.
	Name func(*http.Request) Call
}

// Serve lets the process that ctx is of reach the cloud at the URL that it
// returns, until the process is over. Each process has a door of its own, so
// that what an old one still says is not taken for the new one's.
func (w *World) Serve(ctx context.Context, c HTTPCloud) (url string) {
	p := processOf(ctx)
	d := &door{w: w, p: p, cloud: c}
	server := httptest.NewServer(d)
	d.url = server.URL
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atEnd[p] = append(w.atEnd[p], server.Close)
	return server.URL
}

// door is a process's link to an HTTP cloud.
type door struct {
	w     *World
	p     *process
	cloud HTTPCloud
	url   string
}

// ServeHTTP implements http.Handler. A request that has set out arrives, even if
// who sent it is no more.
func (d *door) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	x, err := d.w.beginCloud(d.p, d.cloud.Name(r))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	answer, cut := d.ask(r)
	if err := d.w.endCloud(x); err != nil || cut { //nolint:contextcheck // the world looks for itself, also when who asked is gone
		panic(http.ErrAbortHandler)
	}
	body := bytes.ReplaceAll(answer.Body.Bytes(), []byte(d.cloud.URL), []byte(d.url))
	for name, values := range answer.Header() {
		out.Header()[name] = values
	}
	if answer.Code != http.StatusNoContent {
		out.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	out.WriteHeader(answer.Code)
	_, _ = out.Write(body) // who asked may be gone
}

// ask has the cloud carry out a request; cut says that it gives no answer.
func (d *door) ask(r *http.Request) (answer *httptest.ResponseRecorder, cut bool) {
	answer = httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil {
			if err, is := p.(error); !is || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			cut = true
		}
	}()
	d.cloud.Handler.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	return answer, false
}
