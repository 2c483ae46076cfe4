// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Linux bridge remembers three things about a port for minutes: the MAC addresses that it has
// seen there, the multicast groups with listeners behind it, and whether a multicast router is
// there. All three come from a pod's packets, and direct other pods' packets to its port.

// forgetSeen makes the bridge forget the MAC addresses and the router.
func forgetSeen(port netlink.Link) error {
	// Setting a value that is set already only makes the kernel remember for longer.
	for _, router := range []byte{mdbRouterNever, mdbRouterSeen} {
		msg := nl.NewIfInfomsg(unix.AF_BRIDGE)
		msg.Index = int32(port.Attrs().Index)
		info := nl.NewRtAttr(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, nil)
		info.AddRtAttr(nl.IFLA_BRPORT_FLUSH, []byte{1})
		info.AddRtAttr(nl.IFLA_BRPORT_MULTICAST_ROUTER, []byte{router})
		if _, err := request(unix.RTM_SETLINK, unix.NLM_F_ACK, 0, msg, info); err != nil {
			return fmt.Errorf("removing the learned addresses of %s from the bridge: %w", port.Attrs().Name, err)
		}
	}
	return nil
}

// From linux/if_bridge.h.
const (
	mdbRouterNever, mdbRouterSeen = 0, 1
	mdbaMDB, mdbaEntry, mdbaInfo  = 1, 1, 1 // nested in one another
	mdbaSetEntry                  = 1
	sizeofMDBEntry                = 28     // begins with the port's index
	attrTypeMask                  = 0x3fff // from linux/netlink.h
)

// forgetGroups makes the bridge forget the groups. The sources of a group (IGMPv3) are forgotten
// with the group.
func forgetGroups(port netlink.Link) error {
	entries, err := groups(port)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		msg := portMsg(port.Attrs().MasterIndex)
		// The groups are read again below.
		_, _ = request(unix.RTM_DELMDB, unix.NLM_F_ACK, 0, msg, nl.NewRtAttr(mdbaSetEntry, entry))
	}
	if len(entries) > 0 {
		entries, err = groups(port)
	}
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("the bridge still has %d multicast groups at %s", len(entries), port.Attrs().Name)
	}
	return err
}

// groups returns the kernel's bridge entries of a port. A kernel without multicast groups has
// none.
func groups(port netlink.Link) ([][]byte, error) {
	msgs, err := request(unix.RTM_GETMDB, unix.NLM_F_DUMP, 0, portMsg(0))
	if err == unix.EOPNOTSUPP { //nolint:errorlint // of a system call
		return nil, nil
	}
	var found [][]byte
	for _, msg := range msgs {
		if err == nil && len(msg) > sizeofPortMsg {
			err = within(msg[sizeofPortMsg:], []uint16{mdbaMDB, mdbaEntry, mdbaInfo}, func(info []byte) {
				if len(info) >= sizeofMDBEntry && int(nl.NativeEndian().Uint32(info)) == port.Attrs().Index {
					found = append(found, info[:sizeofMDBEntry])
				}
			})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing the multicast groups at %s: %w", port.Attrs().Name, err)
	}
	return found, nil
}

// within calls f for each attribute on the path of these nested types.
func within(b []byte, types []uint16, f func([]byte)) error {
	if len(types) == 0 {
		f(b)
		return nil
	}
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return err
	}
	for _, a := range attrs {
		if a.Attr.Type&attrTypeMask != types[0] {
			continue
		}
		if err := within(a.Value, types[1:], f); err != nil {
			return err
		}
	}
	return nil
}

// portMsg is struct br_port_msg of linux/if_bridge.h, for the bridge with that index.
type portMsg int

const sizeofPortMsg = 8

func (portMsg) Len() int { return sizeofPortMsg }

func (m portMsg) Serialize() []byte {
	b := make([]byte, sizeofPortMsg)
	b[0] = unix.AF_BRIDGE
	nl.NativeEndian().PutUint32(b[4:], uint32(m)) //nolint:gosec // an index
	return b
}
