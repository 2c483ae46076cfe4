// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// trail is the history of a life, for people who examine a failed run. It is safe for concurrent
// use.
type trail struct {
	began time.Time
	mu    sync.Mutex
	lines []string
}

func (t *trail) add(p *process, what string) {
	by := "world"
	if p != nil {
		by = fmt.Sprint("process ", p.number)
	}
	line := fmt.Sprintf("%6d ms  %-9s  %s", time.Since(t.began).Milliseconds(), by, what)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
}

// String returns the whole trail, one line an entry.
func (t *trail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
