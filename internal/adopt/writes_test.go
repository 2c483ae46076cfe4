// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package adopt_test

import (
	"slices"
	"sync"

	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// writes counts writes and ends the process, as it were, at one of them: that
// and all that follow fail. Its methods are safe for concurrent use.
type writes struct {
	stopAt int
	after  bool // it takes effect, and its answer is lost

	mu   sync.Mutex
	n    int
	over bool // nothing is stopped any more
}

func (w *writes) before(call string) error {
	if !slices.Contains([]string{"Create", memory.Claim, memory.DeleteStray}, call) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	if w.over || w.n < w.stopAt || w.n == w.stopAt && w.after {
		return nil
	}
	return errStopped
}

func (w *writes) done(call string) error {
	if !slices.Contains([]string{"Create", memory.Claim, memory.DeleteStray}, call) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.n < w.stopAt {
		return nil
	}
	return errStopped
}

func (w *writes) stopped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n >= w.stopAt
}

func (w *writes) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}
