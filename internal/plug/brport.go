// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Linux bridge remembers of a port for minutes which MAC addresses it has seen
// there, which groups of multicast are listened to behind it, and whether a
// router of multicast is. All three come from what a pod has sent, and lead to
// its port what others send.

// forgetSeen has the bridge forget the MAC addresses and the router.
func forgetSeen(port netlink.Link) error {
	// To say again what holds already only makes the kernel remember for longer.
	for _, router := range []byte{mdbRouterNever, mdbRouterSeen} {
		msg := nl.NewIfInfomsg(unix.AF_BRIDGE)
		msg.Index = int32(port.Attrs().Index)
		info := nl.NewRtAttr(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, nil)
		info.AddRtAttr(nl.IFLA_BRPORT_FLUSH, []byte{1})
		info.AddRtAttr(nl.IFLA_BRPORT_MULTICAST_ROUTER, []byte{router})
		if _, err := request(unix.RTM_SETLINK, unix.NLM_F_ACK, 0, msg, info); err != nil {
			return fmt.Errorf("having the bridge forget what it has seen at %s: %w", port.Attrs().Name, err)
		}
	}
	return nil
}

// Of linux/if_bridge.h.
const (
	mdbRouterNever, mdbRouterSeen = 0, 1
	mdbaMDB, mdbaEntry, mdbaInfo  = 1, 1, 1 // nested into each other
	mdbaSetEntry                  = 1
	sizeofMDBEntry                = 28     // begins with the port's index
	attrTypeMask                  = 0x3fff // of linux/netlink.h
)

// forgetGroups has the bridge forget the groups. What a group is heard from
// (IGMPv3) goes with the group.
func forgetGroups(port netlink.Link) error {
	entries, err := groups(port)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		msg := portMsg(port.Attrs().MasterIndex)
		_, _ = request(unix.RTM_DELMDB, unix.NLM_F_ACK, 0, msg, nl.NewRtAttr(mdbaSetEntry, entry)) // looked at below
	}
	if len(entries) > 0 {
		entries, err = groups(port)
	}
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("the bridge still has %d groups of multicast at %s", len(entries), port.Attrs().Name)
	}
	return err
}

// groups returns the bridge's entries of a port, as the kernel has them. A kernel
// that does not know of groups has none.
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
		return nil, fmt.Errorf("listing the groups of multicast at %s: %w", port.Attrs().Name, err)
	}
	return found, nil
}

// within calls f with each attribute that is reached by attributes of these types.
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

// portMsg is struct br_port_msg of linux/if_bridge.h, of the bridge of that index.
type portMsg int

const sizeofPortMsg = 8

func (portMsg) Len() int { return sizeofPortMsg }

func (m portMsg) Serialize() []byte {
	b := make([]byte, sizeofPortMsg)
	b[0] = unix.AF_BRIDGE
	nl.NativeEndian().PutUint32(b[4:], uint32(m)) //nolint:gosec // an index
	return b
}
