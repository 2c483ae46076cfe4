// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package outcome says what an error of the SDN means: the reason of a condition, when
// to try again, and what a person can do about it. It has no effects.
package outcome

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Reason sorts an error of the SDN.
func Reason(err error) string {
	var pending *sdn.PendingError
	var full *sdn.QuotaError
	switch {
	case err == nil:
		return v1.ReasonReady
	case errors.As(err, &pending):
		return v1.ReasonPending
	case errors.As(err, &full) && full.Scope.Subnet:
		return v1.ReasonSubnetExhausted
	case errors.Is(err, sdn.ErrQuota):
		return v1.ReasonOverQuota
	case errors.Is(err, sdn.ErrInvalid):
		return v1.ReasonRejected
	case errors.Is(err, sdn.ErrForbidden):
		return v1.ReasonForbidden
	case errors.Is(err, sdn.ErrUnbound):
		return v1.ReasonHostUnusable
	case errors.Is(err, sdn.ErrConflict):
		return v1.ReasonConflict
	case errors.Is(err, sdn.ErrNotFound):
		return v1.ReasonPortMissing
	case errors.Is(err, sdn.ErrUnavailable):
		return v1.ReasonUnavailable
	}
	return v1.ReasonBackendError
}

// Limiter returns how a queue spaces the tries of one object that ended with an
// error. The library's own doubles up to 1000 s: after an outage of some minutes
// pods would wait for as long again.
func Limiter[request comparable](b Backoff) workqueue.TypedRateLimiter[request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[request](5*time.Millisecond, b.Max)
}

// Delay says how long to leave the SDN alone after err, the n-th failure in a
// row, n from 1.
func (b Backoff) Delay(err error, n int) time.Duration {
	if after, ok := sdn.RetryAfter(err); ok {
		return after
	}
	var pending *sdn.PendingError
	if errors.As(err, &pending) {
		return pending.Retry
	}
	switch Reason(err) {
	case v1.ReasonOverQuota, v1.ReasonSubnetExhausted:
		return b.Quota
	case v1.ReasonRejected, v1.ReasonForbidden:
		return b.Rejected
	case v1.ReasonHostUnusable: // each try makes ports and deletes them, and somebody may have to act
		return min(b.Rejected, b.Min<<min(n-1, 16))
	case v1.ReasonConflict: // whoever came first is done soon; what stays so is no reason for a hot loop
		return min(b.Max, min(b.Min, 100*time.Millisecond)<<min(n-1, 16))
	}
	return min(b.Max, b.Min<<min(n-1, 16))
}

// Outcome says what err means for the queue and for a condition.
func (b Backoff) Outcome(err error) (reason string, res ctrl.Result, ret error) {
	reason = Reason(err)
	switch reason {
	case v1.ReasonReady, v1.ReasonPortMissing:
		return reason, ctrl.Result{}, nil
	case v1.ReasonPending, v1.ReasonOverQuota, v1.ReasonSubnetExhausted, v1.ReasonRejected, v1.ReasonForbidden:
		return reason, ctrl.Result{RequeueAfter: b.Delay(err, 1)}, nil
	}
	if after, ok := sdn.RetryAfter(err); ok {
		return reason, ctrl.Result{RequeueAfter: after}, nil
	}
	return reason, ctrl.Result{}, err // backoff by the queue
}

// Explain writes err for a person: what happened, and what to do about it.
func Explain(err error, node string) string {
	text, reason := err.Error(), Reason(err)
	if reason == v1.ReasonRejected && errors.Is(err, sdn.ErrUnsupported) {
		reason = "" // it says itself what cannot be; no other ID would help
	}
	switch reason {
	case v1.ReasonOverQuota:
		text += ". Raise the quota of ports (or addresses) in the SDN or delete what is not used; Kuryr goes on by itself"
	case v1.ReasonSubnetExhausted:
		text += ". Give pods a larger subnet or delete ports there that are not used; Kuryr goes on by itself"
	case v1.ReasonRejected:
		text += ". Check networkID, subnetIDs and securityGroupIDs under pods in Kuryr's configuration; a change is picked up without a restart"
	case v1.ReasonForbidden:
		text += ". Check the credential that Kuryr uses and its roles in the project of the ports"
	case v1.ReasonHostUnusable:
		text += fmt.Sprintf(". Check that the SDN knows node %s by just this name and that its agent there runs", node)
	case v1.ReasonUnavailable, v1.ReasonBackendError:
		text += ". Kuryr tries again until the SDN answers; nothing is to be done here"
	}
	if len(text) > maxNote {
		text = text[:maxNote-3] + "..."
	}
	return text
}

// maxNote is the length of an Event's note that the API server takes.
const maxNote = 1024

// Backoff says when to ask the SDN again after it refused.
type Backoff struct {
	Min      time.Duration // doubled with each failure in a row; 1s
	Max      time.Duration // 10s
	Quota    time.Duration // somebody has to raise it or delete something; 30s
	Rejected time.Duration // somebody has to change the configuration or the cloud; 1m
}

// Cut keeps room for what stands before an explanation in an Event's note.
func Cut(text string) string {
	const room = 64
	if len(text) > maxNote-room {
		return text[:maxNote-room-3] + "..."
	}
	return text
}

// Earlier returns the earlier of two times, of which a zero one is none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Sooner returns how long it is until the earlier of two times, zero if both are.
func Sooner(a, b, now time.Time) time.Duration {
	if a = Earlier(a, b); a.IsZero() {
		return 0
	}
	return max(a.Sub(now), time.Millisecond)
}

// BalancerReason is Reason for what a load balancer needs.
func BalancerReason(err error) string {
	switch {
	case errors.Is(err, sdn.ErrNoService):
		return v1.ReasonNoLoadBalancing
	case errors.Is(err, sdn.ErrUnsupported):
		return v1.ReasonNotSupported
	}
	return Reason(err)
}
