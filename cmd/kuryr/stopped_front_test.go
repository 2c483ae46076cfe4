// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// front is before the API server and the cloud. It knows which process sends a request by the first part
// of its path, records what changes something, and can keep the requests of a process back.
type front struct {
	server *url.URL          // the API server
	to     http.RoundTripper // to it
	sim    *openstacksim.Cloud

	mu     sync.Mutex
	held   map[string]chan struct{} // processes whose requests are kept back, until it is closed
	tokens map[string]string        // of the cloud, to the process that has logged in
	uids   map[string]string        // of the Leases of the processes, by process
	tables []table                  // all, in their order
	writes []write
}

// table is a state of the table, and who wrote it.
type table struct {
	shard.Table
	by string
}

// write is a request that was to change something.
type write struct {
	by, class string // the process, and what it was to do
	bucket    int    // of its key; -1: unknown
	pinned    bool   // it carried a version, so that it fails if the object has changed
	status    int
	known     uint64 // version of the newest table when it reached the API server or the cloud
	version   uint64 // the object's after it; 0: unknown
}

// prefix is the path below which a process finds the API server and the cloud.
func prefix(process string) string { return "/as/" + process }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	by, below := "", r.URL.Path
	if rest, is := strings.CutPrefix(below, "/as/"); is {
		by, below, _ = strings.Cut(rest, "/")
		below = "/" + below
	}
	identity := strings.HasPrefix(below, "/identity")
	if by == "" || identity {
		r.URL.Path = below
		f.cloud(w, r, by)
		return
	}
	if r.Method == http.MethodGet {
		(&httputil.ReverseProxy{Transport: f.to, FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.URL.Path, p.Out.URL.RawPath = f.server.Scheme, f.server.Host, below, ""
		}}).ServeHTTP(w, r)
		return
	}
	f.change(w, r, by, below)
}

// hold keeps requests of a process back that may change something, until release is called.
func (f *front) hold(process string) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ch := make(chan struct{})
	f.held[process] = ch
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.held, process)
		close(ch)
	}
}

// begin waits while requests of a process are kept back, and returns the newest table's version.
func (f *front) begin(process string) uint64 {
	f.mu.Lock()
	ch := f.held[process]
	f.mu.Unlock()
	if ch != nil {
		<-ch
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.tables) == 0 {
		return 0
	}
	return f.tables[len(f.tables)-1].Version
}

// change forwards a write to the API server. It is executed also if the client has given up meanwhile.
func (f *front) change(w http.ResponseWriter, r *http.Request, by, below string) {
	body, _ := io.ReadAll(r.Body)
	known := f.begin(by)
	to := *r.URL
	to.Scheme, to.Host, to.Path, to.RawPath = f.server.Scheme, f.server.Host, below, ""
	out := (&http.Request{Method: r.Method, URL: &to, Header: r.Header.Clone(), Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}).
		WithContext(context.WithoutCancel(r.Context()))
	out.Header.Set("Accept", "application/json") // not Protobuf, so that it can be read here
	out.Header.Del("Accept-Encoding")
	answer, err := f.to.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	got, _ := io.ReadAll(answer.Body)
	f.note(write{
		by: by, class: classOf(r, below), bucket: -1, status: answer.StatusCode, known: known,
		pinned: bytes.Contains(body, []byte(`"resourceVersion":"`)),
	}, below, got)
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(got)
}

// note records an answered write to the API server.
func (f *front) note(of write, below string, answer []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.Contains(below, "/leases") {
		var lease coordinationv1.Lease
		if of.status >= 300 || json.Unmarshal(answer, &lease) != nil || lease.Kind != "Lease" {
			return
		}
		if lease.Name != shards.TableName {
			f.uids[of.by] = string(lease.UID)
			return
		}
		t := table{by: of.by}
		if json.Unmarshal([]byte(lease.Annotations["openstack.org/owners"]), &t.Table) == nil {
			t.Version, _ = strconv.ParseUint(lease.ResourceVersion, 10, 64)
			f.tables = append(f.tables, t)
			slices.SortFunc(f.tables, func(a, b table) int { return cmp.Compare(a.Version, b.Version) })
		}
		return
	}
	var object struct {
		Kind     string
		Metadata metav1.ObjectMeta
		Spec     struct {
			NodeName string
			Key      struct{ NodeName string }
		}
	}
	if of.status < 300 && json.Unmarshal(answer, &object) == nil {
		of.version, _ = strconv.ParseUint(object.Metadata.ResourceVersion, 10, 64)
		switch object.Kind {
		case "KuryrPort", "Pod":
			of.bucket = shard.Bucket("node", object.Spec.NodeName)
		case "KuryrPortPool":
			of.bucket = shard.Bucket("node", object.Spec.Key.NodeName)
		case "KuryrLoadBalancer", "Service":
			of.bucket = shard.Bucket("namespace", object.Metadata.Namespace)
		}
	}
	f.writes = append(f.writes, of)
}

// classOf names what a request does, as "PATCH kuryrports status kuryr-port".
func classOf(r *http.Request, below string) string {
	parts := strings.Split(strings.Trim(below, "/"), "/")
	parts = parts[map[string]int{"api": 2, "apis": 3}[parts[0]]:] // api/VERSION or apis/GROUP/VERSION
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	words := []string{r.Method, parts[0]}
	if len(parts) > 2 {
		words = append(words, parts[2])
	}
	if by := r.URL.Query().Get("fieldManager"); by != "" {
		words = append(words, by)
	}
	return strings.Join(words, " ")
}

// cloud serves a request to the cloud. A process is known by its token.
func (f *front) cloud(w http.ResponseWriter, r *http.Request, by string) {
	if by != "" {
		f.sim.ServeHTTP(w, r)
		if token := w.Header().Get("X-Subject-Token"); token != "" {
			f.mu.Lock()
			f.tokens[token] = by
			f.mu.Unlock()
		}
		return
	}
	f.mu.Lock()
	by = f.tokens[r.Header.Get("X-Auth-Token")]
	f.mu.Unlock()
	if by == "" || r.Method == http.MethodGet {
		f.sim.ServeHTTP(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	known := f.begin(by)
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	to := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	f.sim.ServeHTTP(to, r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, write{by: by, class: "cloud " + r.Method + " " + resourceOf(r.URL.Path), bucket: -1, status: to.status, known: known, pinned: r.Header.Get("If-Match") != ""})
}

// resourceOf returns a path of the cloud without its version and IDs.
func resourceOf(of string) string {
	parts := strings.Split(strings.Trim(path.Clean(of), "/"), "/")
	parts = slices.DeleteFunc(parts, func(p string) bool {
		return len(p) > 30 || strings.HasPrefix(p, "v2") || p == "networking" || p == "load-balancer" || p == "lbaas"
	})
	return strings.Join(parts, "/")
}

// statusWriter keeps the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// newest returns the newest table.
func (f *front) newest() (t table) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.tables); n > 0 {
		t = f.tables[n-1]
	}
	return t
}

// uid returns the UID of a process's Lease, empty if it has not joined.
func (f *front) uid(process string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uids[process]
}

// transport returns the way to an API server.
func transport(cluster *rest.Config) (http.RoundTripper, error) {
	direct := rest.CopyConfig(cluster)
	direct.NextProtos = []string{"http/1.1"} // one connection a request, as many as are needed
	return rest.TransportFor(direct)
}
