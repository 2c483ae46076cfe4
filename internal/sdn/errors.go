// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"errors"
	"fmt"
	"time"
)

// What went wrong, as far as it decides what to do next. Backends wrap these
// with what was done to which object; callers ask with errors.Is.
var (
	// ErrNotFound: the object that the call is about is not there, or not this
	// cluster's. It never means something that a request refers to: see ErrInvalid.
	ErrNotFound = errors.New("not found in the SDN")
	// ErrQuota: what there is, is used up: a quota, a subnet's addresses, a
	// trunk's VLANs. Retry late: somebody has to act, or give something back.
	ErrQuota = errors.New("over quota")
	// ErrProjectQuota and ErrAddresses are ErrQuota of a backend that says of what: the
	// project's quota of this kind of object, or the addresses of a subnet of the request.
	ErrProjectQuota = fmt.Errorf("%w of the project", ErrQuota)
	ErrAddresses    = fmt.Errorf("%w of addresses", ErrQuota)
	// ErrInvalid: the backend will not accept this request as it is. That is so
	// too if it refers to a network, subnet, security group or trunk that does
	// not exist (or that the credential may not see); the message names it.
	ErrInvalid = errors.New("refused as invalid")
	// ErrForbidden: the credential is wrong or may not do this.
	ErrForbidden = errors.New("not allowed")
	// ErrConflict: somebody else changed the object, or holds what was asked
	// for. Retry at once.
	ErrConflict = errors.New("conflict")
	// ErrUnbound: the backend cannot bind a port to the host, most likely as
	// it knows no such host or its agent there is dead.
	ErrUnbound = errors.New("host not usable for ports")
	// ErrNoService: the backend has no such service at all, as a cloud without
	// load balancing: then there is nothing of that kind, and there will be nothing
	// until somebody adds the service. It is no outage: a service that does not
	// answer is ErrUnavailable. What it is about is ErrUnsupported, too.
	ErrNoService = errors.New("no such service in the SDN")
	// ErrUnavailable: the backend is away, overloaded or broken. Nothing is
	// said about whether the request took effect.
	ErrUnavailable = errors.New("SDN unavailable")
)

// PendingError says that the backend is still at work on an object.
type PendingError struct {
	What  string        // the object and what is awaited
	Retry time.Duration // when to look again
	Part  bool          // it is done with a part, and may be asked for the rest
}

func (e *PendingError) Error() string { return "waiting for " + e.What }

// RetryAfter returns how long the backend asked to be left alone, and whether
// it did.
func RetryAfter(err error) (time.Duration, bool) {
	var busy *BusyError
	if errors.As(err, &busy) && busy.After > 0 {
		return busy.After, true
	}
	return 0, false
}

// BusyError is an ErrUnavailable with the backend's own word on when to come
// back (HTTP's Retry-After).
type BusyError struct {
	After time.Duration
	Err   error
}

func (e *BusyError) Error() string { return e.Err.Error() }

// Unwrap makes a BusyError an ErrUnavailable as well as what caused it.
func (e *BusyError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }
