// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"fmt"
	"testing"

	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestUnanswered: after the cloud has not answered twice, only urgent steps are tried. After
// the third time no step is.
func TestUnanswered(t *testing.T) {
	var f failures
	var o round
	for i, want := range []struct{ update, urgent bool }{{false, false}, {false, false}, {true, false}, {true, true}} {
		update, urgent := f.skips(balancer.UpdatePool{Below: balancer.Below{LoadBalancerID: "next"}}, &o), f.skips(balancer.DeleteListener{Below: balancer.Below{LoadBalancerID: "next"}}, &o)
		if update != want.update || urgent != want.urgent {
			t.Errorf("after %d without an answer, skipped are an update: %t, what is urgent: %t; want %+v", i, update, urgent, want)
		}
		f.add(balancer.DeleteListener{Below: balancer.Below{LoadBalancerID: fmt.Sprint("lb-", i)}}, sdn.ErrUnavailable, &o)
	}
}
