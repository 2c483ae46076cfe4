// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A share limits rate, burst and places, and requests that must leave places free for others leave
// the same part.
func TestShareLimits(t *testing.T) {
	for _, test := range []struct {
		service                       string
		share                         float64
		rate                          float64
		burst, slots, others, theLong int
	}{
		{neutron, 1, 20, 20, 8, 4, 4},
		{Octavia, 1, 20, 20, 8, 6, 4},
		{neutron, 0.5, 10, 10, 4, 2, 2},
		{Octavia, 0.5, 10, 10, 4, 3, 2},
		{neutron, 43. / 128, 6.71875, 6, 2, 1, 1},
		{Octavia, 1. / 128, 0.4, 1, 1, 1, 1},
		{neutron, 0, 0.4, 1, 1, 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newThrottle(test.service, Config{RequestsPerSecond: 20, MaxConcurrent: 8, RequestTimeout: time.Minute})
			for _, share := range []float64{0, test.share} { // in both directions
				l.setShare(share)
			}
			if got := float64(l.tokens.Limit()); got != test.rate || l.tokens.Burst() != test.burst {
				t.Errorf("%s, share %v: %v requests a second, %d at once, want %v and %d", test.service, test.share, got, l.tokens.Burst(), test.rate, test.burst)
			}
			for p, want := range []int{test.slots, test.others, test.theLong} {
				if got := taken(t, l, pace(p)); got != want {
					t.Errorf("%s, share %v: %d requests of pace %d run at once, want %d", test.service, test.share, got, p, want)
				}
			}
		})
	}
}

// taken returns how many requests of a pace have places at once.
func taken(t *testing.T, l *throttle, p pace) int {
	t.Helper()
	over, entered := make(chan struct{}), atomic.Int32{}
	for range 16 {
		go func() {
			leave, err := l.enter(t.Context(), p)
			if err != nil {
				t.Errorf("enter: %v", err)
				return
			}
			entered.Add(1)
			<-over
			leave()
		}()
	}
	synctest.Wait()
	defer synctest.Wait()
	defer close(over)
	return int(entered.Load())
}

// While the cloud is overloaded, a change of the share keeps how far the rate is reduced, and the rate
// recovers to the new ceiling and no further.
func TestShareKeepsTheReduction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle(neutron, Config{RequestsPerSecond: 100, MaxConcurrent: 8, RequestTimeout: time.Minute})
		for range 2 {
			ask(t, l, http.StatusTooManyRequests, 2*time.Second, 0)
		}
		l.setShare(0.5)
		if got := float64(l.tokens.Limit()); got != 12.5 {
			t.Errorf("a quarter of 100 becomes %v with half of the share, want 12.5", got)
		}
		for range 30 {
			ask(t, l, 200, 3*time.Second, 0)
		}
		if got := float64(l.tokens.Limit()); got != 50 {
			t.Errorf("after 90 s without overload the rate is %v, want the share's 50", got)
		}
		for range 10 {
			ask(t, l, http.StatusTooManyRequests, 2*time.Second, 0)
		}
		if got := float64(l.tokens.Limit()); got != 1 {
			t.Errorf("the floor is %v, want the share's 1", got)
		}
	})
}

// A share that is lowered while all places are taken holds back each place that a request leaves, and
// one that is raised lets those go on that wait.
func TestShareChangesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle(neutron, Config{RequestsPerSecond: 1000, MaxConcurrent: 8, RequestTimeout: time.Hour})
		running, most := atomic.Int32{}, atomic.Int32{}
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				leave, err := l.enter(t.Context(), prompt)
				if err != nil {
					t.Errorf("enter: %v", err)
					return
				}
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second)
				running.Add(-1)
				leave()
			})
		}
		wants := func(share float64, want int32) {
			t.Helper()
			l.setShare(share)
			time.Sleep(1300 * time.Millisecond) // what ran has ended
			if got := running.Load(); got != want {
				t.Errorf("with a share of %v %d requests run, want %d", share, got, want)
			}
		}
		time.Sleep(time.Millisecond)
		wants(0.5, 4)
		wants(0, 1)
		wants(1, 8)
		l.setShare(0)
		wants(1, 8)
		all.Wait()
		if most.Load() != 8 {
			t.Errorf("%d requests ran at once, want 8 at most", most.Load())
		}
		for _, p := range []*places{l.slots, l.others, l.long} {
			if len(p.taken) != 0 || p.held != 0 {
				t.Errorf("at rest %d places are taken, %d held back", len(p.taken), p.held)
			}
		}
	})
}

// A client of another credential has the same share.
func TestShareOfTheProcess(t *testing.T) {
	c := &Client{throttle: newThrottle(neutron, Config{}.withDefaults()), balancerThrottle: newThrottle(Octavia, Config{}.withDefaults()), login: &login{}}
	other := c.As("other", "p")
	other.SetShare(0.25)
	for _, l := range []*throttle{c.throttle, c.balancerThrottle} {
		if got := float64(l.tokens.Limit()); got != 5 {
			t.Errorf("%s: %v requests a second, want 5", l.service, got)
		}
	}
}
