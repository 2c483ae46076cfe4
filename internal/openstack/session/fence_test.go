// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// fence admits the first requests only.
type fence struct{ left atomic.Int32 }

func (f *fence) Admits() bool { return f.left.Add(-1) >= 0 }

// behind returns a client with a fence that admits n questions, and its cloud. answer may answer a
// request in place of the cloud.
func behind(t *testing.T, n int32, answer func(http.ResponseWriter, *http.Request) bool) (*Client, *openstacksim.Cloud) {
	t.Helper()
	var cloud *openstacksim.Cloud
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer == nil || !answer(w, r) {
			cloud.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	cloud, err := openstacksim.New(openstacksim.Options{URL: server.URL, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cloud.Close)
	f := &fence{}
	f.left.Store(n)
	c, err := New(Config{Cloud: "kuryr", CloudsFile: cloud.CloudsFile(t), RequestTimeout: time.Minute, RequestsPerSecond: 1000, Fence: f})
	if err != nil {
		t.Fatal(err)
	}
	return c, cloud
}

func wantFenced(t *testing.T, what string, err error) {
	t.Helper()
	after, busy := sdn.RetryAfter(err)
	if !errors.Is(err, sdn.ErrFenced) || !errors.Is(err, sdn.ErrUnavailable) || !busy || after > time.Second {
		t.Errorf("%s: %v, again after %s, want ErrFenced and soon", what, err, after)
	}
	if err != nil && err.Error() != "this process may not write: its Lease was not renewed in time" {
		t.Errorf("%s says %q", what, err)
	}
}

// While the fence admits nothing, no request is sent that changes something. This is no outage: the
// process reads, with a login for it, and each refusal leaves the throttle as it was.
func TestFence(t *testing.T) {
	c, cloud := behind(t, 0, nil)
	for range 2 * awayAfter {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
			for _, to := range []string{"", Octavia} {
				wantFenced(t, method+to, c.Do(t.Context(), Request{To: to, Method: method, Path: []string{"ports", "p"}}))
			}
		}
	}
	if err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: []string{"ports"}}); err != nil {
		t.Errorf("GET: %v, want it sent", err)
	}
	for _, l := range []*throttle{c.throttle, c.balancerThrottle} {
		if l.failed != 0 || l.open || len(l.slots.taken) != 0 {
			t.Errorf("%s: %d failures, away: %t, %d places taken, want none", l.service, l.failed, l.open, len(l.slots.taken))
		}
	}
	for _, r := range cloud.Calls() {
		if r.Method != http.MethodGet && !strings.HasSuffix(r.Path, "auth/tokens") {
			t.Errorf("the cloud got %s %s", r.Method, r.Path)
		}
	}
}

// A fence that admits nothing any more after the wait for leave stops the request, and gives its place
// back. That was no answer, so an outage lasts.
func TestFenceAfterTheWait(t *testing.T) {
	c, cloud := behind(t, 1, nil)
	c.throttle.failed = awayAfter - 1
	wantFenced(t, "POST", c.Do(t.Context(), Request{Method: http.MethodPost, Path: []string{"ports"}, Creates: true}))
	if n := cloud.Count("POST", "ports"); n != 0 || len(c.throttle.slots.taken) != 0 || c.throttle.failed != awayAfter-1 {
		t.Errorf("%d requests sent, %d places taken, %d failures, want 0, 0, %d", n, len(c.throttle.slots.taken), c.throttle.failed, awayAfter-1)
	}
}

// A request is not repeated behind the fence: after a token that has expired, after a closed connection.
func TestFenceBeforeEachTry(t *testing.T) {
	for name, spoil := range map[string]func(http.ResponseWriter){
		"expired token":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) },
		"closed connection": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		var sent atomic.Int32
		c, _ := behind(t, 2, func(w http.ResponseWriter, r *http.Request) bool { // two questions for one try
			if r.Method != http.MethodDelete {
				return false
			}
			sent.Add(1)
			spoil(w)
			return true
		})
		wantFenced(t, name, c.Do(t.Context(), Request{Method: http.MethodDelete, Path: []string{"ports", "p"}}))
		if sent.Load() != 1 {
			t.Errorf("%s: sent %d times, want once", name, sent.Load())
		}
	}
}
