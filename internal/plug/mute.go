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

// muteSysctls keep the node's own stack off a device that receives pods' frames. Pods must not
// reach the node through it: not past the security groups of their ports, and not by claiming to be
// a router.
//
//   - IPv6 is off: otherwise the device would have a link-local address, accept router
//     advertisements (also on a node without other IPv6), and be a pod's neighbour.
//   - The node answers ARP for the device's own addresses only. By default it answers
//     for all its addresses.
//   - It accepts no packet from a source that it does not reach by that device. The
//     device has no address and no route, so that is every source. The loose mode (2)
//     is as good; systemd's udev rule writes it after Kuryr where sysctl.d has it for
//     all devices. For a device without an address the kernel refuses in loose mode what
//     it would accept by another device. The larger of conf/all and the device's value
//     counts.
//
// A switch or a bridge takes a port's frames before these checks, but not always: Open vSwitch's
// data path in user space gets a copy, and when a device has left its switch (ovs-vsctl del-port)
// the node gets every frame. A filter at the device's tc ingress would help in the former case
// only, because the kernel's data path comes after it.
var muteSysctls = []muteSysctl{
	{"ipv6/conf/%s/disable_ipv6", []string{"1"}},
	{"ipv4/conf/%s/arp_ignore", []string{"1"}},
	{"ipv4/conf/%s/rp_filter", []string{"1", "2"}},
}

type muteSysctl struct {
	key string
	are []string // accepted values; Kuryr writes the first one
}

func (m muteSysctl) path(device string) string {
	return filepath.Join("/proc/sys/net", strings.Replace(m.key, "%s", device, 1))
}

// wrong returns the value if it is not accepted. A value that cannot be read does not exist.
func (m muteSysctl) wrong(device string) error {
	got, err := os.ReadFile(m.path(device))
	if value := strings.TrimSpace(string(got)); err == nil && !slices.Contains(m.are, value) {
		return fmt.Errorf("the node's own IP stack is not disabled on %s: %s is %s, not %s", device, m.path(device), value, m.are[0])
	}
	return nil
}

// muteBridge applies to a bridge of Kuryr's. It does not change rp_filter. With br_netfilter,
// replies of a local pod by a host port or node port are checked as if they came in by the
// bridge's own device, and would be refused. So IPv4 packets of a pod to the bridge's own MAC
// address come in, and the node's own firewall must decide about them.
func muteBridge(device string) error { return muteAs(device, muteSysctls[:2]) }

// mute sets the sysctls. A device that is still down passes nothing before that.
func mute(device string) error { return muteAs(device, muteSysctls) }

func muteAs(device string, sysctls []muteSysctl) error {
	for _, m := range sysctls {
		if m.wrong(device) == nil {
			continue
		}
		if err := os.WriteFile(m.path(device), []byte(m.are[0]), 0); err != nil {
			return fmt.Errorf("disabling the node's own IP stack on %s: %w: %w", device, err, ErrDataPath)
		}
	}
	return nil
}

// muted returns an error that names the first wrong value.
func muted(device string) error {
	for _, m := range muteSysctls {
		if err := m.wrong(device); err != nil {
			return err
		}
	}
	return nil
}
