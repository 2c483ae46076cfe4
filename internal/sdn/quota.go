// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

// Scope is what has an end: a project's quota of ports, or a subnet's addresses.
type Scope struct {
	Subnet bool
	ID     string
}

// QuotaError is an ErrQuota that can say what of.
type QuotaError struct {
	Scope Scope
	Text  string
	Err   error // nil: the SDN was not asked again
}

func (e *QuotaError) Error() string {
	if e.Err == nil {
		return e.Text
	}
	return e.Text + " (" + e.Err.Error() + ")"
}

// Unwrap makes it an ErrQuota.
func (e *QuotaError) Unwrap() error { return ErrQuota }
