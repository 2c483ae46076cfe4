// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Claim is one interface of one pod. A KuryrPort is bound to a claim, and code that remembers ports
// of pods uses the claim as its key: a pod with several interfaces has several ports. The zero
// value is the claim of no pod.
type Claim struct {
	UID       types.UID
	Interface string
}

// IsZero reports whether it is the claim of no pod.
func (c Claim) IsZero() bool { return c == Claim{} }

// Compare orders claims, those of one pod side by side.
func (c Claim) Compare(o Claim) int {
	if n := strings.Compare(string(c.UID), string(o.UID)); n != 0 {
		return n
	}
	return strings.Compare(c.Interface, o.Interface)
}

// Claim returns the claim that the reference names. For nil it returns the claim of no pod.
func (r *PodReference) Claim() Claim {
	if r == nil {
		return Claim{}
	}
	return Claim{UID: r.UID, Interface: r.Interface}
}
