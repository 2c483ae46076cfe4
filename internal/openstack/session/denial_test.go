// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// A refused password is offered less and less often. Another one is offered at once, and after it
// was accepted the pauses are short again. Nobody is told a password.
func TestRefusedCredential(t *testing.T) {
	cloud := openstacksim.Start(t)
	file := cloud.CloudsFile(t)
	c, err := New(Config{Cloud: "kuryr", CloudsFile: file, RequestTimeout: time.Minute, RequestsPerSecond: 1000, MaxConcurrent: 8, PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	c.login.now = func() time.Time { return now }
	logins := func() int { return cloud.Count("POST", "auth/tokens") }
	ask := func() error {
		_, err := c.Project(t.Context())
		if err != nil && (!errors.Is(err, sdn.ErrLogin) || strings.Contains(err.Error(), openstacksim.Password) || strings.Contains(err.Error(), "rotated")) {
			t.Errorf("%v, want ErrLogin without a password", err)
		}
		return err
	}
	lose := func() { c.login.last = nil } // as when the token expires
	rotate := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), from, to)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pauses := func(want ...time.Duration) {
		t.Helper()
		for _, pause := range want {
			before := logins()
			if ask() == nil || logins() != before+1 {
				t.Errorf("%d logins, want one that is refused", logins()-before)
			}
			now = now.Add(pause - time.Millisecond)
			if ask() == nil || logins() != before+1 {
				t.Errorf("%d logins within %s, want one", logins()-before, pause)
			}
			now = now.Add(time.Millisecond)
		}
	}
	if err := cloud.SetPassword("kuryr", "rotated"); err != nil {
		t.Fatal(err)
	}
	pauses(10*time.Second, 20*time.Second, 40*time.Second, 80*time.Second, 160*time.Second, 5*time.Minute, 5*time.Minute)
	if ask() == nil {
		t.Error("the old password is accepted")
	}

	before := logins()
	rotate(openstacksim.Password, "other")
	now = now.Add(changeCheck)
	if ask() == nil || logins() != before+1 {
		t.Errorf("%d logins after the first change, want one", logins()-before)
	}
	rotate("other", "rotated")
	now = now.Add(changeCheck)
	if err := ask(); err != nil || logins() != before+2 {
		t.Errorf("after the second change: %v, %d logins; want none refused", err, logins()-before)
	}

	lose()
	if err := cloud.SetPassword("kuryr", "once more"); err != nil {
		t.Fatal(err)
	}
	pauses(10*time.Second, 20*time.Second)
}

// An answer that refuses no credential locks no account: the pause does not grow.
func TestLoginThatIsNoRefusal(t *testing.T) {
	cloud := openstacksim.Start(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error": {"code": 400, "title": "Bad Request", "message": "The request is malformed"}}`))
	}))
	t.Cleanup(proxy.Close)
	file := cloud.CloudsFile(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`auth_url: .*`).ReplaceAllString(string(text), "auth_url: "+proxy.URL)
	if asked == string(text) {
		t.Fatalf("no auth_url in %s", text)
	}
	if err := os.WriteFile(file, []byte(asked), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Cloud: "kuryr", CloudsFile: file, RequestTimeout: time.Minute, RequestsPerSecond: 1000, MaxConcurrent: 8, PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := c.Project(t.Context()); !errors.Is(err, sdn.ErrLogin) {
			t.Errorf("%v, want ErrLogin", err)
		}
		if pause := c.login.refused.pause; pause != shortestPause {
			t.Errorf("pause %s, want %s", pause, shortestPause)
		}
		c.login.refused.until = time.Time{}
	}
}

// An entry that is not there is refused without a login, and offered once it is.
func TestMissingCredential(t *testing.T) {
	cloud := openstacksim.Start(t)
	file := cloud.CloudsFile(t)
	c, err := New(Config{Cloud: "kuryr", CloudsFile: file, RequestTimeout: time.Minute, RequestsPerSecond: 1000, MaxConcurrent: 8, PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	c = c.As("later", "")
	now := time.Unix(1e9, 0)
	c.login.now = func() time.Time { return now }
	for range 3 {
		if _, err := c.Project(t.Context()); !errors.Is(err, sdn.ErrLogin) || cloud.Count("POST", "auth/tokens") > 0 {
			t.Errorf("without the entry: %v", err)
		}
		now = now.Add(changeCheck)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "kuryr:", "later:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(changeCheck)
	if _, err := c.Project(t.Context()); err != nil {
		t.Errorf("with the entry: %v", err)
	}
}

// While Neutron is away, a login is made each ten seconds at most, and at once after a change of the
// file of cacert or of clouds.yaml. The token of before stays in use.
func TestRenewalPauses(t *testing.T) {
	var cloud *openstacksim.Cloud
	var away atomic.Bool
	away.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() && strings.HasPrefix(r.URL.Path, "/networking") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		cloud.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	cloud, err := openstacksim.New(openstacksim.Options{URL: server.URL, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cloud.Close)
	file := cloud.CloudsFile(t)
	c, err := New(Config{Cloud: "kuryr", CloudsFile: file, RequestTimeout: time.Minute, RequestsPerSecond: 1000, MaxConcurrent: 8, PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	c.login.now = func() time.Time { return now }
	for _, step := range []struct {
		after  time.Duration
		from   string // of clouds.yaml
		to     string
		logins int // in all
	}{
		{0, "", "", 2}, {time.Second, "", "", 2}, {8 * time.Second, "", "", 2}, {time.Second, "", "", 3}, {9 * time.Second, "", "", 3},
		{time.Second, "", "", 4}, {time.Second, "    auth:", "    interface: internal\n    auth:", 5}, {time.Second, "", "", 5},
		{time.Second, "interface: internal", "verify: false", 6}, {time.Hour, "", "", 7},
	} {
		now = now.Add(step.after)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), cmp.Or(step.from, "\x00"), step.to)), 0o600); err != nil {
			t.Fatal(err)
		}
		c.throttle.open, c.throttle.failed = false, 0 // this request is to be sent
		err = c.Do(t.Context(), Request{Method: http.MethodGet, Path: []string{"ports"}})
		if got := cloud.Count("POST", "auth/tokens"); !errors.Is(err, sdn.ErrUnavailable) || got != step.logins {
			t.Errorf("after %s, with %q: %v, %d logins; want ErrUnavailable, %d", step.after, step.to, err, got, step.logins)
		}
	}
	away.Store(false)
	c.throttle.open = false
	if err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: []string{"ports"}}); err != nil || cloud.Count("POST", "auth/tokens") != 7 {
		t.Errorf("afterwards: %v, %d logins; want no other", err, cloud.Count("POST", "auth/tokens"))
	}
}
