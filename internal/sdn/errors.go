// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

import (
	"errors"
	"fmt"
	"time"
)

// Errors that decide the next action. Backends wrap them with what the cloud said. Callers use
// errors.Is, and add the operation and the object.
var (
	// ErrNotFound: the object that the call is about is not there, or not this
	// cluster's. It never means something that a request refers to: see ErrInvalid.
	ErrNotFound = errors.New("not found in the cloud")
	// ErrQuota: a quota, a subnet's addresses, or a trunk's VLAN IDs are used up. Retry late: a
	// person must act, or a resource must be deleted.
	ErrQuota = errors.New("over quota")
	// ErrProjectQuota and ErrAddresses are ErrQuota of a backend that says of what: the
	// project's quota of this kind of object, or the addresses of a subnet of the request.
	ErrProjectQuota = fmt.Errorf("%w of the project", ErrQuota)
	ErrAddresses    = fmt.Errorf("%w of addresses", ErrQuota)
	// ErrRouterFull is ErrQuota of a router that can take no more interfaces.
	ErrRouterFull = fmt.Errorf("%w of a router's interfaces", ErrQuota)
	// ErrExternalAddresses is ErrAddresses of the external network of a router's gateway.
	ErrExternalAddresses = fmt.Errorf("%w of the external network", ErrAddresses)
	// ErrOverlap: a prefix overlaps with one that is in use. Somebody has to choose another, or
	// remove the other one.
	ErrOverlap = errors.New("prefix overlaps")
	// ErrInvalid: the backend will not accept this request unchanged. That includes a reference to
	// a network, subnet, security group or trunk that does not exist, or that the credential may
	// not see; the message names it. A backend that knows which field it refused returns an
	// InvalidError.
	ErrInvalid = errors.New("refused as invalid")
	// ErrForbidden: the credential is wrong or may not do this.
	ErrForbidden = errors.New("not allowed")
	// ErrLogin is ErrForbidden of a credential that the cloud does not accept at all: the password is
	// wrong, say, or the user or its project is disabled.
	ErrLogin = fmt.Errorf("%w to log in", ErrForbidden)
	// ErrSNATForbidden is ErrForbidden of a request that says whether a router translates addresses.
	ErrSNATForbidden = fmt.Errorf("%w, with SNAT set", ErrForbidden)
	// ErrConflict: another user changed the object, or holds the requested resource. Retry at once.
	ErrConflict = errors.New("conflict")
	// ErrUnbound: the backend cannot bind a port to the host. Most likely it does not know the
	// host, or the host's agent is dead.
	ErrUnbound = errors.New("host cannot have ports")
	// ErrNoService: the backend has no such service at all, as a cloud without load balancing.
	// Nothing of that kind exists, until a person adds the service. It is no outage: a service that
	// does not answer is ErrUnavailable. An ErrNoService is an ErrUnsupported, too.
	ErrNoService = errors.New("no such service in the cloud")
	// ErrUnavailable: the backend is away, overloaded or broken. Nothing is
	// said about whether the request took effect.
	ErrUnavailable = errors.New("cloud unavailable")
	// ErrFenced: the request was not sent, because this process may not change anything now. It is the
	// cause of a BusyError. It says nothing about the cloud.
	ErrFenced = errors.New("this process may not write: its Lease was not renewed in time")
)

// Field is a part of a request, in the seam's words.
type Field string

// The fields that an InvalidError names.
const (
	FieldProvider         Field = "provider"
	FieldFlavor           Field = "flavor"
	FieldAvailabilityZone Field = "availability zone"
	FieldNetwork          Field = "network"
	FieldSubnet           Field = "subnet"
	FieldSecurityGroup    Field = "security group"
	FieldPort             Field = "port" // that a floating IP is for
	FieldParentPort       Field = "parent port"
	FieldExternalNetwork  Field = "external network" // or its subnet, of a floating IP or of a router
	FieldMember           Field = "member"           // its address
	FieldProject          Field = "project"
	FieldRouter           Field = "router"
	FieldSubnetPool       Field = "subnet pool"
	FieldDNSServers       Field = "DNS servers" // too many of a subnet
	FieldRoutes           Field = "routes"      // too many of a subnet
	FieldRouterRoutes     Field = "routes of a router"
)

// InvalidError is an ErrInvalid of a backend that says which field it refused.
type InvalidError struct {
	Field Field
	Value string // what the field was, as the backend says it; empty: it does not
	// Members are those that a change of members was refused for: members to be added,
	// or members that the pool has. Empty: the backend does not tell.
	Members []Member
	Err     error
}

func (e *InvalidError) Error() string { return e.Err.Error() }

// Unwrap makes an InvalidError an ErrInvalid as well as what caused it.
func (e *InvalidError) Unwrap() []error { return []error{ErrInvalid, e.Err} }

// FieldOf returns the field that was refused; empty if err names none.
func FieldOf(err error) Field {
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		return invalid.Field
	}
	return ""
}

// RefusedMembers returns the members that a change was refused for, if err names them.
func RefusedMembers(err error) []Member {
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		return invalid.Members
	}
	return nil
}

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
