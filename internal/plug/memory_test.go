// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/kuryr-go/kuryr/internal/plug"
)

// The daemon has 40 MiB in all. This package must need a small part of that for a node with the
// maximum number of ports.
func TestMemoryOfManyPorts(t *testing.T) {
	v := newForeignVswitch(t)
	v.ctl(t, "set", "Open_vSwitch", ".", "external_ids:ovn-remote=unix:/nowhere")
	stop(v.switchd) // the devices do not exist: it would only complain
	const ports, limit = 500, 4 << 20
	args := []string{"--no-wait"}
	for n := range ports {
		name := fmt.Sprintf("tap%08x-aa", n)
		args = append(args, "--", "add-port", "br-int", name, "--", "set", "Interface", name,
			fmt.Sprintf("external_ids:iface-id=%08x-aa00-4000-8000-000000000000", n),
			`external_ids:attached-mac="fa:16:3e:00:00:01"`, "external_ids:iface-status=active",
			fmt.Sprintf("external_ids:kuryr-sandbox=%064x", n))
	}
	v.ctl(t, args...)
	before := heap()
	s := plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int"})
	defer s.Close()
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	used := heap() - before
	t.Logf("%d ports: %d KiB", ports, used>>10)
	if used > limit {
		t.Errorf("%d ports take %d bytes, want at most %d", ports, used, limit)
	}
	runtime.KeepAlive(s)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
