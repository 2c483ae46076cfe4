// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// front is a simulator behind something that answers otherwise.
type front struct {
	*httptest.Server
	cloud *openstacksim.Cloud

	mu       sync.Mutex
	requests map[string]int // of the load-balancing API: method and path without IDs
	// before may answer a request itself, and then returns true.
	before func(w http.ResponseWriter, r *http.Request, body object) bool
	// rename is what the provider amphora is called here; empty: amphora.
	rename string
}

func newFront(t *testing.T, change ...func(*openstacksim.Options)) *front {
	f := &front{requests: map[string]int{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	o := openstacksim.Options{URL: f.URL, Seed: 1, Amphora: true}
	for _, c := range change {
		c(&o)
	}
	var err error
	f.cloud, err = openstacksim.New(o)
	must(t, err)
	t.Cleanup(f.cloud.Close)
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", f.cloud.CloudsFile(t))
	return f
}

// recent has an Octavia in which amphora makes a load balancer with its children by one request.
func recent(o *openstacksim.Options) { o.Release = "2025.1" }

// services returns what the contract wants of the simulator behind f.
func (f *front) services(t *testing.T, change ...func(*openstack.Config)) *realServices {
	r := newRealServices(t, false)
	r.wreck = simulated{f.cloud}
	r.change = append(change, func(c *openstack.Config) { c.RequestsPerSecond = 5000 })
	return r
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	if f.rename != "" {
		text = bytes.ReplaceAll(text, []byte(`"`+f.rename+`"`), []byte(`"amphora"`))
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	var body object
	_ = json.Unmarshal(text, &body)
	if path, ok := strings.CutPrefix(r.URL.Path, "/load-balancer/v2.0/lbaas/"); ok {
		f.count(r.Method, path)
	}
	if f.before != nil && f.before(w, r, body) {
		return
	}
	if f.rename == "" {
		f.cloud.ServeHTTP(w, r)
		return
	}
	kept := httptest.NewRecorder()
	f.cloud.ServeHTTP(kept, r)
	answer := bytes.ReplaceAll(kept.Body.Bytes(), []byte(`"amphora"`), []byte(`"`+f.rename+`"`))
	for k, v := range kept.Header() {
		w.Header()[k] = v
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(kept.Code)
	_, _ = w.Write(answer)
}

func (f *front) count(method, path string) {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if len(p) == 36 {
			parts[i] = "ID"
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests[method+" "+strings.Join(parts, "/")]++
}

// asked returns what was asked of the load-balancing API since the last time;
// writes leaves out what changes nothing.
func (f *front) asked(writes bool) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for k, n := range f.requests {
		if !writes || !strings.HasPrefix(k, http.MethodGet) {
			out[k] = n
		}
	}
	f.requests = map[string]int{}
	return out
}

// says answers as Octavia refuses.
func says(w http.ResponseWriter, status int, format string, args ...any) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"faultcode": "Client", "faultstring": fmt.Sprintf(format, args...), "debuginfo": nil})
	return true
}
