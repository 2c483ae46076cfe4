// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package apitest gives tests an API server that has Kuryr's types: etcd and
// kube-apiserver of the folder that KUBEBUILDER_ASSETS names. Without them the
// tests that need one skip.
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

// folder is the variable that names where the programs are.
const folder = "KUBEBUILDER_ASSETS"

// Run runs the tests of a package with one API server that they share, as starting
// one takes seconds, and returns the code to exit with. Before the tests it calls
// use, which keeps of the server what they need; without a server it does not.
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

// others are the API servers that Run stops.
var (
	others  []*envtest.Environment
	growing sync.Mutex
)

// Another starts one more API server, which runs until Run returns. It may be called
// by tests that run side by side.
func Another() (*envtest.Environment, error) {
	env := server()
	growing.Lock()
	others = append(others, env)
	growing.Unlock()
	return env, begin(env)
}

// Start starts n API servers for one test, and stops them with it.
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

// StartWith starts an API server for one test that has of Kuryr's types these alone,
// by the names of their files, and stops it with the test.
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

// Need skips a test if there is nothing to start an API server of.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(folder) == "" {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that " + folder + " names; 'make envtest' builds them and says so")
	}
}

// ClusterIPs is where the API server takes those of Services from.
const ClusterIPs = "10.0.0.0/16"

func server() *envtest.Environment {
	env := &envtest.Environment{CRDDirectoryPaths: []string{definitions()}, ErrorIfCRDPathMissing: true}
	env.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", ClusterIPs)
	return env
}

// begin starts env, which has to be stopped whatever comes of it: a refused
// definition leaves it running. Clients of its Config wait for nobody.
func begin(env *envtest.Environment) error {
	cfg, err := env.Start()
	if err != nil {
		return fmt.Errorf("starting kube-apiserver and etcd: %w", err)
	}
	cfg.QPS = -1
	return nil
}

// definitions is the folder of Kuryr's types, in the module that the tests are of:
// they run in the folder of their package.
func definitions() string {
	const crds = "config/crd"
	for up := ""; ; up += "../" {
		if _, err := os.Stat(up + "go.mod"); err == nil || len(up) > 100 {
			return filepath.Join(up, crds)
		}
	}
}
