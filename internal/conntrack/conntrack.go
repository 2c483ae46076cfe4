// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package conntrack ends connections in the node's own connection tracking: a pod's, when the next
// pod gets its port, and UDP connections that continue past a change of node ports. The table may
// have hundreds of thousands of rows, and the end of a pod concerns a few. So the kernel selects
// the rows, and the package keeps none in memory.
package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Match selects connections of one family. What is zero selects all.
type Match struct {
	V6       bool
	Source   netip.Addr // of the first packet
	Answers  netip.Addr // where replies come from: what the first packet was for, or led to
	Protocol uint8
	Port     uint16 // that the first packet was for, of TCP, UDP and SCTP; Protocol is needed with it
}

// Flow is a connection. Ports are of TCP, UDP and SCTP.
type Flow struct {
	Protocol                     uint8
	Source, Destination, Answers netip.AddrPort
}

// Untold reports whether an error of End means that this kernel tracks no connections, or does not
// show them.
func Untold(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT)
}

// few is the number of connections on the node up to which all are examined, once: reading the
// kernel's empty table takes as long as reading some thousands.
const few = 2000

// End ends the connections that one of some matches selects and is, if it is not nil,
// says yes of. A connection that begins while End looks may stay.
func End(ctx context.Context, matches []Match, is func(Flow) bool) error {
	wanted := func(f Flow) bool {
		return slices.ContainsFunc(matches, func(m Match) bool { return m.selects(f) }) && (is == nil || is(f))
	}
	var requests []*nl.NetlinkRequest
	if count() > few {
		for _, m := range matches {
			requests = append(requests, m.list())
		}
	} else if len(matches) > 0 {
		requests = append(requests, list(unix.AF_UNSPEC))
	}
	for _, req := range requests {
		if err := each(ctx, req, wanted); err != nil {
			return fmt.Errorf("ending connections: %w", err)
		}
	}
	return nil
}

// count is how many connections the node has, or many if that is not known.
func count() int {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return n
		}
	}
	return math.MaxInt
}

// each requests connections and ends the wanted ones as they arrive, so that their number does not
// matter. The table may change meanwhile: if the connection at the kernel's position is gone, the
// kernel restarts that row.
func each(ctx context.Context, req *nl.NetlinkRequest, wanted func(Flow) bool) error {
	var failed error
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if failed = ctx.Err(); failed != nil {
			return false
		}
		if f, ok := parse(msg); ok && wanted(f) {
			failed = end(msg)
		}
		return failed == nil
	})
	return errors.Join(failed, err)
}

// selects is what the kernel does with the request that its list returns.
func (m Match) selects(f Flow) bool {
	return m.V6 == f.Source.Addr().Is6() && (!m.Source.IsValid() || m.Source == f.Source.Addr()) && (!m.Answers.IsValid() || m.Answers == f.Answers.Addr()) &&
		(m.Protocol == 0 || m.Protocol == f.Protocol) && (m.Port == 0 || m.Port == f.Destination.Port())
}

// Of linux/netfilter/nfnetlink_conntrack.h, and, for the flags, nf_internals.h.
const (
	msgGet, msgDelete      = 1, 2
	ctaFilter              = 25
	filterOrig, filterBack = 1, 2 // nested in it: which of the tuples' values count
	bySource, byProtocol   = 1 << 0, 1 << 3
	byDestinationPort      = 1 << 5
)

// list asks for all connections of a family.
func list(family uint8) *nl.NetlinkRequest {
	req := request(msgGet, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

// list requests the connections that m selects, and some more: a kernel before 5.8 shows all of the
// family. list omits IPv6 addresses, because the kernel shows all rows except the matching ones
// (6.18; its comparison is inverted).
func (m Match) list() *nl.NetlinkRequest {
	family := uint8(unix.AF_INET)
	if m.V6 {
		family = unix.AF_INET6
	}
	req := list(family)
	var orig, back uint32
	tuple := nested(nl.CTA_TUPLE_ORIG)
	if m.Source.Is4() {
		orig |= bySource
		addSource(tuple, m.Source)
	}
	if m.Protocol != 0 {
		orig |= byProtocol
		proto := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
		proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{m.Protocol})
		if m.Port != 0 {
			orig |= byDestinationPort
			proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, m.Port))
		}
	}
	filter := nested(ctaFilter)
	if orig != 0 {
		req.AddData(tuple)
		filter.AddRtAttr(filterOrig, nl.Uint32Attr(orig))
	}
	if m.Answers.Is4() {
		back = bySource
		reply := nested(nl.CTA_TUPLE_REPLY)
		addSource(reply, m.Answers)
		req.AddData(reply)
		filter.AddRtAttr(filterBack, nl.Uint32Attr(back))
	}
	if orig|back != 0 {
		req.AddData(filter)
	}
	return req
}

func nested(typ int) *nl.RtAttr { return nl.NewRtAttr(unix.NLA_F_NESTED|typ, nil) }

func addSource(tuple *nl.RtAttr, a netip.Addr) {
	tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil).AddRtAttr(nl.CTA_IP_V4_SRC, a.AsSlice())
}

func request(typ, flags int) *nl.NetlinkRequest {
	return nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|typ, flags)
}

// end ends the connection in a message: the kernel gets back the same attributes, its own number
// among them.
func end(msg []byte) error {
	req := request(msgDelete, unix.NLM_F_ACK)
	req.AddRawData(msg)
	if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) { // one that ended by itself
		return err
	}
	return nil
}

// parse reads a message as the kernel has it, without what nobody asks for here.
func parse(msg []byte) (Flow, bool) {
	var f Flow
	if len(msg) < nl.SizeofNfgenmsg {
		return f, false
	}
	var orig, reply tuple
	attributes(msg[nl.SizeofNfgenmsg:], func(typ uint16, value []byte) {
		switch typ {
		case nl.CTA_TUPLE_ORIG:
			orig = parseTuple(value)
		case nl.CTA_TUPLE_REPLY:
			reply = parseTuple(value)
		}
	})
	f = Flow{orig.protocol, netip.AddrPortFrom(orig.source, orig.sourcePort), netip.AddrPortFrom(orig.destination, orig.port), netip.AddrPortFrom(reply.source, reply.sourcePort)}
	return f, orig.source.IsValid() && reply.source.IsValid()
}

// tuple is one direction of a connection.
type tuple struct {
	source, destination netip.Addr
	protocol            uint8
	sourcePort, port    uint16
}

func parseTuple(b []byte) (t tuple) {
	attributes(b, func(part uint16, value []byte) {
		attributes(value, func(typ uint16, v []byte) {
			switch {
			case part == nl.CTA_TUPLE_IP && (typ == nl.CTA_IP_V4_SRC || typ == nl.CTA_IP_V6_SRC):
				t.source, _ = netip.AddrFromSlice(v)
			case part == nl.CTA_TUPLE_IP && (typ == nl.CTA_IP_V4_DST || typ == nl.CTA_IP_V6_DST):
				t.destination, _ = netip.AddrFromSlice(v)
			case part == nl.CTA_TUPLE_PROTO && typ == nl.CTA_PROTO_NUM && len(v) == 1:
				t.protocol = v[0]
			case part == nl.CTA_TUPLE_PROTO && typ == nl.CTA_PROTO_SRC_PORT && len(v) == 2:
				t.sourcePort = binary.BigEndian.Uint16(v)
			case part == nl.CTA_TUPLE_PROTO && typ == nl.CTA_PROTO_DST_PORT && len(v) == 2:
				t.port = binary.BigEndian.Uint16(v)
			}
		})
	})
	return t
}

// attributes calls f with each attribute of b.
func attributes(b []byte, f func(typ uint16, value []byte)) {
	const head, flags = 4, 0xc000
	for len(b) >= head {
		size := int(binary.NativeEndian.Uint16(b))
		if size < head || size > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^flags, b[head:size])
		b = b[min((size+3)&^3, len(b)):]
	}
}
