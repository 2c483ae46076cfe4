// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"sync"
)

// source makes UUIDs that depend on nothing but its seed and how many there were.
type source struct {
	mu   sync.Mutex
	draw *rand.Rand
}

func newSource(seed, stream uint64) *source {
	return &source{draw: rand.New(rand.NewPCG(seed, stream))}
}

// UUID is a new one, of version 4.
func (s *source) UUID() string {
	s.mu.Lock()
	high, low := s.draw.Uint64(), s.draw.Uint64()
	s.mu.Unlock()
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var text [36]byte
	at := 0
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			text[at] = '-'
			at++
		}
		at += hex.Encode(text[at:], part)
	}
	return string(text[:])
}
