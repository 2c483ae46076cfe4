// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// apiServer is the API server of the tests that run one after the other, before all others.
var apiServer *rest.Config

// servers has the API servers of the tests that run in parallel.
var servers sync.Map // testing.TB to *rest.Config

// lanes is how many tests run in parallel, each on an API server of its own: most of a test is
// waiting. `go test -parallel` limits it, too.
const lanes = 4

var (
	idle    = make(chan *rest.Config, lanes) // API servers that no test uses
	started = new(atomic.Int32)              // number of lanes in use
)

// turn lets a test run in parallel with others, on an API server that no other test uses meanwhile.
// It does nothing for a test that has an API server or is alone. The objects of earlier tests may
// exist.
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

// everyLane returns the API servers of all lanes, for a test without a lane. Such a test runs
// before them, and needs no new API server.
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

// apart lets a test run in parallel with an API server of its own. It is for tests that leave many
// objects, or stop the API server.
func apart(t *testing.T) {
	t.Helper()
	apitest.Need(t)
	t.Parallel()
	servers.Store(t, apitest.Start(t, 1)[0].Config)
}

// lonely are the names of the tests that run alone.
var lonely sync.Map

// alone lets a test and its subtests run without others. It is for tests that check state of the
// process, such as metrics.
func alone(t *testing.T) {
	t.Helper()
	lonely.Store(t.Name(), true)
}

func isAlone(t testing.TB) bool {
	name, _, _ := strings.Cut(t.Name(), "/")
	_, is := lonely.Load(name)
	return is
}

// serverOf returns the API server of a test.
func serverOf(t testing.TB) *rest.Config {
	if own, ok := servers.Load(t); ok {
		return own.(*rest.Config)
	}
	return apiServer
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if hashed {
		kube.Reword = func(message string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(message))) }
	}
	os.Exit(apitest.Run(m, func(env *envtest.Environment) error {
		apiServer = env.Config
		started.Add(1)
		idle <- env.Config
		return nil
	}))
}

// hashed replaces the message of each condition by its hash (`make hashed`). Tests that still pass
// do not depend on words.
var hashed = os.Getenv("KURYR_HASH_MESSAGES") != ""

// wording marks a test that is about the words of messages.
func wording(t testing.TB) {
	t.Helper()
	if hashed {
		t.Skip("messages are hashed (KURYR_HASH_MESSAGES)")
	}
}

// hasWords reports whether a message has all these words. A hashed message always does.
func hasWords(message string, words ...string) bool {
	return hashed || !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(message, word) })
}
