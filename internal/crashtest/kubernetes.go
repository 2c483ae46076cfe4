// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// cluster returns the configuration with which the process reaches the API server. The process
// has a transport of its own, which lets nothing through once the process is stopped.
func (p *process) cluster(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return &kubernetes{p, base} })
	return cfg
}

// kubernetes connects one process to the API server.
type kubernetes struct {
	p    *process
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A write that was sent arrives, even if its process is
// stopped meanwhile.
func (k *kubernetes) RoundTrip(r *http.Request) (*http.Response, error) {
	call := kubernetesCall(r)
	x, err := k.p.begin(call)
	if errors.Is(err, errStopped) && strings.HasSuffix(call.What, " leases") {
		// A controller whose Lease is gone ends at once, as if it were killed.
		return instead(r, answeredError(http.StatusNotFound))
	}
	if err != nil {
		return nil, err
	}
	if call.Write {
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	resp, err := k.base.RoundTrip(r)
	if lost := x.end(); lost != nil {
		if err == nil {
			resp.Body.Close()
		}
		return instead(r, lost)
	}
	if err == nil && call.Write {
		if err := k.p.terms.note(k.p, r, resp); err != nil {
			return nil, err
		}
	}
	if err == nil && r.URL.Query().Has("watch") {
		s := &stream{ReadCloser: resp.Body, p: k.p, closed: make(chan struct{})}
		go s.endOn(k.p.leaving())
		resp.Body = s
	}
	return resp, err
}

// instead returns what a client gets in place of an answer that is lost.
func instead(r *http.Request, lost error) (*http.Response, error) {
	status := answeredError(0)
	if !errors.As(lost, &status) {
		return nil, lost
	}
	return &http.Response{
		StatusCode: int(status), Status: http.StatusText(int(status)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("internal error")), Request: r,
	}, nil
}

// kubernetesCall names a request by verb and resource, without the object's name.
func kubernetesCall(r *http.Request) Call {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	path = path[min(len(path), 2):] // api/v1
	if strings.HasPrefix(r.URL.Path, "/apis/") {
		path = path[min(len(path), 1):] // apis/group/version
	}
	if len(path) > 2 && path[0] == "namespaces" {
		path = path[2:]
	}
	what := r.Method + " " + strings.Join(path[:min(len(path), 1)], "")
	if len(path) > 2 {
		what += "/" + path[2]
	}
	// Access reviews change nothing.
	return Call{To: Kubernetes, What: what, Write: writes(r.Method) && !strings.HasSuffix(what, "accessreviews")}
}

func writes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// stream is the body of a watch. Its events may arrive late, but in order.
type stream struct {
	io.ReadCloser
	p      *process
	once   sync.Once
	closed chan struct{}
}

// Read implements io.Reader. It checks for lateness only after data has arrived, because the call
// may have begun long before.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if late := s.p.behind(); late != nil {
		select {
		case <-late:
		case <-s.closed:
			return 0, io.ErrClosedPipe
		}
	}
	if s.p.isStopped() {
		return 0, errStopped
	}
	return n, err
}

// endOn ends the stream when the API server goes away.
func (s *stream) endOn(leaving <-chan struct{}) {
	select {
	case <-leaving:
		_ = s.ReadCloser.Close()
	case <-s.closed:
	}
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.ReadCloser.Close()
}
