// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// After the journal was lost, a pair of an unknown sandbox stays while the sandbox has it. Then
// it is removed.
func TestCollectTakesClaimedPairsBack(t *testing.T) {
	parkings(t, func(t *testing.T, s *plug.Set, l lot, typ string) {
		d := driver(t, s, typ)
		known, lost := pod(t, typ, 1, newMounted(t)), pod(t, typ, 2, newMounted(t))
		for _, p := range []plug.Interface{known, lost} {
			park(t, s, l, p)
			mustPlug(t, d, p)
		}
		collect := func() {
			t.Helper()
			if err := s.Collect(t.Context(), func(id string) bool { return id == known.ContainerID }); err != nil {
				t.Fatalf("Collect = %v", err)
			}
		}
		collect()
		mustCheck(t, d, lost)
		for _, p := range []plug.Interface{known, lost} {
			if err := unix.Unmount(p.Netns, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the pair of the lost sandbox to go", func() bool {
			collect()
			return !hasDevice(t, plug.HostDevice(lost.PortID))
		})
		if !hasDevice(t, plug.HostDevice(known.PortID)) {
			t.Error("the pair of a sandbox that is known has gone, too")
		}
		park(t, s, l, lost)
		lost.ContainerID, lost.Netns = "next", newNamespace(t).path
		mustPlug(t, d, lost)
		counted(t, s, 3, 0)
	})
}
