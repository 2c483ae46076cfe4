// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"maps"
	"slices"
)

// Annotations returns the names of all known annotations, for tests.
func Annotations() []string { return slices.Sorted(maps.Keys(allNames())) }
