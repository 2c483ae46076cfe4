// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// Catalog returns all kinds of findings, in the order of the checks.
func Catalog() []Kind {
	kinds := []Kind{{CloudUnavailable, Unknown, all, "Neutron did not answer, so nothing of the cloud was checked."}}
	for _, c := range checks {
		kinds = append(kinds, c.Kind)
	}
	return kinds
}
