// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"os"
	"reflect"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// lateBy is how much later the controller's cache shows objects than the API server.
type lateBy struct {
	kind string // of the objects, as their Go type: "KuryrPort"
	gap  time.Duration
}

// lateKind is for all tests, from KURYR_LATE="KuryrPort=50ms". A test that then fails takes for
// granted that the controller has seen what the test has seen, or found a mistake of the controller.
var lateKind = func() lateBy {
	kind, gap, _ := strings.Cut(os.Getenv("KURYR_LATE"), "=")
	wait, err := time.ParseDuration(gap)
	if err != nil && kind != "" {
		panic("KURYR_LATE: " + err.Error())
	}
	return lateBy{kind, wait}
}()

// apply returns o with the objects shown late.
func (l lateBy) apply(o cache.Options) cache.Options {
	if l.gap == 0 {
		return o
	}
	shown := o.DefaultTransform
	o.DefaultTransform = func(in any) (any, error) {
		if reflect.TypeOf(in).Elem().Name() == l.kind {
			time.Sleep(l.gap)
		}
		return shown(in)
	}
	return o
}
