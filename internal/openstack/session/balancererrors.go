// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// BusyRetry is when to look again at a load balancer that is busy: OVN's are for
// half a second, an amphora's for some seconds and for a minute at first.
const BusyRetry = time.Second

var errBusy = &sdn.PendingError{What: "the load balancer's provider", Retry: BusyRetry}

// ErrWordless is an ErrConflict of Neutron's about a VIP's port, without Neutron's words: the
// address may be taken, the quota of ports used up, or the subnet full.
var ErrWordless = fmt.Errorf("%w without details", sdn.ErrConflict)

// octaviaMeanings say what an answer of Octavia means: the first that fits its status and
// its words, where empty ones are any. Octavia has no types of errors, so its words decide
// where the status does not. Seen on Octavia 11 (Zed) but for what names another release.
var octaviaMeanings = []struct {
	status int
	words  string
	class  error
}{
	{http.StatusForbidden, "Quota has been met", sdn.ErrQuota},
	{http.StatusConflict, "is immutable", errBusy},
	{http.StatusConflict, "Invalid state", errBusy},
	// From 2025.2 on amphora's driver hands on a conflict of Neutron's as one, whatever it is for.
	{http.StatusConflict, "No more IP addresses", sdn.ErrQuota},
	{http.StatusConflict, "Quota exceeded", sdn.ErrQuota},
	{http.StatusConflict, "", sdn.ErrConflict},
	{http.StatusNotImplemented, "", sdn.ErrUnsupported},
	// By a 500 a provider hands on what Neutron has said to it about the VIP's port.
	{http.StatusInternalServerError, "already allocated", sdn.ErrConflict},
	{http.StatusInternalServerError, "No more IP addresses", sdn.ErrQuota},
	{http.StatusInternalServerError, "Quota exceeded", sdn.ErrQuota},
	{http.StatusInternalServerError, "is not a valid IP for", sdn.ErrInvalid},
	// Amphora's of 2023.2 to 2025.1 hands on the status alone, in openstacksdk's words.
	{http.StatusInternalServerError, "ConflictException: 409", ErrWordless},
	{http.StatusInternalServerError, "BadRequestException: 400", sdn.ErrInvalid},
	{http.StatusInternalServerError, "", sdn.ErrUnavailable},
}

// classifyBalancer says what an answer of Octavia means. id is of the object that the
// request is about.
func classifyBalancer(status int, said, id string) error {
	if status == http.StatusNotFound {
		switch {
		case !strings.Contains(said, " not found."): // a proxy's, or a wrong endpoint's
			return sdn.ErrUnavailable
		case id != "" && strings.Contains(said, id):
			return sdn.ErrNotFound
		}
		return sdn.ErrInvalid
	}
	for _, m := range octaviaMeanings {
		if m.status == status && strings.Contains(said, m.words) {
			return m.class
		}
	}
	return classify(status, "", "")
}

// octaviaFields tell by the words of a refusal which field of the request it is about. What
// they have in parentheses is the field's value.
var octaviaFields = []struct {
	words *regexp.Regexp
	field sdn.Field
}{
	{regexp.MustCompile(`Provider '([^']*)' is not enabled`), sdn.FieldProvider},
	{regexp.MustCompile(`(\S+) is not a valid option for member address`), sdn.FieldMember},
	{regexp.MustCompile(`attribute address\. Value: '([^']*)'`), sdn.FieldMember},
	{regexp.MustCompile(`(?i)flavor`), sdn.FieldFlavor},
	{regexp.MustCompile(`(?i)availability.zone`), sdn.FieldAvailabilityZone},
	{regexp.MustCompile(`(?i)subnet (\S+) (?:not found|could not be found)`), sdn.FieldSubnet},
	{regexp.MustCompile(`(?i)subnet`), sdn.FieldSubnet},
	{regexp.MustCompile(`reports error: BadRequestException: 400`), sdn.FieldSubnet}, // Neutron's about the VIP's port, see above
}

// neutronFields tell the field by the type of a NeutronError.
var neutronFields = map[string]sdn.Field{
	"NetworkNotFound": sdn.FieldNetwork, "SubnetNotFound": sdn.FieldSubnet, "SecurityGroupNotFound": sdn.FieldSecurityGroup,
	"PortNotFound": sdn.FieldPort, "RouterNotFound": sdn.FieldRouter,
	"SubnetPoolNotFound": sdn.FieldSubnetPool, "NetworkSubnetPoolAffinityError": sdn.FieldSubnetPool,
	"MinPrefixSubnetAllocationError": sdn.FieldSubnetPool, "MaxPrefixSubnetAllocationError": sdn.FieldSubnetPool,
	"DNSNameServersExhausted": sdn.FieldDNSServers, "HostRoutesExhausted": sdn.FieldRoutes,
}

// refusal is err as an InvalidError, if the answer of a service tells the field.
func refusal(who string, f fault, err error) error {
	out := &sdn.InvalidError{Field: neutronFields[f.kind], Err: err}
	if who == Octavia || who == LBaaS {
		for _, of := range octaviaFields {
			if said := of.words.FindStringSubmatch(f.message); said != nil && out.Field == "" {
				out.Field = of.field
				out.Value = strings.Join(said[1:], "")
			}
		}
	}
	if out.Field == "" {
		return err
	}
	return out
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
