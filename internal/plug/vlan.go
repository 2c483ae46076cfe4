// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// vlan is the kind of device for a subport of the node's trunk. Its packets carry the subport's
// VLAN ID on the node's interface.
type vlan struct{}

var _ kind = vlan{}

func (vlan) name() string   { return "vlan" }
func (vlan) module() string { return "8021q" }

// link binds the device loosely. It stays up, with its routes, while the node's interface is down
// for a moment, for example while its address is being configured.
func (vlan) link(attrs netlink.LinkAttrs, i Interface) netlink.Link {
	loose := true
	return &netlink.Vlan{LinkAttrs: attrs, VlanId: i.VLANID, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q, LooseBinding: &loose}
}

func (vlan) rival(l netlink.Link, i Interface) bool {
	v, ok := l.(*netlink.Vlan)
	return ok && v.VlanId == i.VLANID && v.VlanProtocol == netlink.VLAN_PROTOCOL_8021Q
}

func (vlan) taken(err error) bool { return errors.Is(err, unix.EEXIST) }

func (vlan) claim(i Interface) string { return fmt.Sprintf("VLAN ID %d", i.VLANID) }
