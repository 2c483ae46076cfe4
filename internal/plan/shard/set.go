// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
)

// Buckets is the number of buckets that all keys are divided into. It never changes: processes of two
// versions share a table.
const Buckets = 128

// Set is a set of buckets.
type Set [Buckets / 64]uint64

// All returns the set of all buckets.
func All() Set { return Set{^uint64(0), ^uint64(0)} }

// Has reports whether a bucket is in the set.
func (s Set) Has(b int) bool { return s[b/64]>>(b%64)&1 == 1 }

// Len returns the number of buckets in the set.
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

// MarshalText implements encoding.TextMarshaler: 32 hexadecimal digits, the highest bucket first.
func (s Set) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x%016x", s[1], s[0]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Set) UnmarshalText(text []byte) error {
	var raw [Buckets / 8]byte
	if n, err := hex.Decode(raw[:], text[:min(len(text), 2*len(raw)+1)]); err != nil || n != len(raw) || len(text) != 2*len(raw) {
		return fmt.Errorf("%q is no set of %d buckets", text, Buckets)
	}
	s[1], s[0] = binary.BigEndian.Uint64(raw[:8]), binary.BigEndian.Uint64(raw[8:])
	return nil
}

// Bucket returns the bucket of a key. As Buckets, it never changes.
func Bucket(kind, name string) int {
	return int(mix(hash(hash(hash(offset, kind), "/"), name)) % Buckets)
}

const offset = 14695981039346656037

// hash continues an FNV-1a hash with a text.
func hash(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// mix spreads the last characters of a hashed text over all bits, as names differ in their ends.
func mix(h uint64) uint64 {
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return h ^ h>>32
}
