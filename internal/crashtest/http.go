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

// HTTPCloud is a cloud with an HTTP API.
type HTTPCloud struct {
	// Handler is the cloud. Its catalogue and links name URL as its address.
	Handler http.Handler
	URL     string
	// Name names a request for begin.
	Name func(*http.Request) Call
}

// Serve returns a URL at which the process of ctx reaches the cloud, until the process ends. Each
// process has a server of its own, so that late requests of an old process are not taken for the
// new one's.
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

// door connects one process to an HTTP cloud.
type door struct {
	w     *World
	p     *process
	cloud HTTPCloud
	url   string
}

// ServeHTTP implements http.Handler. A request that was sent arrives, even if its sender has
// ended.
func (d *door) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	x, err := d.w.beginCloud(d.p, d.cloud.Name(r))
	var answer *httptest.ResponseRecorder
	var cut bool
	if err == nil {
		answer, cut = d.ask(r)
		err = d.w.endCloud(x) //nolint:contextcheck // the world looks for itself, also when who asked is gone
	}
	if status := answeredError(0); errors.As(err, &status) {
		http.Error(out, "{}", int(status))
		return
	}
	if err != nil || cut {
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
	_, _ = out.Write(body) // the sender may have ended
}

// ask lets the cloud carry out a request. cut reports that the cloud gives no answer.
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
