// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/neutron"
)

func TestAPanicLeavesTheServiceAsItWas(t *testing.T) {
	bad := false
	d := newDesk(t, func(o *neutron.Options) {
		now := o.Now
		o.Now = func() time.Time {
			if bad {
				panic("no time")
			}
			return now()
		}
		o.Active = func(string) (time.Duration, bool) { panic("no node") }
	})
	net, _ := d.net("10.0.0.0/24")
	for name, make := range map[string]func(){
		"before anything is stored": func() { bad = true; d.ask(admin, http.MethodPost, "/networks", object{"network": object{}}) },
		"once the port is stored": func() {
			d.ask(admin, http.MethodPost, "/ports", object{"port": object{"network_id": net, "binding:host_id": "n1"}})
		},
	} {
		if !panics(make) {
			t.Errorf("%s: no panic reached the caller", name)
		}
		bad = false
		for path, want := range map[string]int{"networks": 1, "ports": 0} {
			_, answer := d.ask(admin, http.MethodGet, "/"+path, nil)
			if got := len(answer[path].(list)); got != want {
				t.Errorf("%s: %d %s are left, want %d", name, got, path, want)
			}
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
