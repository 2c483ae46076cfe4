// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Leader knows which controller process does what one process does for the whole cluster.
type Leader interface {
	// Leader returns the name of that process; false before it is known. It must not wait.
	Leader() (name string, known bool)
}

// LeaderHandler answers GET / with the leader, as {"name": "..."}, and with 503 before it is known.
func LeaderHandler(l Leader) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		name, known := l.Leader()
		if !known {
			http.Error(w, "no leader is known yet: this controller has not read the Leases", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(struct { // an error is that of a client that has left
			Name string `json:"name"`
		}{name})
	})
	return mux
}

// LeaderServer serves LeaderHandler at an address in each replica, until its context ends; at none
// if the address is "0".
func LeaderServer(address string, l Leader) manager.Runnable { return leaderServer{address, l} }

type leaderServer struct {
	address string
	leader  Leader
}

// NeedLeaderElection is false: each replica answers.
func (leaderServer) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s leaderServer) Start(ctx context.Context) error {
	if s.address == "0" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("--leader-api-bind-address: %w", err)
	}
	// Answers take microseconds: the times are for clients that send or read nothing.
	server := &http.Server{
		Handler: LeaderHandler(s.leader), MaxHeaderBytes: 8 << 10,
		ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second,
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the name of the leader: %w", err)
	}
	return nil
}
