// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

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

// socket is a connection to nf_tables in the network namespace of the thread
// that opens it. It is for one request.
type socket int

// patience is how long the kernel may take to answer. It answers at once, or a
// transaction has been lost, which this is for.
const patience = 20 * time.Second

func open(room int) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, fmt.Errorf("opening a socket to nf_tables: %w", err)
	}
	s := socket(fd)
	timeout := unix.NsecToTimeval(patience.Nanoseconds())
	err = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
	if err == nil && room > 0 {
		// A transaction is one datagram.
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, room)
	}
	if err != nil {
		s.close()
		return -1, fmt.Errorf("preparing a socket to nf_tables: %w", err)
	}
	return s, nil
}

func (s socket) close() { _ = unix.Close(int(s)) }

// receive calls f with the kernel's messages until f returns true.
func (s socket) receive(f func(h unix.NlMsghdr, body []byte) (over bool, err error)) error {
	buffer := make([]byte, 64<<10) // more than the kernel puts into one datagram
	for {
		n, _, err := unix.Recvfrom(int(s), buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting for nf_tables: %w", err)
		}
		for b := buffer[:n]; len(b) >= unix.SizeofNlMsghdr; {
			h := unix.NlMsghdr{
				Len: binary.NativeEndian.Uint32(b), Type: binary.NativeEndian.Uint16(b[4:]),
				Flags: binary.NativeEndian.Uint16(b[6:]), Seq: binary.NativeEndian.Uint32(b[8:]),
			}
			if h.Len < unix.SizeofNlMsghdr || int(h.Len) > len(b) {
				return errors.New("nf_tables sent a message cut short")
			}
			if over, err := f(h, b[unix.SizeofNlMsghdr:h.Len]); over || err != nil {
				return err
			}
			b = b[min(int(h.Len+3)&^3, len(b)):]
		}
	}
}

// verdict is the error in an answer of type NLMSG_ERROR or NLMSG_DONE; nil if it
// says that all is well.
func verdict(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code < 0 {
		return unix.Errno(-code)
	}
	return nil
}

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

	s, err := open(2 * len(batch))
	if err != nil {
		return err
	}
	defer s.close()
	if err := unix.Sendto(int(s), batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("writing to nf_tables: %w", err)
	}
	var failed error
	err = s.receive(func(h unix.NlMsghdr, body []byte) (bool, error) {
		if h.Type != unix.NLMSG_ERROR {
			return false, nil
		}
		err := verdict(body)
		if err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", say(messages, int(h.Seq)-begin-1), err)
		}
		// A batch that is refused as a whole is answered as its beginning.
		return h.Seq == last || h.Seq == begin && err != nil, nil
	})
	return errors.Join(failed, err)
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
		found, whole, err := tryDump(family, m)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", m.what, err)
		case whole || tries == 1:
			return found, nil
		}
	}
}

func tryDump(family byte, m message) (found [][]byte, whole bool, err error) {
	s, err := open(0)
	if err != nil {
		return nil, false, err
	}
	defer s.close()
	request := packet(nfTables(m.typ), m.flags|unix.NLM_F_DUMP, 1, family, 0, m.body)
	if err := unix.Sendto(int(s), request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, false, fmt.Errorf("writing to nf_tables: %w", err)
	}
	whole = true
	err = s.receive(func(h unix.NlMsghdr, body []byte) (bool, error) {
		whole = whole && h.Flags&unix.NLM_F_DUMP_INTR == 0
		switch {
		case h.Type == unix.NLMSG_DONE || h.Type == unix.NLMSG_ERROR:
			return true, verdict(body)
		case len(body) >= 4:
			found = append(found, bytes.Clone(body[4:])) // behind the header of nfnetlink
		}
		return false, nil
	})
	return found, whole, err
}
