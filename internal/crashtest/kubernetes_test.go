// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// fated returns a process whose first write meets a fate, and a way to send requests as it.
func fated(t *testing.T, f Fate, server *httptest.Server) (*process, func(method, path string) (*http.Response, error)) {
	t.Helper()
	p := &process{trail: &trail{}, fate: f, at: 1, cancel: func() {}, over: make(chan struct{}), away: make(chan struct{}), writes: map[string]int{}}
	return p, func(method, path string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(context.Background(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return (&kubernetes{p, http.DefaultTransport}).RoundTrip(r)
	}
}

// FailedAfter lets the write take effect. The process gets an error, and goes on.
func TestFailedAfter(t *testing.T) {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer server.Close()
	_, send := fated(t, FailedAfter, server)
	for i, want := range []int{http.StatusInternalServerError, http.StatusOK} {
		answer, err := send(http.MethodPatch, "/api/v1/pods/a")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want || int(arrived.Load()) != i+1 {
			t.Errorf("write %d: status %d, want %d; %d writes arrived", i+1, answer.StatusCode, want, arrived.Load())
		}
	}
}

// APIServerAway ends watches and refuses requests for a while. Watches that begin later last.
func TestAPIServerAway(t *testing.T) {
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		if r.URL.Query().Has("watch") {
			<-end
			_, _ = io.WriteString(w, "event")
		}
	}))
	defer server.Close()
	p, send := fated(t, APIServerAway, server)
	watch, err := send(http.MethodGet, "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	x, err := p.begin(Call{To: TheCloud, What: "POST ports", Write: true})
	if err == nil {
		err = x.end()
	}
	if err != nil {
		t.Errorf("the write to the cloud has the answer %v, want none of the world", err)
	}
	if answer, err := io.ReadAll(watch.Body); err == nil {
		t.Errorf("the watch goes on with %q", answer)
	}
	if _, err := send(http.MethodGet, "/api/v1/pods"); !errors.Is(err, errLost) { //nolint:bodyclose // it must fail
		t.Errorf("a request has the answer %v, want %v", err, errLost)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if watch, err = send(http.MethodGet, "/api/v1/pods?watch=true"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer watch.Body.Close()
	close(end)
	if got, err := io.ReadAll(watch.Body); err != nil || string(got) != "event" {
		t.Errorf("the later watch has %q, %v", got, err)
	}
}
