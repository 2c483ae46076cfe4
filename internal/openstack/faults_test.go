// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

func neutronError(kind, message string) string {
	return `{"NeutronError": {"type": "` + kind + `", "message": "` + message + `", "detail": ""}}`
}

// What Neutron 21, Keystone 22 and what may stand before them answer; the
// bodies of 400, 403, 404 and 409 are as seen.
func TestWhatAnswersMean(t *testing.T) {
	const create, update, remove = "POST v2.0/ports", "PUT v2.0/ports/ID", "DELETE v2.0/ports/ID"
	tests := []struct {
		call   string
		status int
		body   string
		after  string // Retry-After
		want   error  // nil: the call succeeds
		says   string
	}{
		{create, 400, neutronError("InvalidInput", "Invalid input for operation: Failed to create port on network x, because fixed_ips included invalid subnet y."), "", sdn.ErrInvalid, "invalid subnet y"},
		{create, 400, neutronError("HTTPBadRequest", "Invalid input for network_id. Reason: 'xx' is not a valid UUID."), "", sdn.ErrInvalid, "'xx' is not a valid UUID"},
		{create, 403, neutronError("PolicyNotAuthorized", "((rule:create_port and rule:create_port:device_owner) and rule:create_port:binding:host_id) is disallowed by policy"), "", sdn.ErrForbidden, "needs admin"},
		{create, 404, neutronError("SubnetNotFound", "Subnet s could not be found."), "", sdn.ErrInvalid, "Subnet s could not be found"},
		{create, 404, neutronError("NetworkNotFound", "Network n could not be found."), "", sdn.ErrInvalid, "Network n could not be found"},
		{create, 404, neutronError("SecurityGroupNotFound", "Security group g does not exist"), "", sdn.ErrInvalid, "Security group g"},
		{create, 409, neutronError("OverQuota", "Quota exceeded for resources: ['port']."), "", sdn.ErrQuota, "raise the project's quota"},
		{create, 409, neutronError("IpAddressGenerationFailure", "No more IP addresses available on network n."), "", sdn.ErrQuota, "No more IP addresses available on network n"},
		{create, 409, neutronError("MacAddressInUse", "Unable to complete operation"), "", sdn.ErrConflict, "MacAddressInUse"},
		{create, 413, `{"overLimitFault": {"code": 413, "message": "This request was rate-limited."}}`, "", sdn.ErrQuota, "rate-limited"},
		{create, 413, `{"overLimitFault": {"code": 413, "message": "This request was rate-limited."}}`, "7", sdn.ErrUnavailable, "rate-limited"},
		{create, 429, `{"error": {"message": "Too many requests"}}`, "7", sdn.ErrUnavailable, "Too many requests"},
		{create, 307, ``, "", sdn.ErrUnavailable, "307"},
		{create, 429, ``, "", sdn.ErrUnavailable, "429"},
		{create, 500, neutronError("HTTPInternalServerError", "Request Failed: internal server error while processing your request."), "", sdn.ErrUnavailable, "internal server error"},
		{create, 502, "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>", "", sdn.ErrUnavailable, "502: 502 Bad Gateway"},
		{create, 503, "<html><body><h1>503 Service Unavailable</h1>\nNo server is available to handle this request.\n</body></html>", "", sdn.ErrUnavailable, "No server is available"},
		{create, 503, `{"error": {"code": 503}}`, "7", sdn.ErrUnavailable, "503"},
		{create, 504, "", "", sdn.ErrUnavailable, "504"},
		{update, 404, neutronError("PortNotFound", "Port p could not be found."), "", sdn.ErrNotFound, "Port p could not be found"},
		{update, 404, neutronError("SecurityGroupNotFound", "Security group g does not exist"), "", sdn.ErrInvalid, "Security group g"},
		{update, 412, neutronError("RevisionNumberConstraintFailed", "Constrained to 1, but current revision is 2"), "", sdn.ErrConflict, "current revision"},
		{remove, 404, neutronError("PortNotFound", "Port p could not be found."), "", nil, ""},
		{remove, 404, "<html><body>404 Not Found: nothing is served here</body></html>", "", sdn.ErrUnavailable, "nothing is served here"},
		{remove, 409, neutronError("PortInUse", "Unable to complete operation on port p for network n."), "", sdn.ErrConflict, "PortInUse"},
	}
	for _, test := range tests {
		f := newFake(t)
		b := f.backend("one")
		port := mustCreate(t, b, request, 1)[0]
		f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if !strings.HasPrefix(test.call, r.Method) || !strings.HasPrefix(r.URL.Path, "/v2.0/ports") {
				return false
			}
			if test.after != "" {
				w.Header().Set("Retry-After", test.after)
			}
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte(test.body))
			return true
		}
		var err error
		name := "x"
		switch test.call {
		case create:
			_, err = b.CreatePorts(t.Context(), owner, request, 1)
		case update:
			err = b.UpdatePort(t.Context(), port.ID, sdn.PortUpdate{Name: &name})
		case remove:
			err = b.DeletePort(t.Context(), port.ID)
		}
		if !errors.Is(err, test.want) || len(classes(err)) > 1 {
			t.Errorf("%s answered %d %s: error %v of %v, want %v", test.call, test.status, test.body, err, classes(err), test.want)
		}
		if err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s answered %d: error %q does not say %q", test.call, test.status, err, test.says)
		}
		want := time.Duration(0)
		if test.after != "" {
			want = 7 * time.Second
		}
		if got, _ := sdn.RetryAfter(err); got != want {
			t.Errorf("%s answered %d with Retry-After %q: %s", test.call, test.status, test.after, got)
		}
	}
}

// classes are the errors of the seam that err is. It has to be one.
func classes(err error) (out []error) {
	for _, c := range []error{
		sdn.ErrNotFound, sdn.ErrQuota, sdn.ErrInvalid, sdn.ErrForbidden, sdn.ErrConflict, sdn.ErrUnbound, sdn.ErrUnavailable,
	} {
		if errors.Is(err, c) {
			out = append(out, c)
		}
	}
	return out
}

func TestErrorSaysWhichCallOnWhat(t *testing.T) {
	f := newFake(t)
	f.limit(0)
	_, err := f.backend("one").CreatePorts(t.Context(), owner, request, 1)
	const want = `creating 1 ports in subnet 50000000-0000-4000-8000-000000000004 on host "n1", of which 0 were made: ` +
		`Neutron answered 409: OverQuota: Quota exceeded for resources: ['port']. (raise the project's quota or free some): over quota of the project`
	if err == nil || err.Error() != want {
		t.Errorf("error\n%v, want\n%v", err, want)
	}
}

func TestExpiredTokenIsRenewed(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	mustCreate(t, b, request, 1)
	f.mu.Lock()
	f.token++ // what the backend has is no longer taken
	f.mu.Unlock()
	mustCreate(t, b, request, 1)
	if got := f.counts(); got["POST v3/auth/tokens"] != 2 || got["POST v2.0/ports"] != 3 {
		t.Errorf("requests %v; want a second login, and the refused POST once more", got)
	}
}

func TestTokenRefusedForGood(t *testing.T) {
	f := newFake(t)
	f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Path == "/v3/auth/tokens" {
			return false
		}
		answer(w, 401, object{"error": object{"code": 401, "message": "The request you have made requires authentication."}})
		return true
	}
	_, err := f.backend("one").ListPorts(t.Context())
	if !errors.Is(err, sdn.ErrForbidden) || !strings.Contains(err.Error(), `user kuryr of cloud "fake"`) {
		t.Errorf("ListPorts: %v, want ErrForbidden naming the credential", err)
	}
	if got := f.counts()["POST v3/auth/tokens"]; got != 2 {
		t.Errorf("%d logins, want 2", got)
	}
}

func TestWrongPassword(t *testing.T) {
	f := newFake(t)
	f.before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		answer(w, 401, object{"error": object{"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}})
		return true
	}
	b := f.backend("one")
	for range 3 {
		_, err := b.CreatePorts(t.Context(), owner, request, 1)
		if !errors.Is(err, sdn.ErrForbidden) || !strings.Contains(err.Error(), `user kuryr of cloud "fake"`) {
			t.Errorf("CreatePorts: %v, want ErrForbidden naming the credential", err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
	if got := f.counts()["POST v3/auth/tokens"]; got != 1 {
		t.Errorf("the refused password was offered %d times; accounts are locked for that", got)
	}
}

func TestLoginThatCannotWork(t *testing.T) {
	for _, status := range []int{400, 403, 404, 500, 503} {
		f := newFake(t)
		f.before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			answer(w, status, object{"error": object{"code": status, "message": "Expecting to find domain in user."}})
			return true
		}
		want := sdn.ErrForbidden
		if status == 404 || status >= 500 {
			want = sdn.ErrUnavailable
		}
		_, err := f.backend("one").CreatePorts(t.Context(), owner, request, 1)
		if !errors.Is(err, want) || len(classes(err)) != 1 || !strings.Contains(err.Error(), "Expecting to find domain") {
			t.Errorf("Keystone answers %d: %v, want %v", status, err, want)
		}
	}
}

// hangUp closes the connection instead of answering.
func hangUp(w http.ResponseWriter) bool {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
	return true
}

func TestLostAnswers(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	port := mustCreate(t, b, request, 1)[0]
	lost := map[string]int{}
	f.before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		lost[r.Method]++
		return lost[r.Method] == 1 && hangUp(w)
	}
	ports, err := b.CreatePorts(t.Context(), owner, request, 1)
	sent := func(method string) int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return lost[method]
	}
	if got := sent("POST"); !errors.Is(err, sdn.ErrUnavailable) || len(ports) != 0 || got != 1 {
		t.Errorf("CreatePorts = %d ports, %v after %d POSTs; want ErrUnavailable after one", len(ports), err, got)
	}
	name := "x"
	if err := b.UpdatePort(t.Context(), port.ID, sdn.PortUpdate{Name: &name}); err != nil || sent("PUT") != 2 {
		t.Errorf("UpdatePort: %v after %d PUTs; want it repeated once", err, sent("PUT"))
	}
	if err := b.DeletePort(t.Context(), port.ID); err != nil || sent("DELETE") != 2 {
		t.Errorf("DeletePort: %v after %d DELETEs; want it repeated once", err, sent("DELETE"))
	}
}

func TestCloudAwayAtStart(t *testing.T) {
	f := newFake(t)
	away := true
	f.before = func(w http.ResponseWriter, _ *http.Request, _ int) bool { return away && hangUp(w) }
	b := f.backend("one")
	if got := f.counts(); len(got) != 0 {
		t.Errorf("New asked the cloud: %v", got)
	}
	if _, err := b.CreatePorts(t.Context(), owner, request, 1); !errors.Is(err, sdn.ErrUnavailable) {
		t.Errorf("CreatePorts with the cloud away: %v, want ErrUnavailable", err)
	}
	f.mu.Lock()
	away = false
	f.mu.Unlock()
	mustCreate(t, b, request, 1)
}

func TestNoAnswerInTime(t *testing.T) {
	f := newFake(t)
	b := f.backend("one", func(c *openstack.Config) { c.RequestTimeout = 2 * time.Second }) // the login has to be done in that time, too
	mustCreate(t, b, request, 1)
	over := make(chan struct{})
	defer close(over)
	f.before = func(http.ResponseWriter, *http.Request, int) bool { <-over; return true }
	_, err := b.CreatePorts(t.Context(), owner, request, 1) // a context without a deadline
	if !errors.Is(err, sdn.ErrUnavailable) || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("CreatePorts: %v, want ErrUnavailable, no answer in time", err)
	}
}

func TestDeadlineOfTheCaller(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	mustCreate(t, b, request, 1)
	over := make(chan struct{})
	defer close(over)
	f.before = func(http.ResponseWriter, *http.Request, int) bool { <-over; return true }
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := b.ListPorts(ctx)
	if !errors.Is(err, sdn.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ListPorts: %v, want ErrUnavailable and DeadlineExceeded", err)
	}
}

// Once told to stay away, the backend does not even ask; and stays away for no
// longer than a minute, whatever it is told.
func TestRetryAfterKeepsRequestsBack(t *testing.T) {
	f := newFake(t)
	b := f.backend("one")
	mustCreate(t, b, request, 1)
	f.before = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	for range 3 {
		_, err := b.CreatePorts(t.Context(), owner, request, 1)
		if after, ok := sdn.RetryAfter(err); !ok || after < 30*time.Second || after > time.Minute || !errors.Is(err, sdn.ErrUnavailable) {
			t.Errorf("CreatePorts: %v, retry after %s", err, after)
		}
	}
	if got := f.counts()["POST v2.0/ports"]; got != 2 {
		t.Errorf("%d POSTs, want 2: the first, and the one that was told to stay away", got)
	}
}
