// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kuryr-go/kuryr/internal/apitest"
)

// admin reaches the API server that TestMain started; nil if there is none.
var admin *rest.Config

func TestMain(m *testing.M) {
	os.Exit(apitest.Run(m, func(env *envtest.Environment) error {
		admin = env.Config
		return nil
	}))
}

// connect returns a client of cfg, or of admin if cfg is nil.
func connect(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	apitest.Need(t)
	if cfg == nil {
		cfg = admin
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
