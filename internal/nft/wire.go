// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Messages of nf_tables, as linux/netfilter/nf_tables.h has them: a header of
// netlink, one of nfnetlink, attributes. Numbers in attributes are big-endian,
// numbers in headers the machine's.

// message is one request.
type message struct {
	what  string // it does, for errors
	typ   int    // NFT_MSG_*
	flags int    // NLM_F_*, in addition to those of each request
	body  []byte // attributes
}

// attr is an attribute with data, or with attributes if typ has NLA_F_NESTED.
func attr(typ int, data ...[]byte) []byte {
	length := unix.SizeofNlAttr
	for _, d := range data {
		length += len(d)
	}
	a := make([]byte, 0, length+3)
	a = binary.NativeEndian.AppendUint16(a, uint16(length))
	a = binary.NativeEndian.AppendUint16(a, uint16(typ))
	for _, d := range data {
		a = append(a, d...)
	}
	return align(a)
}

func nested(typ int, attrs ...[]byte) []byte { return attr(typ|unix.NLA_F_NESTED, attrs...) }

func number(typ int, n uint32) []byte { return attr(typ, binary.BigEndian.AppendUint32(nil, n)) }

func text(typ int, s string) []byte { return attr(typ, append([]byte(s), 0)) }

// data is a value in an attribute of its own, as constants and elements are.
func data(typ int, value []byte) []byte { return nested(typ, attr(unix.NFTA_DATA_VALUE, value)) }

// comment is what nft shows behind rules and elements: a small record with a
// type, 0, and a length of one byte.
func comment(typ int, s string) []byte {
	s = s[:min(len(s), 128)]
	return attr(typ, []byte{0, byte(len(s) + 1)}, []byte(s), []byte{0})
}

// align pads to the four bytes that attributes, and fields of a concatenation, begin at.
func align(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// attributes calls f with each attribute in b, without flags in its type. What
// is cut short ends it.
func attributes(b []byte, f func(typ int, data []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			return
		}
		f(int(binary.NativeEndian.Uint16(b[2:]))&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofNlAttr:length])
		b = b[min((length+3)&^3, len(b)):]
	}
}

// packet is a message as it is sent.
func packet(typ, flags int, seq uint32, family byte, resource uint16, body []byte) []byte {
	p := make([]byte, 0, unix.SizeofNlMsghdr+4+len(body))
	p = binary.NativeEndian.AppendUint32(p, uint32(unix.SizeofNlMsghdr+4+len(body)))
	p = binary.NativeEndian.AppendUint16(p, uint16(typ))
	p = binary.NativeEndian.AppendUint16(p, uint16(flags|unix.NLM_F_REQUEST))
	p = binary.NativeEndian.AppendUint32(p, seq)
	p = binary.NativeEndian.AppendUint32(p, 0)
	p = append(p, family, unix.NFNETLINK_V0)
	p = binary.BigEndian.AppendUint16(p, resource)
	return append(p, body...)
}

func nfTables(typ int) int { return unix.NFNL_SUBSYS_NFTABLES<<8 | typ }

// patience is how long the kernel may take to answer. It answers at once, or a
// transaction has been lost, which this is for.
const patience = 20 * time.Second

// commit carries out all messages, or none of them.
func commit(family byte, messages []message) error {
	const begin = 1 // sequence number; those of the messages follow
	batch := packet(unix.NFNL_MSG_BATCH_BEGIN, 0, begin, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	last := uint32(begin + len(messages))
	for i, m := range messages {
		if seq := uint32(begin + 1 + i); seq == last {
			m.flags |= unix.NLM_F_ACK // the only one: of the others only errors are reported
		}
		batch = append(batch, align(packet(nfTables(m.typ), m.flags, uint32(begin+1+i), family, 0, m.body))...)
	}
	batch = append(batch, packet(unix.NFNL_MSG_BATCH_END, 0, last+1, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)...)

	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("opening a socket to nf_tables: %w", err)
	}
	defer s.Close()
	timeout := unix.NsecToTimeval(patience.Nanoseconds())
	// A transaction is one datagram.
	err = errors.Join(s.SetReceiveTimeout(&timeout), unix.SetsockoptInt(s.GetFd(), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2*len(batch)))
	if err == nil {
		err = unix.Sendto(s.GetFd(), batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		return fmt.Errorf("writing to nf_tables: %w", err)
	}
	return answer(s, begin, messages)
}

// answer returns the first error in the kernel's answers to a transaction.
func answer(s *nl.NetlinkSocket, begin int, messages []message) error {
	var failed error
	for {
		answers, _, err := s.Receive()
		if err != nil {
			return errors.Join(failed, fmt.Errorf("waiting for nf_tables: %w", err))
		}
		for _, a := range answers {
			if a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 {
				continue
			}
			i, code := int(a.Header.Seq)-begin-1, int32(binary.NativeEndian.Uint32(a.Data))
			if code < 0 && failed == nil {
				failed = fmt.Errorf("%s: %w", say(messages, i), unix.Errno(-code))
			}
			// A batch that is refused as a whole is answered as its beginning.
			if i == len(messages)-1 || i < 0 && code < 0 {
				return failed
			}
		}
	}
}

func say(messages []message, i int) string {
	if i < 0 || i >= len(messages) {
		return "changing nf_tables"
	}
	return messages[i].what
}

// dump returns the attributes of each object that a request of type NFT_MSG_GET* finds. If other
// programs change theirs during the read, the kernel only reports a change. dump then reads again,
// a few times.
func dump(family byte, m message) ([][]byte, error) {
	for tries := 5; ; tries-- {
		req := nl.NewNetlinkRequest(nfTables(m.typ), m.flags|unix.NLM_F_DUMP)
		req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
		req.AddRawData(m.body)
		found, err := req.Execute(unix.NETLINK_NETFILTER, 0)
		if errors.Is(err, nl.ErrDumpInterrupted) && tries > 1 {
			continue
		}
		if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
			return nil, fmt.Errorf("%s: %w", m.what, err)
		}
		for i := range found {
			found[i] = found[i][min(nl.SizeofNfgenmsg, len(found[i])):]
		}
		return found, nil
	}
}
