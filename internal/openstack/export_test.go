// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack

// Remembered counts what b keeps of load balancers and of what is below them.
func Remembered(b *Backend) int {
	l := b.balancers
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.below) + len(l.about) + len(l.subnets) + len(l.going) + len(l.untagged) + len(l.refused)
}
