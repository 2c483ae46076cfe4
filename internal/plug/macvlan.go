// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// macvlan is the kind of device for a port whose MAC address may pass the node's own port (an
// allowed address pair). Pods of one node reach each other in its kernel, without the SDN's
// security groups.
type macvlan struct{}

var _ kind = macvlan{}

func (macvlan) name() string   { return "macvlan" }
func (macvlan) module() string { return "macvlan" }

func (macvlan) link(attrs netlink.LinkAttrs, _ Interface) netlink.Link {
	return &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}
}

func (macvlan) rival(l netlink.Link, i Interface) bool {
	m, ok := l.(*netlink.Macvlan)
	return ok && m.Mode == netlink.MACVLAN_MODE_BRIDGE && m.HardwareAddr.String() == i.HardwareAddr().String()
}

// taken: the kernel notices the conflict when the device is brought up.
func (macvlan) taken(err error) bool { return errors.Is(err, unix.EADDRINUSE) }

func (macvlan) claim(i Interface) string { return fmt.Sprintf("MAC address %s", i.HardwareAddr()) }
