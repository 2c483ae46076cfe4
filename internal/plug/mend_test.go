// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/kuryr-go/kuryr/internal/plug"
)

// mended requires that Mend restores exactly these ports.
func mended(t testing.TB, s *plug.Set, all []plug.Interface, want ...plug.Interface) {
	t.Helper()
	var got, wanted []string
	found, err := s.Mend(t.Context(), all)
	for _, i := range found {
		got = append(got, i.PortID)
	}
	for _, i := range want {
		wanted = append(wanted, i.PortID)
	}
	if err != nil || !slices.Equal(got, wanted) {
		t.Fatalf("Mend = %v, %v; want %v", got, err, wanted)
	}
}

// Other programs may remove pods' ports from the node's switch, but only for a while.
func TestMendOpenVSwitch(t *testing.T) {
	v, l := newVswitch(t), newLot(t)
	s := plug.New(plug.Config{OVSDB: v.endpoint, Bridge: "br-int", Parking: l.path})
	d := driver(t, s, "ovs")
	a, b := newNamespace(t), newNamespace(t)
	anew, parked, gone := pod(t, "ovs", 70, a), pod(t, "ovs", 71, b), pod(t, "ovs", 72, newNamespace(t))
	park(t, s, l, parked)
	all := []plug.Interface{anew, parked}
	for _, p := range append(all, gone) {
		mustPlug(t, d, p)
		waited(t, d, p)
	}
	mustUnplug(t, d, gone)
	mended(t, s, append(all, gone))
	a.run(t, "ip", "address", "add", "172.16.0.1/24", "dev", "eth0") // does not concern the node

	v.ctl(t, "del-br", "br-int")
	if got, err := s.Mend(t.Context(), all); len(got) != 0 || !errors.Is(err, plug.ErrDataPath) {
		t.Errorf("Mend without a bridge = %v, %v; want ErrDataPath", got, err)
	}
	v.ctl(t, "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev")
	mended(t, s, append(all, gone), all...)
	for _, p := range all {
		waited(t, d, p)
	}
	transfer(t, a, b, addr(parked, 0))
	mended(t, s, all)

	v.ctl(t, "set", "Interface", plug.HostDevice(anew.PortID), `external_ids:attached-mac="fa:16:3e:ff:ff:ff"`)
	mended(t, s, all, anew)
	neutral := "/proc/sys/net/ipv6/conf/" + plug.HostDevice(parked.PortID) + "/disable_ipv6"
	sh(t, "sh", "-c", "echo 0 >"+neutral)
	mended(t, s, all) // the pod had its network: the setting is repaired, but not reported
	if got := sh(t, "cat", neutral); got != "1" {
		t.Errorf("disable_ipv6 is %s after Mend, want 1", got)
	}
	if got := a.run(t, "ip", "address", "show", "eth0"); !strings.Contains(got, "172.16.0.1") {
		t.Errorf("the pod's interface was made anew: %s", got)
	}
	v.ctl(t, "remove", "Open_vSwitch", ".", "external_ids", "ovn-remote")
	v.ctl(t, "del-port", plug.HostDevice(anew.PortID))
	if got, err := s.Mend(t.Context(), all); len(got) != 0 || err == nil || !strings.Contains(err.Error(), "ovn-remote") {
		t.Errorf("Mend on another's switch = %v, %v; want an error that names ovn-remote", got, err)
	}
	v.ctl(t, "set", "Open_vSwitch", ".", "external_ids:ovn-remote=unix:/nowhere")
	mended(t, s, all, anew)
	waited(t, d, anew)
	v.ctl(t, "set", "bridge", "br-int", "external_ids:ct-zone-"+parked.PortID+"=7")
	mustUnplug(t, d, parked) // its row belongs to the parking, as before
	if got, err := s.Parked(t.Context()); err != nil || !got[parked.PortID] {
		t.Errorf("Parked = %v, %v; want port %s to be whole", got, err, parked.PortID)
	}
	parked.ContainerID, parked.Netns = "next", newNamespace(t).path
	mustPlug(t, d, parked)
	if got := s.Counts().Claimed; got != 2 {
		t.Errorf("%d ports were claimed, want 2", got)
	}
}

func TestMendBridge(t *testing.T) {
	d := bridges(t)
	s := plug.New(plug.Config{Bridge: "br-test"})
	a, b := newNamespace(t), newNamespace(t)
	all := []plug.Interface{pod(t, "bridge", 73, a), pod(t, "bridge", 74, b)}
	for _, p := range all {
		mustPlug(t, d, p)
	}
	mended(t, s, all)
	sh(t, "ip", "link", "set", plug.HostDevice(all[0].PortID), "nomaster", "down")
	mended(t, s, all, all[0])
	sh(t, "ip", "link", "set", "br-test", "down")
	mended(t, s, all, all[0]) // which has the bridge up for all
	transfer(t, a, b, addr(all[1], 0))
	br, err := netlink.LinkByName("br-test")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(br); err != nil {
		t.Fatal(err)
	}
	mended(t, s, all, all...)
	transfer(t, a, b, addr(all[1], 0))
	sh(t, "ip", "link", "del", plug.HostDevice(all[1].PortID))
	mended(t, s, all) // the pod has no interface to connect
}
