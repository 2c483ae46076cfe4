// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kuryr-go/kuryr/internal/apitest"
)

// apiServer is the API server of the tests that run one after the other, before all
// others do.
var apiServer *rest.Config

// servers has the API servers of the tests that run beside others.
var servers sync.Map // testing.TB to *rest.Config

// lanes is how many tests that take turns run side by side, as most of a test is
// waiting. (go test -parallel bounds it, too.)
const lanes = 3

var (
	idle    = make(chan *rest.Config, lanes) // API servers that nobody uses
	started = new(atomic.Int32)              // how many take turns
)

// turn has a test run beside others, on an API server that nobody else uses meanwhile,
// unless it has one or is alone. The objects of earlier tests may be there.
func turn(t testing.TB) {
	t.Helper()
	apitest.Need(t)
	test, ok := t.(interface{ Parallel() })
	if _, has := servers.Load(t); has || !ok || isAlone(t) {
		return
	}
	test.Parallel()
	own := free(t)
	servers.Store(t, own)
	t.Cleanup(func() {
		servers.Delete(t)
		idle <- own
	})
}

func free(t testing.TB) *rest.Config {
	t.Helper()
	select {
	case c := <-idle:
		return c
	default:
	}
	if started.Add(1) > lanes {
		return <-idle
	}
	env, err := apitest.Another()
	if err != nil {
		t.Fatal(err)
	}
	return env.Config
}

// everyLane returns the API servers of all that take turns, for a test that does not:
// it runs before them, and needs none started anew.
func everyLane(t testing.TB) []*rest.Config {
	t.Helper()
	for started.Load() < lanes {
		env, err := apitest.Another()
		if err != nil {
			t.Fatal(err)
		}
		started.Add(1)
		idle <- env.Config
	}
	var all []*rest.Config
	for range lanes {
		all = append(all, <-idle)
	}
	for _, c := range all {
		idle <- c
	}
	return all
}

// apart has a test run beside others with an API server of its own: for those that
// leave much behind, or stop it.
func apart(t *testing.T) {
	t.Helper()
	apitest.Need(t)
	t.Parallel()
	servers.Store(t, apitest.Start(t, 1)[0].Config)
}

// lonely are the names of the tests that are alone.
var lonely sync.Map

// alone has a test, and those in it, run beside no other one: for those that look at
// what is the process's, as metrics are.
func alone(t *testing.T) {
	t.Helper()
	lonely.Store(t.Name(), true)
}

func isAlone(t testing.TB) bool {
	name, _, _ := strings.Cut(t.Name(), "/")
	_, is := lonely.Load(name)
	return is
}

// serverOf returns the API server that a test uses.
func serverOf(t testing.TB) *rest.Config {
	if own, ok := servers.Load(t); ok {
		return own.(*rest.Config)
	}
	return apiServer
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(apitest.Run(m, func(env *envtest.Environment) error {
		apiServer = env.Config
		started.Add(1)
		idle <- env.Config
		return nil
	}))
}
