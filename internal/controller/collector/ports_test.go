// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// A port that the SDN could not bind to its host is of no use to anybody.
func TestUnboundPortsAreNotTakenOver(t *testing.T) {
	for _, c := range []struct {
		port, pool string
		want       bool
	}{
		{"ovs", "", true}, {"binding-failed", "", false}, {"binding-failed", "bridge", false},
		{"unbound", "", false}, {"unbound", "bridge", true}, {"", "", false},
	} {
		key := &v1.PoolKey{NodeName: "n", VIFType: c.pool}
		port := sdn.Port{Name: sdn.FreePortName, Host: "n", VIF: v1.VIF{Type: c.port}}
		if got := fresh(port, key); got != c.want {
			t.Errorf("port of type %q for a pool of type %q: %v, want %v", c.port, c.pool, got, c.want)
		}
	}
}
