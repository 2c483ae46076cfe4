// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import "testing"

func TestTooFew(t *testing.T) {
	for _, tt := range []struct {
		hit, lives int
		want       bool
	}{
		{0, 0, false}, {0, 1, true}, {1, 1, false}, {2, 3, false}, {1, 3, true}, {8, 10, false}, {7, 10, true},
	} {
		if got := tooFew(tt.hit, tt.lives); got != tt.want {
			t.Errorf("tooFew(%d, %d) = %t", tt.hit, tt.lives, got)
		}
	}
}
