// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// The daemon follows whether Services are served, keeps that while the file has
// faults, and says what it does not follow.
func TestDaemonFollowsServices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kuryr.yaml")
	write := func(tail string) {
		text := "apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\npods: {subnetIDs: [7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11]}\n" + tail
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	const services = "services: {subnetIDs: [7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e12]}\n"
	write("")
	began, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	told, said, ended := make(chan bool), make(chan string, 100), make(chan struct{})
	log := funcr.New(func(_, line string) { said <- line }, funcr.Options{})
	ctx, stop := context.WithCancel(logr.NewContext(t.Context(), log))
	go func() {
		defer close(ended)
		followServices(ctx, path, began, func(on bool) { told <- on })
	}()
	for i, step := range []struct {
		tail string
		want bool
	}{{"", false}, {services, true}, {services + "node: {mtu: 1400}\n", true}, {"", false}} {
		if i > 0 {
			write(step.tail)
		}
		if got := <-told; got != step.want {
			t.Errorf("step %d: Services are served: %v, want %v", i, got, step.want)
		}
	}
	if line := <-said; !strings.Contains(line, "under node") {
		t.Errorf("after a change of node: %s", line)
	}
	write("services: {subnetIDs: 7}\n")
	if line := <-said; !strings.Contains(line, "keeping the configuration") {
		t.Errorf("after a change with a fault: %s", line)
	}
	write(services)
	if !<-told {
		t.Error("after the fault was mended, Services are not served")
	}
	stop()
	<-ended
}
