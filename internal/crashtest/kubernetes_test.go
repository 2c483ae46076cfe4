// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// fated returns a process whose first write meets a fate, and a way to send requests as it.
func fated(t *testing.T, f Fate, server *httptest.Server) (*process, func(method, path string) (status int, body io.Reader, err error)) {
	t.Helper()
	p := &process{trail: &trail{}, aim: &aim{fate: f, at: 1}, cancel: func() {}, over: make(chan struct{}), away: make(chan struct{}), writes: map[string]int{}}
	return p, func(method, path string) (int, io.Reader, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&kubernetes{p, http.DefaultTransport}).RoundTrip(r)
		if err != nil {
			return 0, nil, err
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer.StatusCode, answer.Body, nil
	}
}

// FailedAfter lets the write take effect. The process gets an error, and goes on.
func TestFailedAfter(t *testing.T) {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer server.Close()
	_, send := fated(t, FailedAfter, server)
	for i, want := range []int{http.StatusInternalServerError, http.StatusOK} {
		status, _, err := send(http.MethodPatch, "/api/v1/pods/a")
		if err != nil || status != want || int(arrived.Load()) != i+1 {
			t.Errorf("write %d: status %d, %v; want %d; %d writes arrived", i+1, status, err, want, arrived.Load())
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
	t.Cleanup(server.Close)
	p, send := fated(t, APIServerAway, server)
	_, watch, err := send(http.MethodGet, "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	x, err := p.begin(Call{To: TheCloud, What: "POST ports", Write: true})
	if err == nil {
		err = x.end()
	}
	if err != nil {
		t.Errorf("the write to the cloud has the answer %v, want none of the world", err)
	}
	if answer, err := io.ReadAll(watch); err == nil {
		t.Errorf("the watch goes on with %q", answer)
	}
	if _, _, err := send(http.MethodGet, "/api/v1/pods"); !errors.Is(err, errLost) {
		t.Errorf("a request has the answer %v, want %v", err, errLost)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, watch, err = send(http.MethodGet, "/api/v1/pods?watch=true"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	close(end)
	if got, err := io.ReadAll(watch); err != nil || string(got) != "event" {
		t.Errorf("the later watch has %q, %v", got, err)
	}
}
