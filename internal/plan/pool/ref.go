// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"strings"
)

// Ref names a pool and its node. A shard of the controller will own nodes: the pods, ports and
// pools of a node stay together.
type Ref struct {
	Pool, Node string
}

// Compare orders pools by name, then by node.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(strings.Compare(r.Pool, o.Pool), strings.Compare(r.Node, o.Node))
}
