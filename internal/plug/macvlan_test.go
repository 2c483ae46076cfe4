// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/plug"
)

func TestMacvlanNeedsThePortsMAC(t *testing.T) {
	vm := newVirtualMachine(t, "macvlan", "nic0")
	p := vm.pod(t, 40, newNamespace(t))
	p.MAC = nil
	if err := vm.driver.Plug(t.Context(), p); !errors.Is(err, plug.ErrInvalid) || !strings.Contains(err.Error(), "no MAC address") {
		t.Errorf("Plug = %v, want ErrInvalid that says what is missing", err)
	}
	mustUnplug(t, vm.driver, p)
}

func TestMacvlanMACOfSomebodyElse(t *testing.T) {
	vm := newVirtualMachine(t, "macvlan", "nic0")
	p := vm.pod(t, 41, newNamespace(t))
	refused := func(says string) {
		t.Helper()
		err := vm.driver.Plug(t.Context(), p)
		if !errors.Is(err, plug.ErrDataPath) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), p.MAC.String()) {
			t.Errorf("Plug = %v, want ErrDataPath that says %q and the address", err, says)
		}
		mustUnplug(t, vm.driver, p)
	}
	t.Run("another's device", func(t *testing.T) {
		ns := newNamespace(t)
		sh(t, "ip", "link", "add", "link", "nic0", "name", "mine", "type", "macvlan", "mode", "bridge")
		sh(t, "ip", "link", "set", "mine", "address", p.MAC.String(), "alias", "somebody's")
		sh(t, "ip", "link", "set", "mine", "netns", ns.path)
		ns.run(t, "ip", "link", "set", "mine", "up")
		refused("somebody's")
		if out := links(t, ns); !strings.Contains(out, "mine") {
			t.Errorf("it was removed: %s", out)
		}
		ns.run(t, "ip", "link", "del", "mine")
	})
	t.Run("the node's", func(t *testing.T) {
		sh(t, "ip", "link", "set", "nic0", "address", p.MAC.String())
		refused("nic0")
	})
}
