// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/util/wait"
)

// serveHTTP serves health and metrics at their addresses, if configured.
func (d *Daemon) serveHTTP(ctx context.Context) error {
	health := http.NewServeMux()
	health.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	health.HandleFunc("GET /readyz", d.readyz)
	numbers := http.NewServeMux()
	numbers.Handle("GET /metrics", promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{}))

	var servers sync.WaitGroup
	servers.Go(func() { keepListening(ctx, d.HealthAddress, health) })
	servers.Go(func() { keepListening(ctx, d.MetricsAddress, numbers) })
	servers.Wait()
	return nil
}

// keepListening serves until ctx ends. If it cannot listen, it tries again later. The daemon does
// not end because of it: pods need their network.
func keepListening(ctx context.Context, address string, handler http.Handler) {
	untilDone(ctx, listenRetry, "serving health or metrics", func() error { return listenHTTP(ctx, address, handler) })
}

// untilDone calls f until it succeeds or ctx ends, with a pause after a failure. It logs the first of
// each 16 failures in a row as what f does. It reports whether f has succeeded.
func untilDone(ctx context.Context, pause time.Duration, doing string, f func() error) bool {
	tries := 0
	err := wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		err := f()
		if tries++; err != nil && ctx.Err() == nil && tries%16 == 1 {
			logr.FromContextOrDiscard(ctx).Error(err, doing+", will try again", "after", pause.String())
		}
		return err == nil, nil
	})
	return err == nil
}

// readyz gives the same answer as STATUS.
func (d *Daemon) readyz(w http.ResponseWriter, r *http.Request) {
	if err := d.ready(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func listenHTTP(ctx context.Context, address string, handler http.Handler) error {
	if address == "" || address == "0" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serving HTTP on %s: %w", address, err)
	}
	server := new(connections).server(handler)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP on %s: %w", address, err)
	}
	return nil
}
