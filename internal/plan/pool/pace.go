// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"math"
	"time"
)

// Pace learns how long the SDN takes to make ports, and computes the size of one request. Its
// model: a request for n ports takes a + b*n, with a for the call and b for each port. The zero
// value is ready and knows nothing. It is not safe for concurrent use.
type Pace struct {
	// Weighted sums over the requests of 1, n, n², the seconds and n times the seconds, as a
	// least-squares line needs. A request weighs 1/n, because the time of a large one is less
	// exact, and its weight fades with later requests.
	ones, n, nn, t, nt float64
	// ratio is a/b as believed, for when the requests do not say.
	ratio float64
	// patience is how many seconds an answer was waited for at most; 0: none was late.
	patience float64
}

const (
	// fade is what a request's weight becomes with each later one: after ten of
	// these it is a twentieth.
	fade = 0.75
	// belief weighs the ratio believed so far. Requests of one size say nothing
	// about it, and then it decides.
	belief = 0.03
	// doubt multiplies the logarithm of the assumed ratio after each request without information.
	// The ratio ends at 1: a call costs as much as a port. Then requests are for a few ports each,
	// and these give information.
	doubt = 0.95
	// leastRatio is the least of a/b that is believed: a burst is never served one by
	// one, or it would not be seen that bulk requests have become cheap.
	leastRatio = 0.1
	// mostRatio is the most of a/b that is believed.
	mostRatio = 100
	// outlier limits the ratio of measured to expected time, and its inverse. A request that hung
	// says little about the next one, while Kuryr still follows a changed cloud in a few steps.
	outlier = 3
	// refill is how many seconds a request for spare ports may keep the SDN
	// from pods.
	refill = 2
	// late is the number of seconds after which a request without an answer took too long. A
	// request that ended earlier was interrupted and says nothing.
	late = 5
)

// Observe records a request that made all of its n ports, and its duration. Do not record one that
// failed or made fewer: a refusal is quick. See Late.
func (p *Pace) Observe(n int, took time.Duration) {
	if n < 1 || took <= 0 {
		return
	}
	x, y := float64(n), took.Seconds()
	if p.patience > 0 {
		p.patience = max(p.patience, y)
	}
	if p.ratio == 0 {
		p.ratio = 1
	} else {
		a, b := p.costs()
		y = min(max(y, (a+b*x)/outlier), (a+b*x)*outlier)
	}
	p.ones = p.ones*fade + 1/x
	p.n = p.n*fade + 1
	p.nn = p.nn*fade + x
	p.t = p.t*fade + y/x
	p.nt = p.nt*fade + y
	if a, b := p.costs(); b > 0 {
		p.ratio = math.Pow(a/b, doubt)
	}
}

// Late records a request for n ports without an answer in time: they take longer. Later requests
// are smaller: as many ports as half of that time is enough for, as far as known.
func (p *Pace) Late(n int, took time.Duration) {
	y := took.Seconds()
	if n < 1 || y < late {
		return
	}
	if p.ratio == 0 {
		p.Observe(n, took)
	}
	p.patience = max(p.patience, y)
	if a, b := p.costs(); a+b*float64(n) < y {
		p.t *= y / (a + b*float64(n))
		p.nt *= y / (a + b*float64(n))
	}
}

// inTime is how many ports one request may ask for and be answered in time.
func (p *Pace) inTime() float64 {
	a, b := p.costs()
	if p.patience == 0 || b == 0 {
		return math.Inf(1)
	}
	return math.Floor((p.patience/2 - a) / b)
}

// costs returns the seconds that a call and a port cost; both 0: nothing is
// known. It minimises the weighted squares of t - a - b*n, and with the belief's
// weight that of a - ratio*b, within what may be believed of a/b.
func (p *Pace) costs() (a, b float64) {
	r := p.ratio
	if r == 0 {
		return 0, 0
	}
	w := belief / (1 + r*r)
	// ones*nn >= n*n, so that with a weight above 0 this is never 0.
	det := (p.ones+w)*(p.nn+w*r*r) - (p.n-w*r)*(p.n-w*r)
	a = (p.t*(p.nn+w*r*r) - p.nt*(p.n-w*r)) / det
	b = (p.nt*(p.ones+w) - p.t*(p.n-w*r)) / det
	switch {
	case a < b*leastRatio:
		return p.along(leastRatio)
	case a > b*mostRatio:
		return p.along(mostRatio)
	}
	return a, b
}

// along returns the costs that fit best with a/b as given.
func (p *Pace) along(ratio float64) (a, b float64) {
	b = (ratio*p.t + p.nt) / (ratio*ratio*p.ones + 2*ratio*p.n + p.nn)
	return ratio * b, b
}

// ForPods returns how many ports to ask for in one request while waiting pods
// have none: between 1 and batch, 0 if none waits. Served k at a time, pods wait
// (a + b*k) * (waiting/k + 1) / 2 in the mean, which is a*waiting/k + b*k and a
// constant: least where these are equal, at k = sqrt(waiting * a/b).
func (p *Pace) ForPods(waiting, batch int) int {
	a, b := p.costs()
	if b == 0 {
		return chunk(1, waiting, batch)
	}
	return chunk(min(math.Sqrt(float64(max(waiting, 0))*a/b), p.inTime()), waiting, batch)
}

// ForSpare returns how many ports to ask for in one request while nobody waits
// for the missing ones: as many as take two seconds, or twice as long as the
// call itself, so that pods that come meanwhile find the SDN free soon. It is
// between 1 and batch, 0 if none is missing.
func (p *Pace) ForSpare(missing, batch int) int {
	a, b := p.costs()
	if b == 0 {
		return chunk(1, missing, batch)
	}
	return chunk(min(math.Floor((max(refill, 2*a)-a)/b), p.inTime()), missing, batch)
}

// chunk brings k into the range from 1 to limit and batch.
func chunk(k float64, limit, batch int) int {
	most := max(0, min(limit, max(batch, 1)))
	if k >= float64(most) {
		return most
	}
	return max(1, int(math.Round(k)))
}
