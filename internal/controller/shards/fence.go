// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"net/http"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// unfenced is below which paths of the API server requests change nothing that an owner has: Leases,
// which say who owns what, and the question whether this process has a permission.
var unfenced = []string{"/apis/coordination.k8s.io/", "/apis/authorization.k8s.io/"}

// Fence returns a transport to the API server that refuses requests which may change something, as an
// sdn.ErrFenced, while g does not admit them. It is for rest.Config.Wrap.
func (g *Gate) Fence(next http.RoundTripper) http.RoundTripper { return fence{g, next} }

type fence struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || beyond(r.URL.Path) || f.gate.Admits() {
		return f.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // as the contract of RoundTripper wants
	}
	return nil, sdn.ErrFenced
}

// beyond reports whether a request is none of the fence's. Before /apis the URL may have a proxy's path.
func beyond(path string) bool {
	return slices.ContainsFunc(unfenced, func(p string) bool { return strings.Contains(path, p) })
}

// WrappedRoundTripper lets client-go find what it looks for in the transport below.
func (f fence) WrappedRoundTripper() http.RoundTripper { return f.next }
