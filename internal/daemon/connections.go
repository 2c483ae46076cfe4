// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxConnections limits the connections to health and to metrics, each, and to all health check
// ports of Services together. A connection takes some 20 KiB, and every client that reaches the
// node may open thousands.
const maxConnections = 100

// connections counts the connections of one or more HTTP servers. One more than allowed ends the
// oldest. If it had to wait instead, the holder of the others would block the kubelet's probes, and
// the kubelet would end the daemon. The zero value is ready.
type connections struct {
	mu   sync.Mutex
	open []net.Conn // the oldest first
}

// server returns a server whose connections are counted here. Its timeouts are short, because its
// answers are.
func (c *connections) server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ConnState: c.note,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}
}

func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open = append(c.open, conn)
		if len(c.open) > maxConnections {
			_ = c.open[0].Close()
			c.open = slices.Delete(c.open, 0, 1)
		}
	case http.StateActive, http.StateIdle: // already counted
	case http.StateClosed, http.StateHijacked:
		if i := slices.Index(c.open, conn); i >= 0 {
			c.open = slices.Delete(c.open, i, i+1)
		}
	}
}
