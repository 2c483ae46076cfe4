// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kuryr-go/kuryr/internal/controller/kube"
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
func LeaderServer(address string, l Leader) manager.Runnable {
	return kube.Everywhere(func(ctx context.Context) error {
		if address == "0" {
			return nil
		}
		end := time.Second // for clients that send or read nothing, as the times below: answers take microseconds
		server := manager.Server{Name: "leader", ShutdownTimeout: &end, Server: &http.Server{
			Addr: address, Handler: LeaderHandler(l), MaxHeaderBytes: 8 << 10,
			ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second,
		}}
		if err := server.Start(ctx); err != nil {
			return fmt.Errorf("--leader-api-bind-address: %w", err)
		}
		return nil
	})
}
