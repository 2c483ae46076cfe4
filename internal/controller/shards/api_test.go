// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kuryr-go/kuryr/internal/controller/shards"
)

// leads is a Leader; the empty one is not known.
type leads string

func (l leads) Leader() (string, bool) { return string(l), l != "" }

func TestLeaderHandler(t *testing.T) {
	for _, test := range []struct {
		leader       leads
		method, path string
		status       int
		kind, body   string
	}{
		{"kuryr-controller-1", "GET", "/", 200, "application/json", `{"name":"kuryr-controller-1"}`},
		{`odd"name`, "GET", "/?x=y", 200, "application/json", `{"name":"odd\"name"}`},
		{"", "GET", "/", 503, "text/plain; charset=utf-8", "no leader is known yet: this controller has not read the Leases"},
		{"a", "GET", "/name", 404, "text/plain; charset=utf-8", "404 page not found"},
		{"a", "POST", "/", 405, "text/plain; charset=utf-8", "Method Not Allowed"},
		{"a", "DELETE", "/", 405, "text/plain; charset=utf-8", "Method Not Allowed"},
	} {
		w := httptest.NewRecorder()
		shards.LeaderHandler(test.leader).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), test.method, test.path, nil))
		if body := strings.TrimSpace(w.Body.String()); w.Code != test.status || w.Header().Get("Content-Type") != test.kind || body != test.body {
			t.Errorf("%s %s: %d %s %q, want %d %s %q", test.method, test.path, w.Code, w.Header().Get("Content-Type"), body, test.status, test.kind, test.body)
		}
	}
}

// The server answers in a replica that does not lead, and ends with its context, whoever is connected.
func TestLeaderServer(t *testing.T) {
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := shards.LeaderServer(address, leads("a")).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "--leader-api-bind-address: listen tcp "+address) {
		t.Errorf("at an address in use: %v, want an error with flag and address", err)
	}
	_ = free.Close()
	server := shards.LeaderServer(address, leads("a"))
	if l, ok := server.(manager.LeaderElectionRunnable); !ok || l.NeedLeaderElection() {
		t.Error("the server waits for the leadership")
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	var silent net.Conn
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if silent, err = new(net.Dialer).DialContext(t.Context(), "tcp", address); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer func() { _ = silent.Close() }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || strings.TrimSpace(string(body)) != `{"name":"a"}` {
		t.Errorf("GET /: %q, %v", body, err)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the end of the server: %v", err)
		}
	case <-time.After(3 * time.Second):
		t.Error("the server goes on after the end of its context")
	}
}

func TestNoLeaderServer(t *testing.T) {
	if err := shards.LeaderServer("0", nil).Start(t.Context()); err != nil {
		t.Errorf("at no address: %v", err)
	}
}
