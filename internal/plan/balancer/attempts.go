// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Attempts are steps that were carried out and that the next look did not show, by their
// fingerprints. It is not safe for concurrent use.
type Attempts map[string]*Attempt

// Attempt is a step that was carried out without effect, or could not be.
type Attempt struct {
	Times  int
	Next   time.Time
	Failed string // why, if it is no more than to be told
}

// Did notes a step, to know it again if the next look finds it needed still. It
// returns how often that was so. least is the pause after the first; it doubles.
func (m *Attempts) Did(key string, now time.Time, least time.Duration) int {
	if *m == nil {
		*m = Attempts{}
	}
	a := (*m)[key]
	if a == nil {
		a = &Attempt{}
		(*m)[key] = a
	}
	a.Times++
	a.Next = now.Add(least << min(a.Times, 10))
	return a.Times
}

// ForgetReplacing forgets the steps that have made room for other load balancers.
func (m Attempts) ForgetReplacing() {
	for key := range m {
		if strings.HasPrefix(key, Replacing) {
			delete(m, key)
		}
	}
}

// HasFailed reports whether a step is to be done still as it could not be.
func (m Attempts) HasFailed(s Step) bool {
	a := m[Fingerprint(s)]
	return a != nil && a.Failed != ""
}

// Replacing begins the fingerprint of a step that makes room for another load
// balancer. It is known by what it is done for: each that is made has another ID.
const Replacing = "replace "

// Fingerprint knows a step again. It is short: a step may have thousands of members.
func Fingerprint(s Step) string {
	if d, is := s.(DeleteLoadBalancer); is && d.Instead != "" {
		return Replacing + d.Instead + ": " + d.Because
	}
	content, err := json.Marshal(s)
	if err != nil { // they are plain data
		return s.String()
	}
	return fmt.Sprintf("%T %x", s, sha256.Sum256(content))
}

// Leaves reports whether a step that the cloud does not do is left at that.
func Leaves(s Step) bool {
	switch s := s.(type) {
	case UpdateListener:
		return !s.Ranges
	case UpdatePool:
		return true
	}
	return false
}

// IneffectiveAfter is how often a step is carried out before it is held that the
// cloud does not do it.
const IneffectiveAfter = 2
