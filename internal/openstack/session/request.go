// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Request is one call of the API of a service.
type Request struct {
	To     string // empty is neutron
	Method string
	Path   []string // below v2.0, of Keystone v3, unescaped; nil is the service's list of versions
	Query  url.Values
	Body   any
	Out    any
	Header map[string]string
	// Fields tell by the type of a NeutronError which field of this request it refuses, where the
	// type alone does not say.
	Fields  map[string]sdn.Field
	Subject string // NeutronError's word for the object not being there, or its ID in Octavia's; see explain
	// once: a repetition would not mean the same, so a closed connection is an error.
	Once bool
	// creates: a new port waits for this; see throttle.
	Creates bool
	// Members is how many of them the provider works at before Octavia answers.
	Members int
}

// LongWork is how many members make a request a long one: OVN's driver takes 0.25 to
// 0.4 s for each on two cores.
const LongWork = 10

// pace returns how a request waits for a place.
func (r Request) pace() pace {
	switch {
	case r.To != Octavia && r.Creates, r.To == Octavia && r.Method == http.MethodGet:
		return prompt
	case r.To == Octavia && r.Members > LongWork:
		return long
	}
	return other
}

// Do sends a request and reads its answer. It waits for leave to send, logs in
// when that is due, and once more if the token has expired. It is bounded by a
// few of RequestTimeout, whatever the deadline of ctx.
func (b *Client) Do(ctx context.Context, r Request) error {
	s, err := b.session(ctx, r)
	if err != nil {
		return err
	}
	err = b.send(ctx, s, r)
	if gophercloud.ResponseCodeIs(err, http.StatusUnauthorized) {
		if s, err = b.login.session(ctx, s); err != nil {
			return err
		}
		err = b.send(ctx, s, r)
	} else if connectionClosed(err) && r.repeatable() && ctx.Err() == nil {
		err = b.send(ctx, s, r)
	}
	if r.astray(ctx, err) {
		if fresh := b.login.afresh(ctx, s); fresh != s && r.repeatable() && ctx.Err() == nil {
			s, err = fresh, b.send(ctx, fresh, r)
		}
	}
	if err == nil || errors.As(err, new(explained)) {
		return err
	}
	kind := kindOf(err)
	err = explain(ctx, err, r.Subject, r.service())
	if field := r.Fields[kind]; field != "" && errors.Is(err, sdn.ErrInvalid) && sdn.FieldOf(err) == "" {
		return &sdn.InvalidError{Field: field, Err: err}
	}
	if errors.Is(err, sdn.ErrForbidden) {
		return fmt.Errorf("as %s: %w", s.credential, err)
	}
	return err
}

// astray reports whether err may be due to what the session knows: nothing answers at the endpoint,
// its certificate is refused, or something other than the service answers.
func (r Request) astray(ctx context.Context, err error) bool {
	if answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err); ok {
		own := []int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError}
		return !slices.Contains(own, answer.Actual) &&
			(!json.Valid(answer.Body) || errors.Is(explain(ctx, err, r.Subject, r.service()), sdn.ErrUnavailable))
	}
	chance := connectionClosed(err) && !r.repeatable() // others have met it twice
	return err != nil && !chance && !errors.As(err, new(explained)) && !errors.Is(err, context.Canceled)
}

// session returns the session for r. A catalogue is as old as its token. If it lacks the service,
// it is read again after a while, in case the service was added.
func (b *Client) session(ctx context.Context, r Request) (*session, error) {
	s, err := b.login.session(ctx, nil)
	if err != nil || r.To != Octavia || s.balancer != nil || time.Since(s.begun) < b.Config.CacheAge {
		return s, err
	}
	return b.login.session(ctx, s)
}

func (r Request) service() string { return cmp.Or(r.To, neutron) }

func (r Request) repeatable() bool { return r.Method != http.MethodPost && !r.Once }

// explained is an error that is not the answer's, and already in the seam's words.
type explained struct{ error }

func (e explained) Unwrap() error { return e.error }

// fencedPause is when a request that was refused by the Fence is worth another try.
const fencedPause = time.Second

// fenced returns why r must not be sent now; nil if it may be.
func (b *Client) fenced(r Request) error {
	if r.Method == http.MethodGet || b.Config.Fence == nil || b.Config.Fence.Admits() {
		return nil
	}
	return explained{&sdn.BusyError{After: fencedPause, Err: sdn.ErrFenced}}
}

// send sends r once.
func (b *Client) send(ctx context.Context, s *session, r Request) error {
	client, gate, err := b.route(s, r)
	if err != nil {
		return explained{err}
	}
	if err := b.fenced(r); err != nil { // before it is the probe of a service that is away
		return err
	}
	release, err := gate.acquire(ctx, r.pace())
	if err != nil {
		return explained{err}
	}
	if err := b.fenced(r); err != nil { // the wait may have been long
		release(notSent, 0)
		return err
	}
	u := client.Endpoint
	if r.Path != nil {
		u = client.ServiceURL(escaped(r.Path)...)
	}
	if len(r.Query) > 0 {
		u += "?" + r.Query.Encode()
	}
	response, err := client.Request(ctx, r.Method, u, &gophercloud.RequestOpts{ //nolint:bodyclose // gophercloud reads and closes it unless KeepResponseBody is set
		JSONBody: r.Body, JSONResponse: r.Out, MoreHeaders: r.Header,
		OkCodes: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent},
	})
	status := 0
	if response != nil {
		status = response.StatusCode
	}
	var after time.Duration
	var answer gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &answer) && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
		after = retryAfter(answer.ResponseHeader, time.Now())
	}
	release(status, after)
	return err
}

// route is the destination of a request, and its throttle.
func (b *Client) route(s *session, r Request) (*gophercloud.ServiceClient, *throttle, error) {
	if r.To == Keystone { // a survey asks it, which is rare: it shares Neutron's
		return s.identity, b.throttle, nil
	}
	if r.To != Octavia {
		return s.client, b.throttle, nil
	}
	if s.balancer == nil {
		return nil, nil, fmt.Errorf("the service catalogue has no load-balancer endpoint: install Octavia, or set "+
			"loadBalancerAPI to lbaasv2 if Neutron serves load balancers: %w: %w", sdn.ErrNoService, sdn.ErrUnsupported)
	}
	return s.balancer, b.balancerThrottle, nil
}

// Unchanged is the header of a request that is refused, as ErrConflict, if the
// object has another revision meanwhile.
func Unchanged(revision int) map[string]string {
	return map[string]string{"If-Match": "revision_number=" + strconv.Itoa(revision)}
}

// Set sets the fields of a body that have a value.
func Set(body map[string]any, fields map[string]string) {
	for name, v := range fields {
		if v != "" {
			body[name] = v
		}
	}
}

// NotNil is a list that a body shows as [] if it is empty: null is not the same.
func NotNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func escaped(path []string) []string {
	out := make([]string, len(path))
	for i, p := range path {
		out[i] = url.PathEscape(p)
	}
	return out
}

// connectionClosed reports whether the other end closed the connection instead
// of answering, as a server does that restarts or has idled for too long.
func connectionClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// maxRestarts limits how often a list is restarted because the last object of a page was deleted
// before the next page was requested.
const maxRestarts = 3

// Listable is what lists are read of. Its key is its ID.
type Listable interface{ Key() string }

// errShifted means that the last object of a page no longer exists, so the start of the next page
// is unknown.
var errShifted = errors.New("the list has changed between two pages")

// ReadAll reads a list, page after page, and returns the objects that keep accepts; nil accepts
// all. The name of the list is the last element of the path. If the last object of a page is
// deleted before the next page is requested, ReadAll restarts the list. It never returns
// ErrNotFound for that.
func ReadAll[T Listable](ctx context.Context, b *Client, r Request, keep func(T) bool) ([]T, error) {
	for try := 1; ; try++ {
		all, err := readPages(ctx, b, r, keep)
		switch {
		case !errors.Is(err, errShifted):
			return all, err
		case try > maxRestarts:
			return nil, fmt.Errorf("%w: the last object of a page was deleted meanwhile, %d times: %w", sdn.ErrUnavailable, try, err)
		}
	}
}

// readPages reads a list once. The marker of a page is the last object of the previous one. If that
// object is deleted, Octavia answers 400. Neutron answers 404, an empty page, or the first page
// again, depending on the kind.
func readPages[T Listable](ctx context.Context, b *Client, r Request, keep func(T) bool) (all []T, err error) {
	r.Method, r.Query = http.MethodGet, maps.Clone(r.Query)
	r.Query.Set("limit", strconv.Itoa(b.Config.PageSize))
	seen := map[string]bool{} // on earlier pages
	ordered := r.Query.Get("sort_key") == "id"
	for marker := ""; ; {
		rows, more, err := readPage[T](ctx, b, r)
		switch {
		case marker != "" && (errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid)):
			return nil, fmt.Errorf("%w: %s", errShifted, err.Error())
		case err != nil:
			return nil, err
		case marker != "" && len(rows) == 0: // the last page was full, or this is no page
			r.Query.Del("marker")
			r.Query.Set("id", marker)
			rows, _, err = readPage[T](ctx, b, r)
			if err == nil && len(rows) == 0 {
				err = fmt.Errorf("%w: an empty page after %s", errShifted, marker)
			}
			return all, err
		case marker != "" && (seen[rows[0].Key()] || ordered && rows[0].Key() <= marker):
			return nil, fmt.Errorf("%w: the page after %s is an earlier one", errShifted, marker)
		}
		for _, row := range rows {
			seen[row.Key()] = true
			if keep == nil || keep(row) {
				all = append(all, row)
			}
		}
		if !more || len(rows) == 0 {
			return all, nil
		}
		marker = rows[len(rows)-1].Key()
		r.Query.Set("marker", marker)
	}
}

func readPage[T Listable](ctx context.Context, b *Client, r Request) (rows []T, more bool, err error) {
	var page map[string]json.RawMessage
	r.Out = &page
	if err := b.Do(ctx, r); err != nil {
		return nil, false, err
	}
	name := r.Path[len(r.Path)-1]
	key := strings.ReplaceAll(name, "-", "_") // security-groups
	if err := json.Unmarshal(page[key], &rows); err != nil {
		return nil, false, fmt.Errorf("%w: reading the list of %s: %w", sdn.ErrUnavailable, name, err)
	}
	type link struct{ Rel string }
	var links []link
	_ = json.Unmarshal(page[key+"_links"], &links) // without them it was the last page
	// The length does not show whether a page follows: a cloud may have its own limit.
	return rows, slices.Contains(links, link{"next"}), nil
}
