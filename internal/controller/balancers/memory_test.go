// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"fmt"
	"testing"
)

// TestRefusesAgain: one that gets further with each refusal, as members that are added
// one by one, is not one that is refused for ever.
func TestRefusesAgain(t *testing.T) {
	m := &memory{}
	for i := range 3 * beatenAfter {
		if m.refusesAgain(fmt.Sprint("the other ", 100-i, " members")) {
			t.Fatalf("after %d refusals that got further each", i+1)
		}
	}
	for i := range beatenAfter {
		if m.refusesAgain("the last member") {
			t.Fatalf("after %d refusals, want %d", i+1, beatenAfter+1)
		}
	}
	if !m.refusesAgain("the last member") {
		t.Errorf("not after %d refusals", beatenAfter+1)
	}
	if m.settled(); m.refusesAgain("the last member") {
		t.Error("at the first refusal after all was well")
	}
}
