// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// A packet that the node sends to 127.0.0.1 has a source address of the loopback. With that source
// the kernel lets nothing leave by another device, and treats replies as forged, unless the device
// has route_localnet (its Documentation/networking/ip-sysctl.rst). IPv6 has nothing of the kind.
// With route_localnet the device also accepts packets of other hosts to the loopback's addresses.
// The chain "loopback" drops these, so route_localnet is set after the table exists, and reset
// before the table is deleted.

const sysctls = "/proc/sys/net/ipv4/conf"

// openLoopback sets route_localnet on the devices that lead to pods with a host port
// on the loopback.
func (t *Tables) openLoopback(want nodeport.Table) error {
	devices, err := loopbackDevices(want)
	if err != nil {
		return err
	}
	opened := t.opened()
	for _, device := range devices {
		on, err := localnet(device)
		if err == nil && !on {
			opened = append(opened, device)
			err = errors.Join(t.remember(opened), setLocalnet(device, true)) // noted before it is done
		}
		if err != nil {
			return fmt.Errorf("opening the loopback towards device %s: %w", device, err)
		}
	}
	return t.closeLoopback(devices)
}

// closeLoopback takes back what openLoopback has set, on all devices but these.
func (t *Tables) closeLoopback(but []string) error {
	opened := t.opened()
	var left []string
	var errs []error
	for _, device := range opened {
		if slices.Contains(but, device) {
			left = append(left, device)
			continue
		}
		if err := setLocalnet(device, false); err != nil && !errors.Is(err, fs.ErrNotExist) { // a device that is gone
			left = append(left, device)
			errs = append(errs, fmt.Errorf("closing the loopback towards device %s: %w", device, err))
		}
	}
	if len(left) != len(opened) {
		errs = append(errs, t.remember(left))
	}
	return errors.Join(errs...)
}

// loopbackDevices are those by which the node reaches the pods that are to answer at
// the loopback. A pod that no route leads to waits for one.
func loopbackDevices(want nodeport.Table) ([]string, error) {
	found := map[string]bool{}
	for f, b := range want {
		if !f.Loopback() || f.Address.Is6() {
			continue
		}
		routes, err := netlink.RouteGet(b.Addr().AsSlice())
		if err != nil || len(routes) == 0 {
			continue
		}
		link, err := netlink.LinkByIndex(routes[0].LinkIndex)
		if err != nil {
			return nil, fmt.Errorf("looking for the device towards %s: %w", b.Addr(), err)
		}
		found[link.Attrs().Name] = true
	}
	devices := make([]string, 0, len(found))
	for device := range found {
		devices = append(devices, device)
	}
	slices.Sort(devices)
	return devices, nil
}

// localnet reports whether a device has route_localnet, by itself or as all have.
func localnet(device string) (bool, error) {
	for _, of := range []string{"all", device} {
		value, err := os.ReadFile(filepath.Join(sysctls, of, "route_localnet"))
		if err != nil {
			return false, err
		}
		if !bytes.Equal(bytes.TrimSpace(value), []byte("0")) {
			return true, nil
		}
	}
	return false, nil
}

func setLocalnet(device string, on bool) error {
	value := []byte("0")
	if on {
		value = []byte("1")
	}
	return os.WriteFile(filepath.Join(sysctls, device, "route_localnet"), value, 0)
}

// opened are the devices that were opened, by this process or one before.
func (t *Tables) opened() []string {
	if t.Opened == "" {
		return t.devices
	}
	content, err := os.ReadFile(t.Opened)
	if err != nil {
		return nil
	}
	return strings.Fields(string(content))
}

func (t *Tables) remember(devices []string) error {
	t.devices = devices
	var err error
	switch {
	case t.Opened == "":
	case len(devices) == 0:
		err = os.Remove(t.Opened)
	default:
		err = os.WriteFile(t.Opened, []byte(strings.Join(devices, "\n")+"\n"), 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("recording the devices for which the loopback is open: %w", err)
	}
	return nil
}
