// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package counted

import (
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	cloud "github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestAllWritesAreCounted: the metric counts every method of the seam that changes something in the
// cloud, including later additions. It does not count methods that only read.
func TestAllWritesAreCounted(t *testing.T) {
	backend := cloud.New().Backend("cluster")
	lbs, ips, groups := LoadBalancers(backend), FloatingIPs(backend), SecurityGroups(backend)
	for _, counting := range []any{&lbs, &ips, &groups} {
		wrapper := reflect.ValueOf(counting).Elem()
		for i := range wrapper.Type().NumMethod() {
			name := wrapper.Type().Method(i).Name
			if name == "Features" || name == "LoadBalancer" || strings.HasPrefix(name, "List") {
				continue
			}
			before := countedWrites(t, name)
			call(t, wrapper.Method(i))
			if n := countedWrites(t, name) - before; n != 1 {
				t.Errorf("%s is counted %v times, want once", name, n)
			}
		}
	}
}

// call calls a method of the seam with arguments that name nothing that exists.
func call(t *testing.T, method reflect.Value) {
	args := []reflect.Value{reflect.ValueOf(t.Context())}
	for i := 1; i < method.Type().NumIn(); i++ {
		args = append(args, reflect.New(method.Type().In(i)).Elem())
	}
	method.Call(args)
}

func countedWrites(t *testing.T, change string) (n float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "kuryr_loadbalancer_writes_total" && l.GetName() == "change" && l.GetValue() == change {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}
