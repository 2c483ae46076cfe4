// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Delay is how long something takes: a distribution. The zero Delay is none.
type Delay struct {
	shape shape
	a, b  time.Duration
}

type shape int

const (
	fixed     shape = iota // a
	uniform                // a to b
	normal                 // mean a, standard deviation b
	lognormal              // median a, 99th percentile b
)

// Fixed is a Delay of always d.
func Fixed(d time.Duration) Delay { return Delay{shape: fixed, a: d} }

// Lognormal is the shape of most services' latency: many calls near the median, a long tail.
func Lognormal(median, p99 time.Duration) Delay { return Delay{shape: lognormal, a: median, b: p99} }

// z99 is how many standard deviations the 99th percentile is above the middle.
const z99 = 2.3263478740408408

// Sample draws one. It is never negative and never above longest.
func (d Delay) Sample(r *rand.Rand) time.Duration {
	switch d.shape {
	case uniform:
		return bounded(float64(d.a) + r.Float64()*float64(d.b-d.a))
	case normal:
		return bounded(float64(d.a) + r.NormFloat64()*float64(d.b))
	case lognormal:
		if d.a == 0 {
			return 0
		}
		sigma := math.Log(float64(d.b)/float64(d.a)) / z99
		return bounded(float64(d.a) * math.Exp(sigma*r.NormFloat64()))
	case fixed:
	}
	return d.a
}

func bounded(ns float64) time.Duration {
	return time.Duration(min(max(ns, 0), float64(longest)))
}

// String writes d as Parse reads it.
func (d Delay) String() string {
	switch d.shape {
	case uniform:
		return fmt.Sprintf("{uniform: [%v, %v]}", d.a, d.b)
	case normal:
		return fmt.Sprintf("{normal: {mean: %v, deviation: %v}}", d.a, d.b)
	case lognormal:
		return fmt.Sprintf("{lognormal: {median: %v, p99: %v}}", d.a, d.b)
	case fixed:
	}
	return d.a.String()
}
