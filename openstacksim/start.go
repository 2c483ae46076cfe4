// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// T is what Start needs of a test: *testing.T, *testing.B and *testing.F have it, and so may other
// test frameworks.
type T interface {
	Context() context.Context
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// Start runs a cloud on a free port of 127.0.0.1 until the test ends. A function may
// change the options, of which URL and Seed, which is 1, are given: the same test has
// the same IDs each time. It fails the test if New returns an error.
func Start(t T, change ...func(*Options)) *Cloud {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	o := Options{URL: "http://" + l.Addr().String(), Seed: 1}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	server := &http.Server{Handler: c, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		c.Close()
		_ = server.Close()
	})
	return c
}

// CloudsFile writes Clouds into a file that lasts as long as the test, and returns its
// path, for OS_CLIENT_CONFIG_FILE. OS_CLOUD is to be one of admin, kuryr and tenant.
func (c *Cloud) CloudsFile(t T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clouds.yaml")
	if err := os.WriteFile(path, c.Clouds(), 0o600); err != nil {
		t.Fatalf("writing clouds.yaml: %v", err)
	}
	return path
}
