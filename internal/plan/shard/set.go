// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package shard plans which controller process owns which keys.
package shard

import "math/bits"

// Buckets is the number of buckets that the keys are divided into.
const Buckets = 128

// Set is a set of buckets.
type Set [2]uint64

// All is the set of all buckets.
func All() Set { return Set{^uint64(0), ^uint64(0)} }

// Has reports whether a bucket is in the set.
func (s Set) Has(b int) bool { return s[b/64]>>(b%64)&1 == 1 }

// Len returns the number of buckets.
func (s Set) Len() int { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }

// And returns the buckets that both sets have.
func (s Set) And(t Set) Set { return Set{s[0] & t[0], s[1] & t[1]} }

// Or returns the buckets that one of the sets has.
func (s Set) Or(t Set) Set { return Set{s[0] | t[0], s[1] | t[1]} }

// Minus returns the buckets that t does not have.
func (s Set) Minus(t Set) Set { return Set{s[0] &^ t[0], s[1] &^ t[1]} }

// With returns the set with a bucket.
func (s Set) With(b int) Set {
	s[b/64] |= 1 << (b % 64)
	return s
}

// Bucket returns the bucket of a key.
func Bucket(kind, name string) int {
	h := uint64(14695981039346656037)
	for _, text := range [...]string{kind, "/", name} {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
	}
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return int((h ^ h>>32) % Buckets)
}
