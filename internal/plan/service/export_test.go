// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"maps"
	"slices"
)

// Annotations returns the names of all known annotations, for tests.
func Annotations() []string {
	all := slices.Concat(slices.Collect(maps.Keys(supported)), slices.Collect(maps.Keys(unsupported)), slices.Collect(maps.Keys(pointless)))
	slices.Sort(all)
	return all
}
