// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"slices"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// What a pod holds is told apart by pod and interface, and by nothing else.
func TestClaim(t *testing.T) {
	var none *v1.PodReference
	if !none.Claim().IsZero() {
		t.Errorf("the claim of no reference is %v, want that of no pod", none.Claim())
	}
	ref := v1.PodReference{Namespace: "ns", Name: "p", UID: "u", Interface: "eth0", Default: true}
	again := v1.PodReference{UID: "u", Interface: "eth0"}
	if ref.Claim() != again.Claim() {
		t.Errorf("%v and %v differ, want the same for one interface of one pod", ref.Claim(), again.Claim())
	}
	claims := []v1.Claim{{UID: "v", Interface: "eth0"}, {UID: "u", Interface: "eth1"}, {UID: "u", Interface: "eth0"}}
	slices.SortFunc(claims, v1.Claim.Compare)
	if want := []v1.Claim{{UID: "u", Interface: "eth0"}, {UID: "u", Interface: "eth1"}, {UID: "v", Interface: "eth0"}}; !slices.Equal(claims, want) {
		t.Errorf("sorted %v, want %v", claims, want)
	}
}
