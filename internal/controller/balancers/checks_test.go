// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// checksIn returns at which times each of n load balancers is checked within that time after the start.
// The requests of each check take the share of checks for that time.
func checksIn(within, interval, takes time.Duration, n int) [][]time.Duration {
	all := rate.NewLimiter(rate.Every(takes), 1)
	began := time.Unix(1000, 0)
	next, at := make([]nextCheck, n), make([][]time.Duration, n)
	for now := time.Duration(0); now < within; now += time.Second {
		for i := range next {
			if due, _ := next[i].due(interval, 1, began.Add(now), all); due {
				at[i] = append(at[i], now)
			}
		}
	}
	return at
}

// TestChecksAreSpread: each load balancer is checked once an interval but the first, without bursts of
// checks.
func TestChecksAreSpread(t *testing.T) {
	const interval = 10 * time.Minute
	each := map[time.Duration]int{}
	for i, at := range checksIn(4*interval, interval, 0, 600) {
		if len(at) < 2 || len(at) > 3 || at[0] < interval || at[0] > 2*interval+time.Second {
			t.Errorf("load balancer %d was checked after %v, want once in each interval but the first", i, at)
		}
		for j := 1; j < len(at); j++ {
			if at[j]-at[j-1] != interval {
				t.Errorf("load balancer %d was checked after %v, want an interval between", i, at)
			}
		}
		each[at[0].Truncate(interval/10)]++
	}
	for at, n := range each {
		if n > 120 {
			t.Errorf("%d of 600 first checks were in the tenth of an interval after %s", n, at)
		}
	}
}

// TestChecksFollowInterval: after the interval has become shorter, the next check does not wait for
// the old interval.
func TestChecksFollowInterval(t *testing.T) {
	all := rate.NewLimiter(rate.Inf, 1)
	var next nextCheck
	now := time.Unix(1000, 0)
	next.due(10*time.Minute, 1, now, all)
	if _, again := next.due(10*time.Second, 1, now.Add(time.Minute), all); again > 20*time.Second {
		t.Errorf("the next check is after %s, want at most twice the new interval", again)
	}
}

// TestChecksHaveABudget: checks take at most their share of the allowed requests, whatever the number of
// load balancers and the interval.
func TestChecksHaveABudget(t *testing.T) {
	const takes, n, long = 2 * time.Second, 50, time.Hour // 100 s for all, of an interval of 10 s
	sum := time.Duration(0)
	for i, at := range checksIn(long, 10*time.Second, takes, n) {
		sum += takes * time.Duration(len(at))
		if len(at) < 30 {
			t.Errorf("load balancer %d was checked %d times, want some 36", i, len(at))
		}
	}
	if share := sum.Seconds() / long.Seconds(); share > 1.05 || share < 0.9 {
		t.Errorf("checks take %.3f of their share, want nearly all", share)
	}
}
