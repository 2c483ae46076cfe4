// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/octavia"
)

// hasty reads the service as soon as the answer begins, as a client may.
type hasty struct {
	*httptest.ResponseRecorder
	look func()
}

func (h *hasty) WriteHeader(status int) {
	h.look()
	h.ResponseRecorder.WriteHeader(status)
}

// TestInstantChange: a change without delay has ended when its answer is sent, although the
// answer still shows it as pending. A change with a delay has not ended.
func TestInstantChange(t *testing.T) {
	for name, tc := range map[string]struct {
		delay time.Duration
		want  string
	}{
		"at once": {0, "ACTIVE"},
		"later":   {time.Second, "PENDING_CREATE"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *octavia.Options) {
				o.After = func(d time.Duration, f func()) {
					if d <= 0 {
						f()
					}
				}
			})
			w.delay = func(string, string, string) (time.Duration, string) { return tc.delay, "" }
			var seen any
			rec := &hasty{httptest.NewRecorder(), func() {
				seen = w.get("/loadbalancers", "loadbalancers.0.provisioning_status")
			}}
			r := httptest.NewRequest(http.MethodPost, "/v2/lbaas/loadbalancers", strings.NewReader(`{"loadbalancer":{"vip_subnet_id":"`+subnetID+`"}}`))
			r.Header.Set("Content-Type", "application/json")
			w.Handle(rec, r, tenant)
			var out object
			if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
				t.Fatal(err)
			}
			if got := at(out, "loadbalancer.provisioning_status"); got != "PENDING_CREATE" {
				t.Errorf("the answer says %v, want PENDING_CREATE", got)
			}
			if seen != tc.want {
				t.Errorf("while the answer goes out it is %v, want %s", seen, tc.want)
			}
		})
	}
}
