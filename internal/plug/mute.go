// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
//     no address and no route: none at all.
//
// A switch or a bridge takes a port's frames before any of this is looked at, but not
// all do: Open vSwitch's data path in user space has a copy, and where a device has
// left its switch (ovs-vsctl del-port) all is the node's. A filter at the device's
// tc ingress would do for the former only, as the kernel's data path comes after it.
var muteSysctls = []struct{ key, value string }{
	{"ipv6/conf/%s/disable_ipv6", "1"},
	{"ipv4/conf/%s/arp_ignore", "1"},
	{"ipv4/conf/%s/rp_filter", "1"},
}

func muteSysctl(key, device string) string {
	return filepath.Join("/proc/sys/net", strings.Replace(key, "%s", device, 1))
}

// mute makes it so. Of a device that is not up yet nothing gets through before.
func mute(device string) error {
	for _, set := range muteSysctls {
		err := sysctl(muteSysctl(set.key, device), set.value)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6 has none of it
			return fmt.Errorf("keeping the node's own stack off %s: %w: %w", device, err, ErrDataPath)
		}
	}
	return nil
}

// muted says what of it is not so.
func muted(device string) error {
	for _, set := range muteSysctls {
		path := muteSysctl(set.key, device)
		got, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(got)) != set.value {
			return fmt.Errorf("the node's own stack is not kept off %s: %s is %s, not %s", device, path, strings.TrimSpace(string(got)), set.value)
		}
	}
	return nil
}
