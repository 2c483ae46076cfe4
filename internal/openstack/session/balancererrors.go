// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// BusyRetry is when to look again at a load balancer that is busy: OVN's are for
// half a second, an amphora's for some seconds and for a minute at first.
const BusyRetry = time.Second

var errBusy = &sdn.PendingError{What: "the load balancer's provider", Retry: BusyRetry}

// classifyBalancer says what an answer of Octavia means. It has no types of errors,
// so its words decide where the status does not; seen on Octavia 11 (Zed). id is of
// the object that the request is about.
func classifyBalancer(status int, said, id string) error {
	has := func(words string) bool { return strings.Contains(said, words) }
	switch status {
	case http.StatusForbidden:
		if has("Quota has been met") {
			return sdn.ErrQuota
		}
		return sdn.ErrForbidden
	case http.StatusNotFound:
		switch {
		case !has(" not found."): // a proxy's, or a wrong endpoint's
			return sdn.ErrUnavailable
		case id != "" && has(id):
			return sdn.ErrNotFound
		}
		return sdn.ErrInvalid
	case http.StatusConflict:
		if has("is immutable") || has("Invalid state") {
			return errBusy
		}
		return sdn.ErrConflict
	case http.StatusNotImplemented:
		return sdn.ErrUnsupported
	case http.StatusInternalServerError:
		return classifyDriver(has)
	}
	return classify(status, "", "")
}

// classifyDriver is for a 500, by which a provider hands on what Neutron has said to
// it about the VIP's port.
func classifyDriver(has func(string) bool) error {
	switch {
	case has("already allocated"):
		return sdn.ErrConflict
	case has("No more IP addresses"), has("Quota exceeded"):
		return sdn.ErrQuota
	case has("is not a valid IP for"):
		return sdn.ErrInvalid
	}
	return sdn.ErrUnavailable
}

// classifyLBaaS is classifyBalancer for an LBaaS v2, which has Neutron's types.
func classifyLBaaS(status int, f fault, id string) error {
	switch {
	case f.kind == "StateInvalid", f.kind == "EntityInUse": // what uses it is on its way out
		return errBusy
	case f.kind == "EntityNotFound" && id != "" && strings.Contains(f.message, id):
		return sdn.ErrNotFound
	case f.kind == "HTTPNotFound": // Neutron's own word for a path that none of its extensions has
		return errNoPart
	case strings.HasPrefix(f.message, "Unrecognized attribute"): // of an extension that is not there
		return sdn.ErrUnsupported
	}
	return classify(status, f.kind, "")
}

// errNoPart: a Neutron without an extension that it may be without.
var errNoPart = fmt.Errorf("%w: %w", sdn.ErrNoService, sdn.ErrUnsupported)

// balancerHint is hint for Octavia.
func balancerHint(class error) string {
	switch {
	case errors.Is(class, sdn.ErrForbidden):
		return "give the credential the role load-balancer_member, or load-balancer_admin to act in other projects"
	case errors.Is(class, sdn.ErrQuota):
		return "raise the project's quota of load balancers, listeners, pools, members or ports, or free some"
	}
	return ""
}
