// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kuryr-go/kuryr/internal/plug"
)

func TestForeignDevicesAreLeftAlone(t *testing.T) {
	d := bridges(t)
	ns := newNamespace(t)
	p := pod(t, "bridge", 13, ns)
	for name, make := range map[string][]string{
		"other kind":  {"ip", "link", "add", plug.HostDevice(p.PortID), "type", "bridge"},
		"other alias": {"ip", "link", "add", plug.HostDevice(p.PortID), "type", "veth", "peer", "name", "far"},
	} {
		t.Run(name, func(t *testing.T) {
			sh(t, make...)
			sh(t, "ip", "link", "set", plug.HostDevice(p.PortID), "alias", "a VM's")
			defer sh(t, "ip", "link", "del", plug.HostDevice(p.PortID))
			if err := d.Plug(t.Context(), p); !errors.Is(err, plug.ErrDataPath) {
				t.Errorf("Plug = %v, want ErrDataPath", err)
			}
			mustUnplug(t, d, p)
			if !hasDevice(t, plug.HostDevice(p.PortID)) {
				t.Error("Unplug has removed it")
			}
		})
	}
	t.Run("other port", func(t *testing.T) {
		mustPlug(t, d, p)
		q := p
		q.PortID = p.PortID[:len(p.PortID)-1] + "f" // so similar that the devices have the same name
		q.ContainerID, q.Netns = "other", newNamespace(t).path
		if err := d.Plug(t.Context(), q); !errors.Is(err, plug.ErrDataPath) {
			t.Errorf("Plug = %v, want ErrDataPath", err)
		}
		mustUnplug(t, d, q)
		mustCheck(t, d, p)
		mustUnplug(t, d, p)
	})
	// The daemon unplugs an earlier port of a sandbox, by its journal. Without that the ADD fails.
	t.Run("earlier port", func(t *testing.T) {
		mustPlug(t, d, p)
		q := pod(t, "bridge", 16, ns)
		q.ContainerID = p.ContainerID
		if err := d.Plug(t.Context(), q); !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), "eth0") {
			t.Errorf("Plug = %v, want that eth0 exists", err)
		}
		if hasDevice(t, plug.HostDevice(q.PortID)) {
			t.Error("the node has a device of the port that is not plugged")
		}
		mustUnplug(t, d, q)
		mustCheck(t, d, p)
		mustUnplug(t, d, p)
	})
	t.Run("in the sandbox", func(t *testing.T) {
		ns.run(t, "ip", "link", "add", "eth0", "type", "bridge")
		if err := d.Plug(t.Context(), p); err == nil {
			t.Error("Plug over a foreign eth0 succeeds")
		}
		mustUnplug(t, d, p)
		if out := ns.run(t, "ip", "-o", "link"); !strings.Contains(out, "eth0") {
			t.Errorf("eth0 is gone: %s", out)
		}
	})
	t.Run("bridge", func(t *testing.T) {
		sh(t, "ip", "link", "add", "nobridge", "type", "veth", "peer", "name", "far")
		defer sh(t, "ip", "link", "del", "nobridge")
		p := pod(t, "bridge", 14, newNamespace(t))
		p.Bridge = "nobridge"
		if err := d.Plug(t.Context(), p); !errors.Is(err, plug.ErrDataPath) {
			t.Errorf("Plug = %v, want ErrDataPath", err)
		}
	})
}

// The old implementation took an empty path for its own namespace and removed the node's eth0.
func TestNodesOwnNamespaceIsRefused(t *testing.T) {
	d := bridges(t)
	sh(t, "ip", "link", "add", "br-test", "type", "bridge")
	sh(t, "ip", "link", "add", "eth0", "type", "bridge")
	defer sh(t, "ip", "link", "del", "eth0")
	p := pod(t, "bridge", 15, namespace{""})
	for path, want := range map[string]error{
		"":                         plug.ErrNoNetns,
		"/proc/self/ns/net":        plug.ErrInvalid,
		"/proc/thread-self/ns/net": plug.ErrInvalid,
		fmt.Sprintf("/proc/%d/ns/net", os.Getpid()): plug.ErrInvalid,
		"/run/netns/kuryr-no-such-thing":            plug.ErrNoNetns,
		"/etc/passwd":                               plug.ErrNoNetns,
	} {
		p.Netns = path
		for name, call := range map[string]func() error{
			"Plug":  func() error { return d.Plug(t.Context(), p) },
			"Check": func() error { return d.Check(t.Context(), p) },
		} {
			if err := call(); !errors.Is(err, want) {
				t.Errorf("%s with netns %q = %v, want %v", name, path, err, want)
			}
		}
		mustUnplug(t, d, p)
	}
	if !hasDevice(t, "eth0") {
		t.Error("the node's eth0 is gone")
	}
}
