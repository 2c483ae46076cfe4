// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// This file alone decides what an answer means. Seen on Neutron 21 (Zed).

// The services that are asked.
const (
	neutron  = "Neutron"
	Keystone = "Keystone"
	Octavia  = "Octavia"
	LBaaS    = "Neutron's LBaaS" // the same server as Neutron
)

// explain converts gophercloud's errors into the seam's. subject is the NeutronError that means
// "the object of this request does not exist", as in PortNotFound; for load balancers and projects
// it is the object's ID. who is the service that was asked.
func explain(ctx context.Context, err error, subject, who string) error {
	if answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err); ok {
		return answered(answer, subject, who)
	}
	if who == Keystone && context.Cause(ctx) == nil && !errors.As(err, new(*url.Error)) {
		// Nothing was sent: gophercloud finds the credential incomplete.
		return fmt.Errorf("%w: %w", sdn.ErrForbidden, err)
	}
	return Unanswered(ctx, err)
}

// Unanswered explains a request that got no answer, or none that can be read.
func Unanswered(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", sdn.ErrUnavailable, cause)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("%w: no answer in time", sdn.ErrUnavailable)
	}
	var at *url.Error // its URL is a query of some hundred bytes; the caller has named the request
	if errors.As(err, &at) {
		err = at.Err
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return fmt.Errorf("%w: %w (put the authority of the cloud's certificate into the file that cacert in clouds.yaml names)", sdn.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", sdn.ErrUnavailable, unnumbered(err))
}

// unnumbered leaves the port of this end out of a network's error. It is another one
// each time, and so would be each message, condition and Event.
func unnumbered(err error) error {
	if op := new(net.OpError); errors.As(err, &op) {
		return &net.OpError{Op: op.Op, Net: op.Net, Addr: op.Addr, Err: unnumbered(op.Err)}
	}
	if name := new(net.DNSError); errors.As(err, &name) && !name.IsNotFound {
		return fmt.Errorf("no name server knows %s", name.Name)
	}
	return err
}

func answered(a gophercloud.ErrUnexpectedResponseCode, subject, who string) error {
	f := parseFault(a.Body)
	said := fmt.Sprintf("%s answered %d", who, a.Actual)
	for _, part := range []string{f.kind, f.message} {
		if part != "" {
			said += ": " + part
		}
	}
	class := classify(a.Actual, f.kind, subject)
	switch who {
	case Octavia:
		class = classifyBalancer(a.Actual, f.message, subject)
	case LBaaS:
		class = classifyLBaaS(a.Actual, f, subject)
	}
	switch {
	case who == Keystone && subject != "" && a.Actual == http.StatusNotFound:
		class = sdn.ErrNotFound
	case who == Keystone && !errors.Is(class, sdn.ErrUnavailable):
		class = sdn.ErrForbidden // whatever is wrong with the login, it is not the caller's request
	}
	after := retryAfter(a.ResponseHeader, time.Now())
	if after > 0 && a.Actual == http.StatusRequestEntityTooLarge {
		class = sdn.ErrUnavailable // a middleware that limits rates, not a quota
	}
	hint := Hint(class, f.kind)
	if who == Octavia {
		hint = balancerHint(class)
	}
	if hint != "" {
		said += " (" + hint + ")"
	}
	err := fmt.Errorf("%s: %w", said, class)
	if after > 0 && errors.Is(class, sdn.ErrUnavailable) {
		return &sdn.BusyError{After: after, Err: err}
	}
	if errors.Is(class, sdn.ErrInvalid) {
		return refusal(who, f, err)
	}
	return err
}

// classify interprets a status and a NeutronError's type.
func classify(status int, kind, subject string) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return sdn.ErrForbidden
	case http.StatusNotFound:
		return classifyMissing(kind, subject)
	case http.StatusConflict:
		return classifyConflict(kind)
	case http.StatusPreconditionFailed:
		return sdn.ErrConflict
	case http.StatusRequestEntityTooLarge:
		return sdn.ErrQuota
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusGone: // the last is a proxy's
		return sdn.ErrUnavailable
	case http.StatusNotImplemented:
		return sdn.ErrInvalid
	}
	switch kind {
	case PairsExhausted:
		return sdn.ErrQuota
	case poolExhausted:
		return sdn.ErrAddresses
	}
	if status == http.StatusInternalServerError && kind != "" {
		return ErrCrash
	}
	if status >= 400 && status < 500 {
		return sdn.ErrInvalid
	}
	return sdn.ErrUnavailable
}

// ErrCrash is an ErrUnavailable of Neutron itself, not of a proxy before it: a request made it
// stumble.
var ErrCrash = fmt.Errorf("%w: a fault of its own", sdn.ErrUnavailable)

// PairsExhausted is the NeutronError that says: a port has as many address pairs as one may have. It is a 400.
const PairsExhausted = "AllowedAddressPairExhausted"

// poolExhausted is the NeutronError that says: a subnet pool has no prefix of that length left. It
// is a 500.
const poolExhausted = "SubnetAllocationError"

// classifyMissing distinguishes the object of the request from objects that the request refers to.
// A 404 in other words than Neutron's comes from a proxy or a wrong endpoint: treating it as "gone"
// would leak the resource that is being deleted.
func classifyMissing(kind, subject string) error {
	switch {
	case kind == subject && subject != "":
		return sdn.ErrNotFound
	case kind == "HTTPNotFound" && subject == FloatingMissing: // Neutron's own word for a path that none of its extensions has
		return errNoPart
	case strings.HasSuffix(kind, "NotFound") && kind != "HTTPNotFound":
		return sdn.ErrInvalid
	}
	return sdn.ErrUnavailable
}

// FloatingMissing is the NeutronError of a floating IP that is not there. A Neutron
// without routers has no path for them, which is another answer.
const FloatingMissing = "FloatingIPNotFound"

const (
	poolQuota = "SubnetPoolQuotaExceeded" // a project has as much of a subnet pool as it may have
	noSegment = "NoNetworkAvailable"      // the cloud has no VLAN or tunnel for another network
)

func classifyConflict(kind string) error {
	switch kind {
	case "OverQuota":
		return sdn.ErrProjectQuota
	case "IpAddressGenerationFailure", "NoMoreFixedIpsAvailable", poolQuota:
		return sdn.ErrAddresses
	case noSegment:
		return sdn.ErrQuota
	case "IpAddressGenerationFailureNoMatchingSubnet", "HostNotCompatibleWithFixedIps", "AddressPairAndPortSecurityRequired",
		"TrunkDisabled", "TrunkInErrorState": // a person has to put the trunk right
		return sdn.ErrInvalid
	}
	return sdn.ErrConflict
}

// Hint returns a remedy where Neutron's own message has none.
func Hint(class error, kind string) string {
	switch {
	case kind == "OverQuota":
		return "raise the project's quota or free some"
	case kind == poolExhausted:
		return "add prefixes to the subnet pool, or let subnets have a longer prefix"
	case kind == poolQuota:
		return "raise default_quota of the subnet pool"
	case kind == noSegment:
		return "give the cloud's tenant networks a larger range of VLANs or tunnels (ml2_conf.ini), or delete unused networks"
	case kind == PairsExhausted:
		return "raise max_allowed_address_pair in neutron.conf, which is 10 by default: each pod behind a port needs one for each of its addresses; or use trunks"
	case errors.Is(class, sdn.ErrQuota) && strings.HasPrefix(kind, "IpAddress"):
		return "add an allocation pool or a larger subnet, or free some addresses"
	case kind == "TrunkDisabled" || kind == "TrunkInErrorState":
		return "set the node's trunk up (openstack network trunk set --enable), or make it anew"
	case kind == "PolicyNotAuthorized":
		return "give the credential a role that may do this: binding a port to a host, choosing a floating IP's address, or using another project's router needs admin, or a policy that allows it"
	case errors.Is(class, sdn.ErrInvalid) && strings.HasSuffix(kind, "NotFound"):
		return "check the ID in the configuration, and that the credential may see it"
	}
	return ""
}

// maxPause limits how long one answer keeps Kuryr silent. A proxy in front of Neutron may send an
// hour by default, while Neutron is back in seconds. A service that needs longer sends it again.
const maxPause = time.Minute

// retryAfter reads HTTP's Retry-After, seconds or a date, up to maxPause.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.Atoi(v); err == nil {
		return min(time.Duration(min(max(s, 0), 3600))*time.Second, maxPause)
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), 0), maxPause)
	}
	return 0
}

// fault is the error in a body.
type fault struct{ kind, message string }

// maxMessage limits the part of a body in a message, because messages end in Events.
const maxMessage = 400

// parseFault reads the body of an error: Neutron's, Keystone's, that of a
// middleware in front of them, or a proxy's HTML.
func parseFault(body []byte) fault {
	var envelope map[string]json.RawMessage
	if json.Unmarshal(body, &envelope) != nil {
		return fault{message: tidy(htmlTag.ReplaceAllString(htmlHead.ReplaceAllString(string(body), " "), " "))}
	}
	for _, key := range []string{"NeutronError", "error", "overLimitFault"} {
		if raw, ok := envelope[key]; ok {
			return parseInner(raw)
		}
	}
	return parseInner(body)
}

// kindOf is the type of a NeutronError; empty if err is none.
func kindOf(err error) string {
	var answer gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &answer) {
		return ""
	}
	return parseFault(answer.Body).kind
}

func parseInner(raw json.RawMessage) fault {
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return fault{message: tidy(plain)}
	}
	var inner struct {
		Type, Message, Detail    string
		FaultString, Description string // Octavia's two forms
	}
	// A field of another type is left out; what could be read is kept.
	_ = json.Unmarshal(raw, &inner)
	f := fault{kind: kindForm.FindString(inner.Type), message: tidy(cmp.Or(inner.Message, inner.FaultString, inner.Description))}
	if d := tidy(inner.Detail); d != "" && d != f.message {
		f.message = tidy(f.message + " " + d)
	}
	if f == (fault{}) {
		f.message = tidy(string(raw))
	}
	return f
}

// IgnoreNotFound returns nil if err is an ErrNotFound: what is to be deleted is gone.
func IgnoreNotFound(err error) error {
	if errors.Is(err, sdn.ErrNotFound) {
		return nil
	}
	return err
}

var (
	kindForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,79}$`)
	htmlHead = regexp.MustCompile(`(?is)<(head|style|script)\b.*?</(head|style|script)>`)
	htmlTag  = regexp.MustCompile(`<[^>]*>`)
)

// passing is what differs each time in an error of a Python service, and says nothing about the
// cause: IDs of requests, as neutronclient appends them, and addresses of objects in memory. With
// it, each repetition would be a new message of a condition.
var passing = regexp.MustCompile(` ?Neutron server returns request_ids: \[[^\]]*\]| at 0x[0-9a-f]+| ?\(?(?i:request-id|request id|x-openstack-request-id)[:=]? req-[0-9a-f-]{36}\)?`)

// tidy makes one printable line of at most maxMessage bytes, which is the same each time that the
// same error occurs.
func tidy(s string) string {
	if len(s) > 16*maxMessage {
		s = s[:16*maxMessage]
	}
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	s = passing.ReplaceAllString(s, "")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}

// A refused credential is not offered again for a pause, which doubles with each refusal: a Keystone
// may lock an account after a few refusals, and its owner would never get in again. A changed
// credential is offered at once. Whether it has changed is read from its file at most once in
// changeCheck, as many requests may be refused meanwhile.
const (
	shortestPause = 10 * time.Second
	longestPause  = 5 * time.Minute
	changeCheck   = time.Second
)

// denial is Keystone's last word about a credential, if that was no. The zero value is none.
type denial struct {
	err     error
	of      credential // that was refused: never for a message
	pause   time.Duration
	until   time.Time
	checked time.Time // when the credential was last compared with its file
}

// again returns the denial that follows d. Only of a refused credential the pause grows: a proxy's 404,
// or a catalogue without Neutron, locks no account. A credential that cannot be read is the zero one.
func (d denial) again(of credential, err error, now time.Time) denial {
	pause := shortestPause
	if errors.As(err, new(refusedError)) && errors.As(d.err, new(refusedError)) && d.of.same(of) {
		pause = min(2*d.pause, longestPause)
	}
	return denial{err: err, of: of, pause: pause, until: now.Add(pause), checked: now}
}

// stands returns why the credential is not offered; nil if it is to be. read reads the credential.
func (d *denial) stands(now time.Time, read func() (credential, error)) error {
	if d.err == nil || !now.Before(d.until) {
		return nil
	}
	if now.Sub(d.checked) < changeCheck {
		return d.err
	}
	d.checked = now
	if is, err := read(); err != nil || is.same(d.of) {
		return d.err
	}
	d.until = now // for all who ask from now on
	return nil
}

// same reports whether a login with either credential would have the same result.
func (c credential) same(other credential) bool {
	if c.tls == nil || other.tls == nil {
		return c.tls == other.tls
	}
	return reflect.DeepEqual(c.auth, other.auth) && reflect.DeepEqual(c.endpoint, other.endpoint) &&
		c.tls.RootCAs.Equal(other.tls.RootCAs) && c.tls.InsecureSkipVerify == other.tls.InsecureSkipVerify &&
		reflect.DeepEqual(c.tls.Certificates, other.tls.Certificates)
}
