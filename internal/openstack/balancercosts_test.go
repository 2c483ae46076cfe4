// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestSlownessIsForgotten: a request without an answer has fewer members be asked for at
// once, but not for good: where all pools are too large then for a request, none would
// ever show that the cloud is quick again.
func TestSlownessIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Backend{config: Config{RequestTimeout: time.Minute}, balancers: newBalancers(nil)}
		want := func(what string, n int) {
			t.Helper()
			if got := b.members(providerOVN); got != n {
				t.Errorf("%d members in one request %s, want %d", got, what, n)
			}
		}
		want("at first", 100)
		b.balancers.took(providerOVN, 100, time.Minute, sdn.ErrUnavailable)
		want("after one without an answer", 37)
		time.Sleep(costHalf)
		want("later", 54)
		time.Sleep(10 * costHalf)
		want("much later", 99)
		time.Sleep(1000 * costHalf)
		want("for good", 100)
		b.balancers.took(providerOVN, 50, 5*time.Second, nil)
		b.balancers.took(providerOVN, 50, 5*time.Second, nil)
		want("when two were quick", 151)
		time.Sleep(1000 * costHalf)
		want("of which nothing is forgotten", 151)
	})
}
