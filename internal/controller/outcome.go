// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Reasons of conditions and Events.
const (
	reasonReady       = "Ready"
	reasonPending     = "Pending"
	reasonOverQuota   = "OverQuota"
	reasonExhausted   = "SubnetExhausted"
	reasonScarce      = "Scarce"
	reasonRejected    = "Rejected"
	reasonForbidden   = "Forbidden"
	reasonHost        = "HostUnusable"
	reasonConflict    = "Conflict"
	reasonUnavailable = "Unavailable"
	reasonMissing     = "PortMissing"
	reasonError       = "BackendError"
)

// reasonOf sorts an error of the SDN.
func reasonOf(err error) string {
	var pending *sdn.PendingError
	var full *fullError
	switch {
	case err == nil:
		return reasonReady
	case errors.As(err, &pending):
		return reasonPending
	case errors.As(err, &full) && full.scope.subnet:
		return reasonExhausted
	case errors.Is(err, sdn.ErrQuota):
		return reasonOverQuota
	case errors.Is(err, sdn.ErrInvalid):
		return reasonRejected
	case errors.Is(err, sdn.ErrForbidden):
		return reasonForbidden
	case errors.Is(err, sdn.ErrUnbound):
		return reasonHost
	case errors.Is(err, sdn.ErrConflict):
		return reasonConflict
	case errors.Is(err, sdn.ErrNotFound):
		return reasonMissing
	case errors.Is(err, sdn.ErrUnavailable):
		return reasonUnavailable
	}
	return reasonError
}

// limiter returns how a queue spaces the tries of one object that ended with an
// error. The library's own doubles up to 1000 s: after an outage of some minutes
// pods would wait for as long again.
func limiter[request comparable](b Backoff) workqueue.TypedRateLimiter[request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[request](5*time.Millisecond, b.Max)
}

// delay says how long to leave the SDN alone after err, the n-th failure in a
// row, n from 1.
func (b Backoff) delay(err error, n int) time.Duration {
	if after, ok := sdn.RetryAfter(err); ok {
		return after
	}
	var pending *sdn.PendingError
	if errors.As(err, &pending) {
		return pending.Retry
	}
	switch reasonOf(err) {
	case reasonOverQuota, reasonExhausted:
		return b.Quota
	case reasonRejected, reasonForbidden:
		return b.Rejected
	case reasonConflict: // whoever came first is done soon; what stays so is no reason for a hot loop
		return min(b.Max, min(b.Min, 100*time.Millisecond)<<min(n-1, 16))
	}
	return min(b.Max, b.Min<<min(n-1, 16))
}

// outcome says what err means for the queue and for a condition.
func (b Backoff) outcome(err error) (reason string, res ctrl.Result, ret error) {
	reason = reasonOf(err)
	switch reason {
	case reasonReady, reasonMissing:
		return reason, ctrl.Result{}, nil
	case reasonPending, reasonOverQuota, reasonExhausted, reasonRejected, reasonForbidden:
		return reason, ctrl.Result{RequeueAfter: b.delay(err, 1)}, nil
	}
	if after, ok := sdn.RetryAfter(err); ok {
		return reason, ctrl.Result{RequeueAfter: after}, nil
	}
	return reason, ctrl.Result{}, err // backoff by the queue
}

// explain writes err for a person: what happened, and what to do about it.
func explain(err error, node string) string {
	text := err.Error()
	switch reasonOf(err) {
	case reasonOverQuota:
		text += ". Raise the quota of ports (or addresses) in the SDN or delete what is not used; Kuryr goes on by itself"
	case reasonExhausted:
		text += ". Give pods a larger subnet or delete ports there that are not used; Kuryr goes on by itself"
	case reasonRejected:
		text += ". Check networkID, subnetIDs and securityGroupIDs under pods in Kuryr's configuration; a change is picked up without a restart"
	case reasonForbidden:
		text += ". Check the credential that Kuryr uses and its roles in the project of the ports"
	case reasonHost:
		text += fmt.Sprintf(". Check that the SDN knows node %s by just this name and that its agent there runs", node)
	case reasonUnavailable, reasonError:
		text += ". Kuryr tries again until the SDN answers; nothing is to be done here"
	}
	if len(text) > maxNote {
		text = text[:maxNote-3] + "..."
	}
	return text
}

// maxNote is the length of an Event's note that the API server takes.
const maxNote = 1024
