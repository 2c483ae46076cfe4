// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Claim is what a KuryrPort is for: one interface of one pod. It is the key of what a
// pod holds, wherever that is remembered: a pod with several interfaces has several
// ports at once. The zero value is the claim of no pod.
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

// Claim returns what a port with this reference is for; of nil that of no pod.
func (r *PodReference) Claim() Claim {
	if r == nil {
		return Claim{}
	}
	return Claim{UID: r.UID, Interface: r.Interface}
}
