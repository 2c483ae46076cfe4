// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/conntrack"
)

// mgmt returns the OpenFlow socket of a bridge. It is in the folder of the database's socket.
func (s *Set) mgmt(bridge string) string {
	dir := "/run/openvswitch"
	if path, local := strings.CutPrefix(s.config.OVSDB, "unix:"); local {
		dir = filepath.Dir(path)
	}
	return filepath.Join(dir, bridge+".mgmt")
}

// From the OpenFlow Switch Specification, 1.0 to 1.5, and from Open vSwitch's extensions to it
// (nicira-ext.h).
const (
	ofHello, ofError, ofExperimenter = 0, 1, 4
	ofBarrier10, ofBarrier           = 18, 20 // requests of version 1.0, and of later ones
	ofVersion10, ofVersion15         = 1, 6

	nxVendor      = 0x2320
	nxCTFlushZone = 29
)

const flushTimeout = 5 * time.Second

// flushZone makes the switch forget the connections of a zone. It uses OpenFlow, as
// ovn-controller does, which works with every kind of data path.
func flushZone(ctx context.Context, socket string, zone uint16) error {
	if err := tryFlushZone(ctx, socket, zone); err != nil {
		return fmt.Errorf("emptying zone %d of connection tracking by %s: %w: %w", zone, socket, err, ErrDataPath)
	}
	return nil
}

func tryFlushZone(ctx context.Context, socket string, zone uint16) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	version, err := greet(conn)
	if err != nil {
		return err
	}
	flush := binary.BigEndian.AppendUint32(nil, nxVendor)
	flush = binary.BigEndian.AppendUint32(flush, nxCTFlushZone)
	flush = append(flush, make([]byte, 6)...)
	flush = binary.BigEndian.AppendUint16(flush, zone)
	barrier := byte(ofBarrier)
	if version == ofVersion10 {
		barrier = ofBarrier10
	}
	request := append(message(version, ofExperimenter, 1, flush), message(version, barrier, 2, nil)...)
	if _, err := conn.Write(request); err != nil {
		return err
	}
	for {
		typ, _, body, err := readMessage(conn)
		switch {
		case err != nil:
			return err
		case typ == ofError && len(body) >= 4:
			return fmt.Errorf("the switch refuses: OpenFlow error %d.%d", binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:]))
		case typ == barrier+1: // the reply: all earlier messages have been processed
			return nil
		}
	}
}

// greet agrees on the newest common version.
func greet(conn net.Conn) (byte, error) {
	const bitmap = 1 // an element of a hello
	all := []byte{0, bitmap, 0, 8, 0, 0, 0, 0x7e}
	if _, err := conn.Write(message(ofVersion15, ofHello, 0, all)); err != nil {
		return 0, err
	}
	typ, version, body, err := readMessage(conn)
	if err != nil {
		return 0, err
	}
	if typ != ofHello {
		return 0, fmt.Errorf("the switch answered with message type %d instead of a greeting", typ)
	}
	version = min(version, ofVersion15)
	if len(body) >= 8 && binary.BigEndian.Uint16(body) == bitmap {
		theirs := binary.BigEndian.Uint32(body[4:])
		for version = ofVersion15; version > 0 && theirs&(1<<version) == 0; {
			version--
		}
	}
	if version < ofVersion10 {
		return 0, errors.New("the switch and Kuryr have no version of OpenFlow in common")
	}
	return version, nil
}

func message(version, typ byte, id uint32, body []byte) []byte {
	m := binary.BigEndian.AppendUint16([]byte{version, typ}, uint16(8+len(body)))
	return append(binary.BigEndian.AppendUint32(m, id), body...)
}

func readMessage(r io.Reader) (typ, version byte, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	length := binary.BigEndian.Uint16(head[2:])
	if length < 8 {
		return 0, 0, nil, fmt.Errorf("an OpenFlow message of %d bytes", length)
	}
	body = make([]byte, length-8)
	_, err = io.ReadFull(r, body)
	return head[1], head[0], body, err
}

// forgetConnections removes the connections from and to i's addresses from the node's connection
// tracking, if it has one. Connections to a pod are found by the pod's address in their replies,
// even if they were redirected from another address.
func forgetConnections(ctx context.Context, i Interface) error {
	var all []conntrack.Match
	for _, a := range i.Addresses {
		pod := a.Prefix.Addr()
		all = append(all, conntrack.Match{V6: pod.Is6(), Source: pod}, conntrack.Match{V6: pod.Is6(), Answers: pod})
	}
	if err := conntrack.End(ctx, all, nil); err != nil && !conntrack.Untold(err) {
		return fmt.Errorf("forgetting the connections of port %s: %w", i.PortID, err)
	}
	return nil
}
