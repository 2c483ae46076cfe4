// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/kuryr-go/kuryr/openstacksim"
)

// directly hands requests to a cloud without a connection between.
type directly struct{ cloud *openstacksim.Cloud }

func (d directly) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &answerWriter{header: http.Header{}}
	inner := r.Clone(r.Context())
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	d.cloud.ServeHTTP(w, inner)
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
}

type answerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *answerWriter) Header() http.Header         { return w.header }
func (w *answerWriter) Write(b []byte) (int, error) { return w.body.Write(b) }
func (w *answerWriter) WriteHeader(status int)      { w.status = status }

// within is as, without a connection.
func within(t testing.TB, c *openstacksim.Cloud, user, project string) *client {
	t.Helper()
	return login(t, &client{t: t, url: c.URL(), http: &http.Client{Transport: directly{c}}}, user, project)
}
