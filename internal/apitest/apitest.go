// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package apitest gives tests an API server with Kuryr's types. It runs etcd and kube-apiserver
// from the folder that KUBEBUILDER_ASSETS names. If the variable is not set, tests that need an
// API server are skipped.
package apitest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// folder is the variable that names the folder of the programs.
const folder = "KUBEBUILDER_ASSETS"

// Run runs the tests of a package with one shared API server, because starting one takes seconds.
// It returns the exit code. Before the tests it calls use, which stores what they need of the
// server. Without an API server it does not call use.
func Run(m *testing.M, use func(*envtest.Environment) error) (code int) {
	if os.Getenv(folder) == "" {
		return m.Run()
	}
	complain := func(what string, err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, what, err)
			code = 1
		}
	}
	env, err := Another()
	defer func() {
		for _, env := range others {
			complain("stopping an API server:", env.Stop())
		}
	}()
	if err == nil {
		err = use(env)
	}
	if err != nil {
		complain("the API server of "+folder+":", err)
		return code
	}
	return m.Run()
}

// others are the additional API servers that Run stops.
var (
	others  []*envtest.Environment
	growing sync.Mutex
)

// Another starts one more API server, which runs until Run returns. Parallel tests may call it.
func Another() (*envtest.Environment, error) {
	env := server()
	growing.Lock()
	others = append(others, env)
	growing.Unlock()
	return env, begin(env)
}

// Start starts n API servers for one test, and stops them at its end.
func Start(t testing.TB, n int) []*envtest.Environment {
	t.Helper()
	Need(t)
	out := make([]*envtest.Environment, n)
	var g errgroup.Group
	for i := range out {
		out[i] = server()
		t.Cleanup(func() {
			if err := out[i].Stop(); err != nil {
				t.Error(err)
			}
		})
		g.Go(func() error { return begin(out[i]) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return out
}

// StartWith starts an API server for one test and stops it at the end. The server has only the
// Kuryr types in these files.
func StartWith(t testing.TB, files ...string) *envtest.Environment {
	t.Helper()
	Need(t)
	env := server()
	folder := env.CRDDirectoryPaths[0]
	env.CRDDirectoryPaths = nil
	for _, f := range files {
		env.CRDDirectoryPaths = append(env.CRDDirectoryPaths, filepath.Join(folder, f))
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := begin(env); err != nil {
		t.Fatal(err)
	}
	return env
}

// Need skips a test if the programs of an API server are missing.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(folder) == "" {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that " + folder + " names; 'make envtest' builds them and says so")
	}
}

// ClusterIPs is the range of the cluster IPs of Services.
const ClusterIPs = "10.0.0.0/16"

// ClusterIPs6 is the range of the IPv6 cluster IPs, for Services that ask for one.
const ClusterIPs6 = "fd00:10:96::/112"

func server() *envtest.Environment {
	env := &envtest.Environment{CRDDirectoryPaths: []string{definitions()}, ErrorIfCRDPathMissing: true}
	env.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", ClusterIPs+","+ClusterIPs6)
	return env
}

// begin starts env. The caller must stop env even after an error: a refused definition leaves it
// running. Clients of its Config have no rate limit.
func begin(env *envtest.Environment) error {
	cfg, err := env.Start()
	if err != nil {
		return fmt.Errorf("starting kube-apiserver and etcd: %w", err)
	}
	cfg.QPS = -1
	return nil
}

// definitions returns the folder of Kuryr's CRDs, in the module of the tests. Tests run in the
// folder of their package.
func definitions() string {
	const crds = "config/crd"
	for up := ""; ; up += "../" {
		if _, err := os.Stat(up + "go.mod"); err == nil || len(up) > 100 {
			return filepath.Join(up, crds)
		}
	}
}
