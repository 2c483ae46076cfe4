// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// muteSysctls keep the node's own stack off a device by which pods' frames come in.
// Nothing of the node is meant to be reached there: not past the security groups of the
// pods' ports, and not by a pod that says that it is a router.
//
//   - IPv6 is off: the device would get a link-local address, take router
//     advertisements (also on a node that has no other IPv6), and be a pod's neighbour.
//   - The node answers ARP for no address that is not the device's own. By default it
//     does for all that it has.
//   - It takes no packet from a source that it does not reach by that device, which has
//     no address and no route: none at all. Loose (2), which systemd's udev rule writes
//     after Kuryr where sysctl.d has it for all devices, is as good: of a device without
//     an address the kernel refuses what it would let in by another. The larger of
//     conf/all and the device's own counts.
//
// A switch or a bridge takes a port's frames before any of this is looked at, but not
// all do: Open vSwitch's data path in user space has a copy, and where a device has
// left its switch (ovs-vsctl del-port) all is the node's. A filter at the device's
// tc ingress would do for the former only, as the kernel's data path comes after it.
var muteSysctls = []muteSysctl{
	{"ipv6/conf/%s/disable_ipv6", []string{"1"}},
	{"ipv4/conf/%s/arp_ignore", []string{"1"}},
	{"ipv4/conf/%s/rp_filter", []string{"1", "2"}},
}

type muteSysctl struct {
	key string
	are []string // values that will do, the first of which is Kuryr's
}

func (m muteSysctl) path(device string) string {
	return filepath.Join("/proc/sys/net", strings.Replace(m.key, "%s", device, 1))
}

// wrong says what the value is, if it will not do. What cannot be read is not there.
func (m muteSysctl) wrong(device string) error {
	got, err := os.ReadFile(m.path(device))
	if value := strings.TrimSpace(string(got)); err == nil && !slices.Contains(m.are, value) {
		return fmt.Errorf("the node's own stack is not kept off %s: %s is %s, not %s", device, m.path(device), value, m.are[0])
	}
	return nil
}

// muteBridge is for a bridge of Kuryr's. It leaves rp_filter alone: with br_netfilter, replies
// of a pod of this node by a host port or node port are looked at as if they came in by the
// bridge's own device, and would be refused. So what a pod sends by IPv4 to the bridge's own
// MAC address comes in, which the node's own firewall has to decide on.
func muteBridge(device string) error { return muteAs(device, muteSysctls[:2]) }

// mute makes it so. Of a device that is not up yet nothing gets through before.
func mute(device string) error { return muteAs(device, muteSysctls) }

func muteAs(device string, sysctls []muteSysctl) error {
	for _, m := range sysctls {
		if m.wrong(device) == nil {
			continue
		}
		if err := os.WriteFile(m.path(device), []byte(m.are[0]), 0); err != nil {
			return fmt.Errorf("keeping the node's own stack off %s: %w: %w", device, err, ErrDataPath)
		}
	}
	return nil
}

// muted says what of it is not so.
func muted(device string) error {
	for _, m := range muteSysctls {
		if err := m.wrong(device); err != nil {
			return err
		}
	}
	return nil
}
