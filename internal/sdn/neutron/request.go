// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// request is one call of Neutron's API.
type request struct {
	method  string
	path    []string // below v2.0, unescaped
	query   url.Values
	body    any
	out     any
	header  map[string]string
	subject string // NeutronError's word for the object not being there; see explain
	// once: a repetition would not mean the same, so a closed connection is an error.
	once bool
	// creates: a new port waits for this; see limiter.
	creates bool
}

// do sends a request and reads its answer. It waits for leave to send, logs in
// when that is due, and once more if the token has expired. It is bounded by a
// few of RequestTimeout, whatever the deadline of ctx.
func (b *Backend) do(ctx context.Context, r request) error {
	s, err := b.login.session(ctx, nil)
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
	if err == nil || errors.As(err, new(explained)) {
		return err
	}
	err = explain(ctx, err, r.subject, neutron)
	if errors.Is(err, sdn.ErrForbidden) {
		return fmt.Errorf("as %s: %w", s.credential, err)
	}
	return err
}

func (r request) repeatable() bool { return r.method != http.MethodPost && !r.once }

// explained is an error that is not the answer's, and already in the seam's words.
type explained struct{ error }

func (e explained) Unwrap() error { return e.error }

// send sends r once.
func (b *Backend) send(ctx context.Context, s *session, r request) error {
	release, err := b.limiter.acquire(ctx, r.creates)
	if err != nil {
		return explained{err}
	}
	u := s.client.ServiceURL(escaped(r.path)...)
	if len(r.query) > 0 {
		u += "?" + r.query.Encode()
	}
	response, err := s.client.Request(ctx, r.method, u, &gophercloud.RequestOpts{ //nolint:bodyclose // gophercloud reads and closes it unless KeepResponseBody is set
		JSONBody: r.body, JSONResponse: r.out, MoreHeaders: r.header,
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

// unchanged is the header of a request that is refused, as ErrConflict, if the
// object has another revision meanwhile.
func unchanged(revision int) map[string]string {
	return map[string]string{"If-Match": "revision_number=" + strconv.Itoa(revision)}
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
