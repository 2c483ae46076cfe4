// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestSlownessIsForgotten: after a request without an answer, requests have fewer members, but
// not for good. If all pools became too large for a request, no request would ever show that
// the cloud is quick again.
func TestSlownessIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Octavia{config: Config{RequestTimeout: time.Minute}, balancers: newBalancers()}
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

// TestMembersOfARequest: a request has as many members as take three quarters of the request
// timeout, as far as the provider was measured.
func TestMembersOfARequest(t *testing.T) {
	b := &Octavia{config: Config{RequestTimeout: time.Minute}, balancers: newBalancers()}
	gone := fmt.Errorf("changing: %w", sdn.ErrUnavailable)
	for _, step := range []struct {
		what     string
		provider string
		members  int
		took     time.Duration
		err      error
		want     int
	}{
		{"nothing was seen", "ovn", 0, 0, nil, 100},
		{"nothing was seen", "amphora", 0, 0, nil, 450},
		{"little says nothing", "ovn", 1, 20 * time.Second, nil, 100},
		{"slower", "ovn", 100, 50 * time.Second, nil, 90},
		{"quicker, once", "ovn", 100, 10 * time.Second, nil, 112},
		{"a proxy with less patience", "ovn", 100, 30 * time.Second, gone, 75},
		{"refused at once", "ovn", 75, 0, gone, 75},
		{"nobody else is slower for it", "amphora", 0, 0, nil, 450},
		{"nothing at all comes", "ovn", 20, time.Hour, gone, 10},
		{"as quick as can be", "amphora", 1000, 0, nil, 600},
	} {
		b.balancers.took(step.provider, step.members, step.took, step.err)
		if got := b.members(step.provider); got != step.want {
			t.Errorf("%s: %d members in a request, want %d", step.what, got, step.want)
		}
	}
}
