// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"strings"
)

// Ref names a pool, and the node that it is on.
type Ref struct {
	Pool, Node string
}

func (r Ref) Compare(o Ref) int {
	return cmp.Or(strings.Compare(r.Pool, o.Pool), strings.Compare(r.Node, o.Node))
}
