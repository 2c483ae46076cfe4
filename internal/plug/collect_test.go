// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/plug"
)

func TestCollect(t *testing.T) {
	v := newVswitch(t)
	s := v.set()
	defer s.Close()
	ports := map[string]plug.Interface{}
	for k, name := range []string{"unknown and gone", "gone", "unknown", "here"} {
		p := pod(t, "ovs", 50+k, newNamespace(t))
		mustPlug(t, driver(t, s, "ovs"), p)
		if strings.HasSuffix(name, "gone") {
			sh(t, "ip", "link", "delete", plug.HostDevice(p.PortID))
		}
		ports[name] = p
	}
	v.ctl(t, "add-port", "br-int", "tap-another", "--", "set", "Interface", "tap-another", "external_ids:iface-status=active")
	known := func(c string) bool { return c == ports["gone"].ContainerID || c == ports["here"].ContainerID }
	for range 2 {
		if err := s.Collect(t.Context(), known); err != nil {
			t.Fatalf("Collect = %v", err)
		}
		left := strings.Fields(v.ctl(t, "list-ports", "br-int"))
		for name, p := range ports {
			if got := slices.Contains(left, plug.HostDevice(p.PortID)); got == (name == "unknown and gone") {
				t.Errorf("the port that is %s is still on the bridge: %v", name, got)
			}
		}
		if !slices.Contains(left, "tap-another") {
			t.Error("somebody else's port was removed")
		}
	}
	stop(v.server)
	if err := s.Collect(t.Context(), known); err == nil {
		t.Error("Collect without the database succeeds")
	}
	without := plug.New(plug.Config{OVSDB: fmt.Sprintf("unix:%s/none.sock", v.dir), Bridge: "br-int"})
	if err := without.Collect(t.Context(), known); err != nil {
		t.Errorf("Collect on a node without Open vSwitch = %v", err)
	}
}
