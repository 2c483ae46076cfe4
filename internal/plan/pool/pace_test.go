// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// cloud is an SDN that needs call + n*port for n ports, give or take noise.
type cloud struct {
	call, port time.Duration
	noise      float64
}

var (
	// measured is a Neutron with ML2/OVN: 1 port 0.47 s, 10 ports 3.7 s.
	measured  = cloud{call: 110 * time.Millisecond, port: 360 * time.Millisecond, noise: 0.1}
	cheapBulk = cloud{call: 500 * time.Millisecond, port: 20 * time.Millisecond, noise: 0.1}
)

func (c cloud) took(r *rand.Rand, n int) time.Duration {
	exact := c.call + time.Duration(n)*c.port
	return time.Duration(float64(exact) * (1 + c.noise*(2*r.Float64()-1)))
}

// burst lets p serve pods in chunks of its own choice until requests have been made.
func (c cloud) burst(p *pool.Pace, r *rand.Rand, pods, requests int) {
	left := pods
	for range requests {
		n := p.ForPods(left, 50)
		p.Observe(n, c.took(r, n))
		if left -= n; left <= 0 {
			left = pods
		}
	}
}

// meanWait is how long pods wait in the mean when served k at a time.
func (c cloud) meanWait(pods, k int) time.Duration {
	var at, sum time.Duration
	for left := pods; left > 0; left -= k {
		n := min(k, left)
		at += c.call + time.Duration(n)*c.port
		sum += at * time.Duration(n)
	}
	return sum / time.Duration(pods)
}

// best is the size of chunks that a pod waits the least with, by trying all.
func (c cloud) best(pods int) (k int) {
	k = 1
	for n := 2; n <= pods; n++ {
		if c.meanWait(pods, n) < c.meanWait(pods, k) {
			k = n
		}
	}
	return k
}

func TestPaceKnowsNothingAtFirst(t *testing.T) {
	t.Parallel()
	var p pool.Pace
	if pods, spare := p.ForPods(30, 10), p.ForSpare(30, 10); pods != 1 || spare != 1 {
		t.Errorf("ForPods(30, 10) = %d, ForSpare(30, 10) = %d before any request, want 1 and 1", pods, spare)
	}
	p.Observe(0, time.Second)
	p.Observe(3, 0)
	p.Observe(3, -time.Second)
	if got := p.ForPods(30, 10); got != 1 {
		t.Errorf("ForPods(30, 10) = %d after requests that say nothing, want 1", got)
	}
}

// TestPaceFindsTheChunkThatPodsWaitLeastFor: starting from nothing, with chunks
// of its own choice, pods wait hardly longer than with the best of all chunks.
func TestPaceFindsTheChunkThatPodsWaitLeastFor(t *testing.T) {
	t.Parallel()
	for _, c := range []cloud{
		measured, cheapBulk,
		{call: time.Second, port: 100 * time.Millisecond, noise: 0.2},
		{call: 0, port: 300 * time.Millisecond, noise: 0.2},
		{call: 2 * time.Second, port: 0, noise: 0.2},
		{call: time.Millisecond, port: time.Millisecond, noise: 0.2},
	} {
		for seed := range uint64(100) {
			r := rand.New(rand.NewPCG(seed, 2))
			var p pool.Pace
			c.burst(&p, r, 30, 20)
			for _, pods := range []int{1, 5, 30, 50} {
				k := p.ForPods(pods, 50)
				if got, least := c.meanWait(pods, k), c.meanWait(pods, c.best(pods)); got > least*5/4 {
					t.Errorf("%+v, seed %d: %d pods are served %d at a time and wait %v; %d at a time it were %v", c, seed, pods, k, got, c.best(pods), least)
				}
			}
		}
	}
}

// TestPaceFitsTheMeasuredClouds names the sizes for two known clouds.
func TestPaceFitsTheMeasuredClouds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		var slow, cheap pool.Pace
		measured.burst(&slow, r, 30, 30)
		cheapBulk.burst(&cheap, r, 30, 30)
		if got := slow.ForPods(1, 10); got != 1 {
			t.Errorf("seed %d: measured: ForPods(1, 10) = %d, want 1", seed, got)
		}
		if got := slow.ForPods(30, 10); got < 2 || got > 5 {
			t.Errorf("seed %d: measured: ForPods(30, 10) = %d, want about 3", seed, got)
		}
		if got := slow.ForSpare(30, 10); got < 4 || got > 6 {
			t.Errorf("seed %d: measured: ForSpare(30, 10) = %d, want the 5 of two seconds", seed, got)
		}
		if got := cheap.ForPods(30, 10); got != 10 {
			t.Errorf("seed %d: bulk is cheap: ForPods(30, 10) = %d, want all 10 of a batch", seed, got)
		}
		if got := cheap.ForSpare(30, 30); got != 30 {
			t.Errorf("seed %d: bulk is cheap: ForSpare(30, 30) = %d, want all 30", seed, got)
		}
	}
}

// TestPaceTriesLargerChunks: with single requests alone nobody could tell what a
// bulk costs, so the first burst after them must not be served one by one.
func TestPaceTriesLargerChunks(t *testing.T) {
	t.Parallel()
	var p pool.Pace
	for range 100 {
		p.Observe(1, 520*time.Millisecond)
	}
	if got := p.ForPods(30, 10); got < 3 || got > 7 {
		t.Errorf("ForPods(30, 10) after single requests only = %d, want a few, to learn", got)
	}
	if got := p.ForPods(1, 10); got != 1 {
		t.Errorf("ForPods(1, 10) = %d, want 1", got)
	}
}

// TestPaceAsksForLessAfterNoAnswer: a cloud that has become too slow for the chunks that
// were best is asked for ones that it answers in time, after a few that it did not; and
// for the former ones when it is quick again.
func TestPaceAsksForLessAfterNoAnswer(t *testing.T) {
	t.Parallel()
	const patience = time.Minute
	slow := cloud{call: 2 * time.Second, port: 9 * time.Second, noise: 0.1} // six in a minute
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		var p pool.Pace
		cheapBulk.burst(&p, r, 30, 20)
		lost := 0
		for range 30 {
			n := p.ForPods(30, 30)
			if took := slow.took(r, n); took > patience {
				lost++
				p.Late(n, patience)
			} else {
				p.Observe(n, took)
			}
		}
		if lost > 4 {
			t.Errorf("seed %d: %d of 30 requests had no answer in time", seed, lost)
		}
		cheapBulk.burst(&p, r, 30, 60)
		if got := p.ForPods(30, 10); got != 10 {
			t.Errorf("seed %d: quick again: ForPods(30, 10) = %d, want 10", seed, got)
		}
	}
}

// TestPaceLearnsNothingFromWhatIsCutOff: a connection that is closed is no slow answer.
func TestPaceLearnsNothingFromWhatIsCutOff(t *testing.T) {
	t.Parallel()
	var p pool.Pace
	cheapBulk.burst(&p, rand.New(rand.NewPCG(1, 5)), 30, 20)
	before := p
	p.Late(10, time.Second)
	p.Late(0, time.Minute)
	if p != before {
		t.Errorf("a request that was cut off: %+v, want %+v as before", p, before)
	}
	var unknown pool.Pace
	unknown.Late(1, time.Minute)
	if got := unknown.ForPods(30, 10); got != 1 {
		t.Errorf("ForPods(30, 10) = %d after one port took too long, want 1", got)
	}
}

// TestPaceFollowsAChange: some ten requests after the cloud has changed the chunks
// are good for the new one.
func TestPaceFollowsAChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		for _, way := range [][2]cloud{{measured, cheapBulk}, {cheapBulk, measured}} {
			r := rand.New(rand.NewPCG(seed, 4))
			var p pool.Pace
			way[0].burst(&p, r, 30, 50)
			way[1].burst(&p, r, 30, 14)
			k := p.ForPods(30, 50)
			if got, least := way[1].meanWait(30, k), way[1].meanWait(30, way[1].best(30)); got > least*3/2 {
				t.Errorf("seed %d: 14 requests after a change from %+v pods are served %d at a time and wait %v instead of %v", seed, way[0], k, got, least)
			}
		}
	}
}

// TestPaceForgetsOutliers: a request that hung for a minute does not make the
// chunks that follow bad ones.
func TestPaceForgetsOutliers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		var p pool.Pace
		measured.burst(&p, r, 30, 30)
		p.Observe(1+r.IntN(10), time.Minute)
		measured.burst(&p, r, 30, 10)
		k := p.ForPods(30, 50)
		if got, least := measured.meanWait(30, k), measured.meanWait(30, measured.best(30)); got > least*5/4 {
			t.Errorf("seed %d: ten requests after one that hung pods are served %d at a time and wait %v instead of %v", seed, k, got, least)
		}
		if got := p.ForPods(1, 10); got != 1 {
			t.Errorf("seed %d: ForPods(1, 10) = %d after an outlier, want 1", seed, got)
		}
	}
}

// TestPaceKeepsItsBounds: whatever has been observed, a chunk is in its bounds
// and never smaller for more pods or a larger batch.
func TestPaceKeepsItsBounds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		var p pool.Pace
		for range r.IntN(40) {
			took := time.Duration(r.Int64N(int64(time.Minute)))
			if r.IntN(10) == 0 {
				took = time.Duration(r.Int64())
			}
			p.Observe(r.IntN(60)-2, took)
		}
		for name, chunk := range map[string]func(int, int) int{"ForPods": p.ForPods, "ForSpare": p.ForSpare} {
			bounds(t, seed, name, chunk)
		}
	}
}

func bounds(t *testing.T, seed uint64, name string, chunk func(int, int) int) {
	t.Helper()
	for _, batch := range []int{-1, 0, 1, 3, 10, 1000} {
		if got := max(chunk(0, batch), chunk(-1, batch)); got != 0 {
			t.Fatalf("seed %d: %s of nothing = %d", seed, name, got)
		}
		last := 0
		for pods := 1; pods <= 600; pods += 1 + pods/3 {
			got := chunk(pods, batch)
			if got < max(1, last) || got > min(pods, max(batch, 1)) {
				t.Fatalf("seed %d: %s(%d, %d) = %d, and %d for fewer", seed, name, pods, batch, got, last)
			}
			if more := chunk(pods, batch+1); more < got {
				t.Fatalf("seed %d: %s(%d, %d) = %d, less than the %d with a smaller batch", seed, name, pods, batch+1, more, got)
			}
			last = got
		}
	}
}
