// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// admin reaches the API server that TestMain started; nil if there is none.
var admin *rest.Config

// TestMain starts one API server for all tests: it takes seconds, and every
// test makes objects of its own.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return m.Run()
	}
	env := &envtest.Environment{
		CRDDirectoryPaths:     []string{"../../config/crd"},
		ErrorIfCRDPathMissing: true,
	}
	cfg, err := env.Start()
	defer func() { // whatever came of it: a refused definition leaves the server running
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the API server of KUBEBUILDER_ASSETS:", err)
		return 1
	}
	cfg.QPS, cfg.Burst = 1000, 1000
	admin = cfg
	return m.Run()
}

// connect returns a client of cfg, or of admin if cfg is nil.
func connect(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	needServer(t)
	if cfg == nil {
		cfg = admin
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func needServer(t *testing.T) {
	t.Helper()
	if admin == nil {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that KUBEBUILDER_ASSETS names; 'make envtest' builds them and says so")
	}
}
