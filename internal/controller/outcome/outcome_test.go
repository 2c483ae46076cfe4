// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package outcome_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// A lasting conflict causes requests at growing intervals.
func TestConflictsAreNoHotLoop(t *testing.T) {
	b := outcome.Backoff{Min: time.Second, Max: 10 * time.Second}
	if first, later := b.Delay(sdn.ErrConflict, 1), b.Delay(sdn.ErrConflict, 20); first > 100*time.Millisecond || later != b.Max {
		t.Errorf("after the first conflict %s, after the twentieth %s; want 100ms at most and %s", first, later, b.Max)
	}
}

// A node that the SDN knows by another name costs ports, created and deleted, only once a minute.
// An agent that restarts does not keep pods waiting for longer than its restart.
func TestUnusableHostsAreAskedForLessAndLess(t *testing.T) {
	b := outcome.Backoff{Min: time.Second, Max: 10 * time.Second, Rejected: time.Minute}
	for n, want := range map[int]time.Duration{1: time.Second, 4: 8 * time.Second, 20: time.Minute} {
		if got := b.Delay(sdn.ErrUnbound, n); got != want {
			t.Errorf("after failure %d in a row: %s, want %s", n, got, want)
		}
	}
}

// The advice for an unsupported request does not send the reader to look for a wrong ID.
func TestExplainWhatIsNotSupported(t *testing.T) {
	for err, advised := range map[error]bool{
		sdn.ErrInvalid: true,
		fmt.Errorf("%w: %w: ports behind a bridge", sdn.ErrUnsupported, sdn.ErrInvalid): false,
	} {
		o := outcome.Of(outcome.Port, err)
		text := o.Explain("{node}", "n1")
		if got := strings.Contains(text, "subnetIDs"); got != advised || o.Reason != v1.ReasonRejected {
			t.Errorf("%v is %s: %q; want Rejected, and advice: %t", err, o.Reason, text, advised)
		}
	}
}

// The same error has different meanings for different subjects, and each reason has its pause.
func TestOutcomes(t *testing.T) {
	b := outcome.Backoff{Min: time.Second, Max: 10 * time.Second, Quota: 30 * time.Second, Rejected: time.Minute}
	unsupported := fmt.Errorf("%w: %w", sdn.ErrUnsupported, sdn.ErrInvalid)
	full := &sdn.QuotaError{Scope: sdn.Scope{Subnet: true}}
	for _, c := range []struct {
		of      outcome.Subject
		err     error
		reason  string
		after   time.Duration // negative: the backoff of the queue
		lasting bool
	}{
		{outcome.Port, nil, v1.ReasonReady, 0, false},
		{outcome.Port, &sdn.PendingError{Retry: 7 * time.Second}, v1.ReasonPending, 7 * time.Second, false},
		{outcome.Port, sdn.ErrAddresses, v1.ReasonOverQuota, b.Quota, false},
		{outcome.Port, full, v1.ReasonSubnetExhausted, b.Quota, false},
		{outcome.Port, unsupported, v1.ReasonRejected, b.Rejected, true},
		{outcome.Network, sdn.ErrOverlap, v1.ReasonOverlap, b.Rejected, true},
		{outcome.Network, sdn.ErrAddresses, v1.ReasonSubnetExhausted, b.Quota, false},
		{outcome.Network, sdn.ErrProjectQuota, v1.ReasonOverQuota, b.Quota, false},
		{outcome.Network, sdn.ErrQuota, v1.ReasonOverQuota, b.Quota, false},
		{outcome.Network, sdn.ErrRouterFull, v1.ReasonRouterFull, b.Quota, false},
		{outcome.Network, &sdn.InvalidError{Field: sdn.FieldRouter, Err: errors.New("gone")}, v1.ReasonRejected, b.Rejected, true},
		{outcome.Network, sdn.ErrForbidden, v1.ReasonForbidden, b.Rejected, true},
		{outcome.Network, sdn.ErrConflict, v1.ReasonConflict, -1, false},
		{outcome.Network, sdn.ErrUnavailable, v1.ReasonUnavailable, -1, false},
		{outcome.LoadBalancer, unsupported, v1.ReasonNotSupported, b.Rejected, true},
		{outcome.LoadBalancer, fmt.Errorf("%w: %w", sdn.ErrNoService, sdn.ErrUnsupported), v1.ReasonNoLoadBalancing, b.Rejected, true},
		{outcome.LoadBalancer, sdn.ErrInvalid, v1.ReasonRejected, b.Rejected, true},
		{outcome.LoadBalancer, fmt.Errorf("%w: %w", outcome.ErrNotPermitted, sdn.ErrUnavailable), v1.ReasonForbidden, b.Rejected, true},
		{outcome.Port, sdn.ErrForbidden, v1.ReasonForbidden, b.Rejected, true},
		{outcome.Port, sdn.ErrUnbound, v1.ReasonHostUnusable, -1, false},
		{outcome.Port, sdn.ErrConflict, v1.ReasonConflict, -1, false},
		{outcome.Port, sdn.ErrNotFound, v1.ReasonPortMissing, 0, true},
		{outcome.Subnet, sdn.ErrNotFound, v1.ReasonPortMissing, -1, true},
		{outcome.LoadBalancer, sdn.ErrNotFound, v1.ReasonPortMissing, -1, false},
		{outcome.Port, sdn.ErrUnavailable, v1.ReasonUnavailable, -1, false},
		{outcome.Port, &sdn.BusyError{After: time.Hour, Err: errors.New("503")}, v1.ReasonUnavailable, time.Hour, false},
		{outcome.Port, errors.New("what is this"), v1.ReasonBackendError, -1, false},
	} {
		o := outcome.Of(c.of, c.err)
		res, err := b.Result(o)
		if c.after < 0 && err == nil || c.after >= 0 && (err != nil || res.RequeueAfter != c.after) {
			t.Errorf("subject %d, %v: result %v, %v; want a wait of %s", c.of, c.err, res, err, c.after)
		}
		if o.Reason != c.reason || o.Lasting != c.lasting {
			t.Errorf("subject %d, %v: %s, lasting %v; want %s, %v", c.of, c.err, o.Reason, o.Lasting, c.reason, c.lasting)
		}
	}
}

// All placeholders of an advice are replaced.
func TestAdviceIsComplete(t *testing.T) {
	places := map[outcome.Subject][]string{
		outcome.Port:       {"{node}", "n1"},
		outcome.ParentPort: {"{vifType}", "vlan", "{within}", "", "{trunk}", "", "{project}", "project p"},
	}
	for _, err := range []error{
		sdn.ErrNoService, sdn.ErrUnsupported, &sdn.PendingError{}, sdn.ErrQuota, sdn.ErrInvalid, sdn.ErrForbidden, sdn.ErrUnbound,
		sdn.ErrConflict, sdn.ErrNotFound, sdn.ErrUnavailable, errors.New("other"),
		&sdn.InvalidError{Field: sdn.FieldFlavor, Err: errors.New("no such flavor")},
	} {
		for _, s := range []outcome.Subject{outcome.Port, outcome.ParentPort, outcome.LoadBalancer, outcome.Subnet, outcome.Network} {
			if text := outcome.Of(s, err).Explain(places[s]...); strings.ContainsAny(text, "{}") || !strings.HasPrefix(text, err.Error()) {
				t.Errorf("subject %d: %q", s, text)
			}
		}
	}
	wrong := &sdn.InvalidError{Field: sdn.FieldFlavor, Err: errors.New("no such flavor")}
	for field, place := range map[sdn.Field]string{
		sdn.FieldRouter: "networks.routerID", sdn.FieldProject: "openstack.org/kuryr-project", sdn.FieldSubnetPool: "networks.subnetPoolIDs", sdn.FieldNetwork: "networks.given",
		sdn.FieldDNSServers: "networks.dnsServers", sdn.FieldRoutes: "networks.routes",
	} {
		err := &sdn.InvalidError{Field: field, Err: errors.New("refused")}
		if text := outcome.Of(outcome.Network, err).Explain(); !strings.Contains(text, place) {
			t.Errorf("a refused %s is explained as %q, want %s named", field, text, place)
		}
	}
	if text := outcome.Of(outcome.LoadBalancer, wrong).Explain(); !strings.Contains(text, "flavor-id") {
		t.Errorf("a refused flavor is explained as %q", text)
	}
}

// TestPauses: the pause before a request grows with each failure up to a limit. A success ends that.
func TestPauses(t *testing.T) {
	p := outcome.Options[string](1, outcome.Backoff{Max: 15 * time.Millisecond}).RateLimiter
	next := func(milliseconds int) {
		t.Helper()
		if got, want := p.When("port"), time.Duration(milliseconds)*time.Millisecond; got != want {
			t.Errorf("the pause is %v, want %v", got, want)
		}
	}
	next(5)
	next(10)
	next(15)
	p.Forget("port")
	next(5)
}
