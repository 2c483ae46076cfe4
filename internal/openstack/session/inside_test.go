// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ask sends one request through l and returns the rate after it.
func ask(t *testing.T, l *throttle, status int, took, after time.Duration) float64 {
	t.Helper()
	release, err := l.acquire(t.Context(), prompt)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	time.Sleep(took)
	release(status, after)
	return float64(l.tokens.Limit())
}

func TestThrottleSlowsDownAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle("Neutron", Config{RequestsPerSecond: 100, MaxConcurrent: 10, RequestTimeout: time.Minute})
		if got := ask(t, l, 200, time.Second, 0); got != 100 {
			t.Errorf("rate when well: %v, want 100", got)
		}
		for i, want := range []float64{50, 25, 12.5, 6.25, 3.125, 2, 2} {
			if got := ask(t, l, http.StatusTooManyRequests, 2*time.Second, 0); got != want {
				t.Errorf("rate after overload %d: %v, want %v", i+1, got, want)
			}
		}
		before := 2.0
		for before < 100 {
			got := ask(t, l, 200, 3*time.Second, 0)
			if got <= before || got > before+6 {
				t.Fatalf("rate went from %v to %v in 3 s, want a small rise", before, got)
			}
			before = got
		}
	})
}

// A request that is refused at once, as too many wait for their turn, is not said to have
// waited.
func TestThrottleSaysWhyItRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle("Neutron", Config{RequestsPerSecond: 1, MaxConcurrent: 100, RequestTimeout: time.Minute})
		for range 62 { // one more than have their turn in a minute
			go func() {
				if release, err := l.acquire(t.Context(), prompt); err == nil {
					release(200, 0)
				}
			}()
		}
		time.Sleep(time.Millisecond)
		begun := time.Now()
		_, err := l.acquire(t.Context(), prompt)
		const want = "the rate limit would delay this request by more than 1m0s"
		if err == nil || err.Error() != want || time.Since(begun) != 0 {
			t.Errorf("the last of many: %v after %s, want %q at once", err, time.Since(begun), want)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestThrottleHalvesOnceForOneCongestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle("Neutron", Config{RequestsPerSecond: 100, MaxConcurrent: 10, RequestTimeout: time.Minute})
		for range 4 { // the answers to four requests that were on their way together
			ask(t, l, http.StatusServiceUnavailable, time.Millisecond, 0)
		}
		if got := float64(l.tokens.Limit()); got != 50 {
			t.Errorf("rate %v, want 50", got)
		}
		if got := ask(t, l, 200, 40*time.Second, 0); got != 25 {
			t.Errorf("rate after a slow answer: %v, want 25", got)
		}
	})
}

// A service that has not answered several requests in a row gets one probe at a time until it
// answers. Who is refused comes back the later the longer that lasts. An error of the service
// itself is an answer.
func TestThrottleOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		l := newThrottle("Octavia", Config{RequestsPerSecond: 100, MaxConcurrent: 10, RequestTimeout: time.Minute, Metrics: metrics})
		for range awayAfter - 1 {
			ask(t, l, http.StatusBadGateway, time.Second, 0)
		}
		ask(t, l, http.StatusInternalServerError, time.Second, 0)
		outage(t, metrics, 0)
		for range awayAfter {
			ask(t, l, 0, time.Second, 0)
		}
		outage(t, metrics, 1)
		began, sent := time.Now(), 0
		var longest time.Duration
		for time.Since(began) < 10*time.Minute {
			release, err := l.acquire(t.Context(), prompt)
			if err == nil {
				sent++
				release(http.StatusServiceUnavailable, 0)
			} else if after, busy := sdn.RetryAfter(err); !busy || !errors.Is(err, sdn.ErrUnavailable) || !strings.Contains(err.Error(), "Octavia has not answered since 2000-01-01T00:00:06Z") {
				t.Fatalf("refused with %v, want that Octavia is away", err)
			} else if longest = max(longest, after); after < probeGap/2 {
				t.Fatalf("come back after %s, want half of %s at least", after, probeGap)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if want := int(10 * time.Minute / probeGap); sent > want || sent < want*9/10 || longest < 25*time.Second || longest > 2*latestReturn {
			t.Errorf("in ten minutes %d probes, and come back after %s at most, want %d and some %s", sent, longest, want, latestReturn)
		}
		time.Sleep(probeGap)
		if ask(t, l, 404, 0, 0); l.refuses(time.Now()) != nil {
			t.Error("still away after a probe was answered")
		}
		outage(t, metrics, 0)
	})
}

// outage checks what kuryr_cloud_outage says about Octavia.
func outage(t *testing.T, metrics prometheus.Gatherer, want int) {
	t.Helper()
	text := fmt.Sprintf(`
# HELP kuryr_cloud_outage 1 while a service of the cloud (Octavia, Neutron) answers nothing: only a probe is sent.
# TYPE kuryr_cloud_outage gauge
kuryr_cloud_outage{service="Octavia"} %d
`, want)
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(text), "kuryr_cloud_outage"); err != nil {
		t.Error(err)
	}
}

// A service that is away again is known as such after as many failures as the first time, and since
// the new time.
func TestThrottleOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle("Octavia", Config{RequestsPerSecond: 100, MaxConcurrent: 10, RequestTimeout: time.Minute})
		for _, since := range []string{"2000-01-01T00:00:01Z", "2000-01-01T00:00:08Z"} { // the second one: after 5 s and probeGap
			for i := range awayAfter {
				if err := l.refuses(time.Now()); err != nil {
					t.Errorf("refused after %d failures: %v", i, err)
				}
				ask(t, l, 0, time.Second, 0)
			}
			if err := l.refuses(time.Now()); err == nil || !strings.Contains(err.Error(), "has not answered since "+since) {
				t.Errorf("after %d failures: %v, want it away since %s", awayAfter, err, since)
			}
			time.Sleep(probeGap)
			ask(t, l, 200, 0, 0)
		}
	})
}

// A probe without an answer does not hold up the next one. If such probes take all places, the next
// one is sent when the first of them ends, after a request's time.
func TestProbesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 3
		l := newThrottle("Octavia", Config{RequestsPerSecond: 100, MaxConcurrent: places, RequestTimeout: time.Minute})
		for range awayAfter {
			ask(t, l, 0, 0, 0)
		}
		began := time.Now()
		for i := range places {
			time.Sleep(probeGap)
			release, err := l.acquire(t.Context(), prompt)
			if want := time.Duration(i+1) * probeGap; err != nil || time.Since(began) != want {
				t.Fatalf("probe %d: %v after %s, want it sent after %s", i, err, time.Since(began), want)
			}
			time.AfterFunc(time.Minute, func() { release(0, 0) })
		}
		time.Sleep(probeGap)
		ask(t, l, 200, 0, 0)
		if took, want := time.Since(began), probeGap+time.Minute; took != want || l.refuses(time.Now()) != nil {
			t.Errorf("the outage ends with an answer after %s: %v, want after %s", took, l.refuses(time.Now()), want)
		}
		time.Sleep(time.Minute) // the other probes fail after it
		if err := l.refuses(time.Now()); err != nil {
			t.Errorf("probes of the last outage make a new one: %v", err)
		}
	})
}

func TestThrottleBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle("Neutron", Config{RequestsPerSecond: 1, MaxConcurrent: 2, RequestTimeout: time.Minute})
		begun := time.Now()
		for range 4 {
			ask(t, l, 200, 0, 0)
		}
		if got := time.Since(begun); got != 3*time.Second {
			t.Errorf("4 requests at 1 a second took %s, want 3s", got)
		}
		var held []func(int, time.Duration)
		for range 2 {
			release, err := l.acquire(t.Context(), prompt)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		begun = time.Now()
		_, err := l.acquire(t.Context(), prompt)
		if _, ok := sdn.RetryAfter(err); !ok || time.Since(begun) != time.Minute {
			t.Errorf("a third at once: %v after %s, want busy after 1m", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.acquire(ctx, prompt); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, sdn.ErrUnavailable) {
			t.Errorf("a third with a deadline: %v", err)
		}
		held[0](200, 0)
		ask(t, l, 200, 0, 0)
	})
}

// What is not for a new port leaves half of Neutron's places free, in order that a new
// port waits for other new ports only; and with Octavia there is always a place for
// reading, and one for small changes while large ones are made.
func TestThrottleKeepsPlaces(t *testing.T) {
	for _, test := range []struct {
		places  int
		service string
		pace    pace
		taken   int
	}{
		{1, neutron, other, 1}, {2, neutron, other, 1}, {3, neutron, other, 1}, {8, neutron, other, 4},
		{1, Octavia, other, 1}, {2, Octavia, other, 1}, {8, Octavia, other, 6},
		{1, Octavia, long, 1}, {2, Octavia, long, 1}, {3, Octavia, long, 1}, {8, Octavia, long, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newThrottle(test.service, Config{RequestsPerSecond: 1000, MaxConcurrent: test.places, RequestTimeout: time.Minute})
			over, sent := make(chan struct{}), atomic.Int32{}
			for range 32 {
				go func() {
					release, err := l.acquire(t.Context(), test.pace)
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					sent.Add(1)
					<-over
					release(200, 0)
				}()
			}
			synctest.Wait()
			if got := int(sent.Load()); got != test.taken {
				t.Errorf("%d of %d places are taken by those of pace %d, want %d", got, test.places, test.pace, test.taken)
			}
			begun := time.Now()
			for range test.places - test.taken {
				if _, err := l.acquire(t.Context(), prompt); err != nil || time.Since(begun) != 0 {
					t.Errorf("acquire of a prompt one: %v after %s, want it at once", err, time.Since(begun))
				}
			}
			close(over)
			synctest.Wait()
			if got := sent.Load(); got != 32 {
				t.Errorf("%d of 32 had a turn", got)
			}
		})
	}
}

// A pool with many members takes as long as it takes.
func TestLongWorkIsNoCongestion(t *testing.T) {
	members := Request{To: Octavia, Method: http.MethodPut, Members: 100}
	for _, test := range []struct {
		r    Request
		want pace
	}{
		{members, long},
		{Request{To: Octavia, Method: http.MethodPut, Members: 2}, other},
		{Request{To: Octavia, Method: http.MethodDelete}, other},
		{Request{To: Octavia, Method: http.MethodPost, Creates: true}, other},
		{Request{To: Octavia, Method: http.MethodGet}, prompt},
		{Request{Method: http.MethodPost, Creates: true}, prompt},
		{Request{Method: http.MethodGet}, other},
		{Request{To: LBaaS, Method: http.MethodPut, Members: 100}, other},
	} {
		if got := test.r.pace(); got != test.want {
			t.Errorf("pace of %+v = %v, want %v", test.r, got, test.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle(Octavia, Config{RequestsPerSecond: 100, MaxConcurrent: 10, RequestTimeout: time.Minute})
		for _, status := range []int{200, 202, 0} {
			release, err := l.acquire(t.Context(), members.pace())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(59 * time.Second)
			release(status, 0)
			if got := float64(l.tokens.Limit()); got != 100 {
				t.Errorf("rate after a long answer by %d: %v, want 100", status, got)
			}
		}
		release, err := l.acquire(t.Context(), members.pace())
		if err != nil {
			t.Fatal(err)
		}
		release(http.StatusServiceUnavailable, 0)
		if got := float64(l.tokens.Limit()); got != 50 {
			t.Errorf("rate after an answer of 503: %v, want 50", got)
		}
	})
}

func TestThrottleLeavesTheCloudAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newThrottle("Neutron", Config{RequestsPerSecond: 100, MaxConcurrent: 2, RequestTimeout: time.Minute})
		ask(t, l, http.StatusServiceUnavailable, 0, 30*time.Second)
		time.Sleep(10 * time.Second)
		_, err := l.acquire(t.Context(), prompt)
		if after, _ := sdn.RetryAfter(err); after != 20*time.Second {
			t.Errorf("acquire: %v, retry after %s; want 20s", err, after)
		}
		time.Sleep(20 * time.Second)
		ask(t, l, 200, 0, 0)
	})
}

func TestRetryAfterForms(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "nonsense": 0, "61": time.Minute, "99999999": time.Minute,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
		"Fri, 02 Jan 2026 09:04:35 GMT": time.Minute,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("Retry-After %q: %s, want %s", value, got, want)
		}
	}
}

// The same failure reads the same each time: conditions that tell of it are not written anew.
func TestNetworkErrorsReadTheSame(t *testing.T) {
	from := func(port int) error {
		here, there := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: port}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9696}
		return &url.Error{Op: "Put", URL: "http://neutron/v2.0/ports/1", Err: &net.OpError{Op: "read", Net: "tcp", Source: here, Addr: there, Err: syscall.ECONNRESET}}
	}
	named := func(port int) error {
		said := fmt.Sprintf("read udp 10.0.0.5:%d->10.0.0.2:53: read: connection refused", port)
		return &url.Error{Op: "Put", Err: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: said, Name: "neutron", Server: "10.0.0.2:53"}}}
	}
	for want, failure := range map[string]func(int) error{
		"cloud unavailable: read tcp 10.0.0.1:9696: connection reset by peer": from,
		"cloud unavailable: dial tcp: no name server knows neutron":           named,
	} {
		for _, port := range []int{43210, 43211} {
			if got := Unanswered(t.Context(), failure(port)); got.Error() != want || !errors.Is(got, sdn.ErrUnavailable) {
				t.Errorf("from port %d: %q, want %q", port, got, want)
			}
		}
	}
}

// So do those of Octavia, which hands on the texts of its clients, with what differs each time.
func TestAnswersReadTheSame(t *testing.T) {
	for said, want := range map[string]string{
		"Provider 'ovn' reports error: IP address 10.96.0.9 already allocated in subnet s\nNeutron server returns request_ids: ['req-90868eb0-2f32-400e-bb44-ecb6e416ec50']": "Provider 'ovn' reports error: IP address 10.96.0.9 already allocated in subnet s",
		"(Caused by NewConnectionError('<urllib3.connection.HTTPConnection object at 0x7fa1529e1090>: Failed to establish a new connection: [Errno 111] ECONNREFUSED'))":     "(Caused by NewConnectionError('<urllib3.connection.HTTPConnection object>: Failed to establish a new connection: [Errno 111] ECONNREFUSED'))",
		"The server has either erred or is incapable of performing the requested operation. (HTTP 500) (Request-ID: req-90868eb0-2f32-400e-bb44-ecb6e416ec50)":               "The server has either erred or is incapable of performing the requested operation. (HTTP 500)",
		"Port 90868eb0-2f32-400e-bb44-ecb6e416ec50 could not be found.": "Port 90868eb0-2f32-400e-bb44-ecb6e416ec50 could not be found.",
	} {
		body, err := json.Marshal(map[string]string{"faultstring": said})
		if err != nil {
			t.Fatal(err)
		}
		if got := parseFault(body).message; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
}

func TestMarkTooLongOrUnreadable(t *testing.T) {
	for _, o := range []sdn.Owner{
		{},
		{Kind: "kuryrportpool", Name: strings.Repeat("x", 253)},
		{Kind: "kuryrportpool", Name: "two words"},
		{Kind: "kuryrportpool", Namespace: "a/b", Name: "c"},
	} {
		if s, err := (Mark{Cluster: "one", Owner: o}).Description(); !errors.Is(err, sdn.ErrInvalid) {
			t.Errorf("description of owner %+v = %q, %v; want ErrInvalid", o, s, err)
		}
	}
}

func FuzzMark(f *testing.F) {
	f.Add("one", "kuryrportpool", "", "n1-0123456789", "", "")
	f.Add("one", "kuryrportpool", "", "n1-0123456789", "b1000000-0000-4000-8000-000000000001", "")
	f.Add("one", "service", "default", "web", "", "made by hand, do not touch")
	f.Add("", "", "", "", "two words", "kuryr.cluster=a kuryr.cluster=a kuryr.parent=b")
	f.Add("one-more", "a", "b", "c", "kuryr.cluster=two", "xkuryr.cluster=one")
	f.Fuzz(func(t *testing.T, cluster, kind, namespace, name, parent, note string) {
		m := Mark{Cluster: cluster, Owner: sdn.Owner{Kind: kind, Namespace: namespace, Name: name}, Parent: parent}
		got := ParseMark(note)
		if got.Cluster != "" && !strings.Contains(note, ClusterMark+got.Cluster) {
			t.Errorf("parseMark(%q) = %+v, of a mark that is not there", note, got)
		}
		s, err := m.Description()
		if err != nil {
			return
		}
		if back := ParseMark(s); back != m || len(s) > MaxDescription {
			t.Errorf("parseMark(%q) = %+v, want %+v", s, back, m)
		}
		if !strings.Contains(note, "kuryr.") {
			if back := ParseMark(note + " " + s + "\n" + note); back != m {
				t.Errorf("beside a note: parseMark = %+v, want %+v", back, m)
			}
		}
	})
}

func FuzzFault(f *testing.F) {
	for _, s := range []string{
		`{"NeutronError": {"type": "PortNotFound", "message": "Port x could not be found.", "detail": ""}}`,
		`{"NeutronError": "old form"}`, `{"error": {"code": 401, "title": "Unauthorized", "message": "m"}}`, `{"message": "m", "code": 4}`,
		`{"NeutronError": {"type": ["x"], "message": {"a": 1}, "detail": 4}}`, `{"NeutronError": null}`, `[1]`, `"x"`, ``,
		"<html><head><title>404</title></head><body>gone<br/>for\x00ever \xff</body>", strings.Repeat("x ", 5000),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := parseFault(body)
		if len(got.message) > maxMessage+len("…")*2 || len(got.kind) > 80 {
			t.Errorf("parseFault(%q) has %d bytes", body, len(got.message))
		}
		if !utf8.ValidString(got.message) || strings.ContainsFunc(got.kind+got.message, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("parseFault(%q) = %q, which cannot be printed on a line", body, got)
		}
	})
}
