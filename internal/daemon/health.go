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
	for {
		err := listenHTTP(ctx, address, handler)
		if err == nil || ctx.Err() != nil {
			return
		}
		logr.FromContextOrDiscard(ctx).Error(err, "serving health or metrics, will try again", "after", listenRetry.String())
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenRetry):
		}
	}
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
