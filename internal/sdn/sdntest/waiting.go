// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// settled repeats a call while the load balancer is busy. Like the controller it waits until no
// load balancer of the case is busy before it does: Octavia 11.0.0 accepts a deletion that comes
// just when the worker of amphorae ends the same one, and then waits for it for ever.
func (f services) settled(call func() error) error {
	f.t.Helper()
	var pending *sdn.PendingError
	for begun := time.Now(); ; pause(begun) {
		err := call()
		if !errors.As(err, &pending) || time.Since(begun) > callTimeout {
			return err
		}
		for pause(begun); f.busy() && time.Since(begun) <= callTimeout; pause(begun) {
		}
	}
}

// busy reports whether a load balancer of the case is being changed. It does not know that after
// the test, in a cleanup.
func (f services) busy() bool {
	ctx := f.ctx()
	return slices.ContainsFunc(*f.made, func(id string) bool {
		lb, err := f.Backend.LoadBalancer(ctx, id)
		return err == nil && !slices.Contains([]sdn.Provisioning{sdn.ProvisioningActive, sdn.ProvisioningError, sdn.ProvisioningDeleted}, lb.Provisioning)
	})
}

// pause sleeps. It is short at first, because the reference backend counts calls, not time.
func pause(begun time.Time) {
	time.Sleep(min(time.Millisecond+time.Since(begun)/4, 100*time.Millisecond))
}

func (f services) must(what string, call func() error) {
	f.t.Helper()
	if err := f.settled(call); err != nil {
		f.t.Fatalf("%s: %v", what, err)
	}
}

// twice makes a call again once the load balancer is ACTIVE, for the reason that settled has.
func (f services) twice(what, id string, call func() error) {
	f.t.Helper()
	f.must(what, call)
	f.active(id)
	f.must(what+" once more", call)
}

// active waits until a load balancer is ACTIVE and no pool or member of it is PENDING, and no listener
// PENDING_DELETE, and returns it. OVN's provider of 2025.1 reports these after the load balancer.
// Listeners stay PENDING_UPDATE after a change of a monitor, until something else changes.
func (f services) active(id string) sdn.LoadBalancer {
	f.t.Helper()
	for begun := time.Now(); ; pause(begun) {
		lb, err := f.Backend.LoadBalancer(f.ctx(), id)
		goes := errors.Is(err, sdn.ErrUnavailable) // a child went while it was read
		if err != nil && (!goes || time.Since(begun) > callTimeout) {
			f.t.Fatalf("LoadBalancer(%s): %v", id, err)
		}
		part := pendingPart(lb)
		if lb.Provisioning == sdn.ProvisioningActive && part == "" {
			return lb
		}
		if lb.Provisioning == sdn.ProvisioningError || time.Since(begun) > callTimeout {
			f.t.Fatalf("load balancer %s is %s, want it ACTIVE; part PENDING: %q", id, lb.Provisioning, part)
		}
	}
}

// pendingPart returns a pool or a member that is PENDING, or a listener that goes; empty if none is.
func pendingPart(lb sdn.LoadBalancer) string {
	for _, l := range lb.Listeners {
		if l.Provisioning == sdn.ProvisioningDeleting {
			return "listener " + l.ID + " " + string(l.Provisioning)
		}
		if l.Pool == nil {
			continue
		}
		parts := map[string]sdn.Provisioning{"pool " + l.Pool.ID: l.Pool.Provisioning}
		for _, m := range l.Pool.Members {
			parts["member "+m.ID] = m.Provisioning
		}
		for what, is := range parts {
			if strings.HasPrefix(string(is), "PENDING_") {
				return what + " " + string(is)
			}
		}
	}
	return ""
}
