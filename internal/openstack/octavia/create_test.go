// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestShares(t *testing.T) {
	for _, tt := range []struct {
		name   string
		wanted []int
		most   int
		want   []int
	}{
		{"all fit", []int{50, 50, 0}, 100, []int{50, 50, 0}},
		{"none has any", []int{0, 0}, 100, []int{0, 0}},
		{"no pools", nil, 100, []int{}},
		{"whole, or the first", []int{50, 50, 50, 50}, 100, []int{50, 50, 5, 5}},
		{"a later one fits", []int{50, 90, 30, 3}, 100, []int{50, 5, 30, 3}},
		{"too large for any request", []int{300, 300, 300}, 100, []int{100, 5, 5}},
		{"few pools that are too large", []int{300, 20}, 100, []int{100, 5}},
		{"many pools", slices.Repeat([]int{20}, 12), 40, append([]int{20, 20, 4}, slices.Repeat([]int{0}, 9)...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := shares(tt.wanted, tt.most); !slices.Equal(got, tt.want) {
				t.Errorf("shares(%v, %d) = %v, want %v", tt.wanted, tt.most, got, tt.want)
			}
		})
	}
}

// The shares are never more than the members, nor than most, and are all of them if one request
// can have all.
func TestSharesKeepTheirBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		wanted, most, all := make([]int, r.IntN(8)), 10+r.IntN(200), 0
		for i := range wanted {
			wanted[i] = r.IntN(120)
			all += wanted[i]
		}
		got, sum := shares(wanted, most), 0
		for i, n := range got {
			sum += n
			if n < 0 || n > wanted[i] {
				t.Fatalf("shares(%v, %d) = %v: pool %d has %d", wanted, most, got, i, n)
			}
		}
		if sum > most+most/10 || all <= most && sum < all {
			t.Fatalf("shares(%v, %d) = %v: they are %d", wanted, most, got, sum)
		}
	}
}
