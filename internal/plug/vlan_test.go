// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/nodetest"
	"github.com/kuryr-go/kuryr/internal/plug"
)

func TestVLANIDs(t *testing.T) {
	nodetest.Need(t)
	d := driver(t, plug.New(plug.Config{Parent: "lo"}), "vlan")
	for _, id := range []int{-1, 0, 4095, 70000} {
		p := pod(t, "vlan", 30, newNamespace(t))
		p.VLANID = id
		if err := d.Plug(t.Context(), p); !errors.Is(err, plug.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprint(id)) {
			t.Errorf("Plug with VLAN ID %d = %v, want ErrInvalid", id, err)
		}
		mustUnplug(t, d, p)
	}
}

// A runtime may keep the network namespace of a sandbox whose pod the SDN has forgotten. The
// namespace then has a device with the VLAN ID of another port (bug 1892388 of the former
// implementation, which then removed every interface with that ID).
func TestVLANIDOfAPortThatIsGone(t *testing.T) {
	vm := newVirtualMachine(t, "vlan", "nic0")
	held := newNamespace(t)
	gone, other := vm.pod(t, 31, held), vm.pod(t, 32, newNamespace(t))
	mustPlug(t, vm.driver, gone)
	mustPlug(t, vm.driver, other)

	p := vm.pod(t, 33, newNamespace(t))
	p.VLANID = gone.VLANID
	mustPlug(t, vm.driver, p)
	mustCheck(t, vm.driver, p)
	mustCheck(t, vm.driver, other)
	ping(t, vm.outside, addr(p, 0))
	if out := links(t, held); strings.Contains(out, "eth0") {
		t.Errorf("the sandbox of before still has it: %s", out)
	}
	gone.Netns = ""
	mustUnplug(t, vm.driver, gone)
	mustCheck(t, vm.driver, p)
}

// Devices with the same ID on other interfaces, or of other owners, stay.
func TestVLANIDOfSomebodyElse(t *testing.T) {
	vm := newVirtualMachine(t, "vlan", "nic0")
	p := vm.pod(t, 34, newNamespace(t))
	add := func(ns namespace, more ...string) {
		t.Helper()
		sh(t, append([]string{"ip", "link", "add", "link", "nic0", "name", "mine", "type", "vlan", "id", fmt.Sprint(p.VLANID)}, more...)...)
		if ns.path != "" {
			sh(t, "ip", "link", "set", "mine", "netns", ns.path)
		}
	}
	refused := func(says ...string) {
		t.Helper()
		err := vm.driver.Plug(t.Context(), p)
		for _, s := range append(says, fmt.Sprintf("VLAN ID %d is taken on nic0", p.VLANID)) {
			if !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), s) {
				t.Errorf("Plug = %v, want ErrDataPath that says %q", err, s)
			}
		}
		mustUnplug(t, vm.driver, p)
	}
	t.Run("on the node", func(t *testing.T) {
		add(namespace{})
		defer remove("mine")
		refused("mine", "of the node")
		if !hasDevice(t, "mine") {
			t.Error("it was removed")
		}
	})
	t.Run("in a namespace that has a number", func(t *testing.T) {
		ns := newNamespace(t)
		add(ns)
		ns.run(t, "ip", "link", "set", "mine", "alias", "somebody's")
		refused("mine", "somebody's", "nsid")
		if out := links(t, ns); !strings.Contains(out, "mine") {
			t.Errorf("it was removed: %s", out)
		}
		ns.run(t, "ip", "link", "del", "mine")
	})
	t.Run("in a namespace that has none", func(t *testing.T) {
		ns := newNamespace(t)
		sh(t, "ip", "link", "add", "link", "nic0", "name", "mine", "netns", ns.path, "type", "vlan", "id", fmt.Sprint(p.VLANID))
		refused("nothing of Kuryr's")
		if out := links(t, ns); !strings.Contains(out, "mine") {
			t.Errorf("it was removed: %s", out)
		}
		ns.run(t, "ip", "link", "del", "mine")
	})
	t.Run("on another interface", func(t *testing.T) {
		sh(t, "ip", "link", "add", "other0", "type", "veth", "peer", "name", "other1")
		defer remove("other0")
		sh(t, "ip", "link", "set", "other0", "up")
		q := vm.pod(t, 35, newNamespace(t))
		q.VLANID = p.VLANID
		d := driver(t, plug.New(plug.Config{Parent: "other0"}), "vlan")
		mustPlug(t, d, q)
		mustPlug(t, vm.driver, p)
		mustCheck(t, d, q)
		mustCheck(t, vm.driver, p)
		mustUnplug(t, vm.driver, p)
		mustUnplug(t, d, q)
	})
}
