// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// family is what IPv4 and IPv6 differ in.
type family struct {
	v6        bool
	number    byte // NFPROTO_*
	name      string
	address   datatype
	daddr     uint32 // offset in the header
	loopback  []byte // how an address begins that is the loopback's
	forwarded string // file that says whether packets are passed on
}

var families = []family{
	{
		number: unix.NFPROTO_IPV4, name: "ip", address: datatype{7, 4}, daddr: 16,
		loopback: []byte{127}, forwarded: "/proc/sys/net/ipv4/ip_forward",
	},
	{
		v6: true, number: unix.NFPROTO_IPV6, name: "ip6", address: datatype{8, 16}, daddr: 24,
		loopback: append(make([]byte, 15), 1), forwarded: "/proc/sys/net/ipv6/conf/all/forwarding",
	},
}

// datatype is one of nft's (its enum datatypes): the kernel keeps the number for
// whoever lists a set.
type datatype struct{ magic, bytes uint32 }

var (
	protocolType = datatype{12, 1}
	portType     = datatype{13, 2}
)

// field is part of a packet, or of what is known of its connection.
type field struct {
	datatype
	load func(register uint32) []byte
}

func (f family) daddrField() field {
	return field{f.address, func(r uint32) []byte { return payload(r, unix.NFT_PAYLOAD_NETWORK_HEADER, f.daddr, f.address.bytes) }}
}

// ctDstIP and ctDstIP6 are keys of a connection's destination, of one family
// (enum nft_ct_keys). NFT_CT_DST is the same of any family, but nft 1.0.6 crashes
// when it lists that as part of a concatenation.
const ctDstIP, ctDstIP6 = 20, 22

// originalDaddr is the destination that the connection's first packet came with.
func (f family) originalDaddr() field {
	key := uint32(ctDstIP)
	if f.v6 {
		key = ctDstIP6
	}
	return field{f.address, func(r uint32) []byte {
		return expression("ct", number(unix.NFTA_CT_KEY, key), number(unix.NFTA_CT_DREG, r), attr(unix.NFTA_CT_DIRECTION, []byte{0}))
	}}
}

var (
	protocolField = field{protocolType, func(r uint32) []byte {
		return expression("meta", number(unix.NFTA_META_KEY, unix.NFT_META_L4PROTO), number(unix.NFTA_META_DREG, r))
	}}
	dportField = field{portType, func(r uint32) []byte { return payload(r, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2) }}
)

func expression(name string, attrs ...[]byte) []byte {
	return nested(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nested(unix.NFTA_EXPR_DATA, attrs...))
}

func payload(register, base, offset, length uint32) []byte {
	return expression("payload", number(unix.NFTA_PAYLOAD_DREG, register), number(unix.NFTA_PAYLOAD_BASE, base),
		number(unix.NFTA_PAYLOAD_OFFSET, offset), number(unix.NFTA_PAYLOAD_LEN, length))
}

// compare continues if the value that was loaded before matches.
func compare(op uint32, with []byte) []byte {
	return expression("cmp", number(unix.NFTA_CMP_SREG, first), number(unix.NFTA_CMP_OP, op), data(unix.NFTA_CMP_DATA, with))
}

// first is the register that everything is loaded into, the first of 16 with
// four bytes each.
const first = unix.NFT_REG32_00

// load loads fields one behind the other.
func load(fields []field) []byte {
	var all []byte
	at := uint32(first)
	for _, f := range fields {
		all = append(all, f.load(at)...)
		at += (f.bytes + 3) / 4
	}
	return all
}

// native is a number as it is in a register that the machine compares.
func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// loopbackIs continues for packets whose destination is, or is not, one of the loopback's.
func (f family) loopbackIs(op uint32) []byte {
	return join(
		payload(first, unix.NFT_PAYLOAD_NETWORK_HEADER, f.daddr, uint32(len(f.loopback))),
		compare(op, f.loopback),
	)
}

// notLoopback goes on for packets that are not to the loopback's addresses, where
// node ports do not answer.
func (f family) notLoopback() []byte { return f.loopbackIs(unix.NFT_CMP_NEQ) }

// local goes on for packets to addresses of the node.
func (f family) local() []byte {
	return join(
		expression("fib", number(unix.NFTA_FIB_DREG, first), number(unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE),
			number(unix.NFTA_FIB_FLAGS, unix.NFTA_FIB_F_DADDR)),
		compare(unix.NFT_CMP_EQ, native(unix.RTN_LOCAL)),
	)
}

// loopbackDevice is the index of each network namespace's loopback.
const loopbackDevice = 1

// strayLoopback drops packets of other hosts to the loopback's addresses. The kernel does that
// itself, except on devices with route_localnet (see localnet).
func (f family) strayLoopback() []byte {
	return join(
		expression("meta", number(unix.NFTA_META_KEY, unix.NFT_META_IIF), number(unix.NFTA_META_DREG, first)),
		compare(unix.NFT_CMP_NEQ, native(loopbackDevice)),
		f.loopbackIs(unix.NFT_CMP_EQ),
		decide(nfDrop),
	)
}

// translate sends packets that m has to where it says.
func (f family) translate(m set) []byte {
	port := first + f.address.bytes/4
	return join(
		load(m.key),
		expression("lookup", number(unix.NFTA_LOOKUP_SREG, first), number(unix.NFTA_LOOKUP_DREG, first), text(unix.NFTA_LOOKUP_SET, m.name)),
		expression("nat", number(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT), number(unix.NFTA_NAT_FAMILY, uint32(f.number)),
			number(unix.NFTA_NAT_REG_ADDR_MIN, first), number(unix.NFTA_NAT_REG_PROTO_MIN, port)),
	)
}

// ipsDstNAT is the bit of a connection whose destination was translated
// (linux/netfilter/nf_conntrack_common.h).
const ipsDstNAT = 1 << 5

// masquerade replaces the source by the node's address, so that replies return through the node,
// for connections in s whose destination was translated.
func masquerade(s set) []byte {
	return join(
		expression("ct", number(unix.NFTA_CT_KEY, unix.NFT_CT_STATUS), number(unix.NFTA_CT_DREG, first)),
		expression("bitwise", number(unix.NFTA_BITWISE_SREG, first), number(unix.NFTA_BITWISE_DREG, first), number(unix.NFTA_BITWISE_LEN, 4),
			data(unix.NFTA_BITWISE_MASK, native(ipsDstNAT)), data(unix.NFTA_BITWISE_XOR, native(0))),
		compare(unix.NFT_CMP_NEQ, native(0)),
		load(s.key),
		expression("lookup", number(unix.NFTA_LOOKUP_SREG, first), text(unix.NFTA_LOOKUP_SET, s.name)),
		// Ports that can be guessed would let others into a connection.
		expression("masq", number(unix.NFTA_MASQ_FLAGS, unix.NF_NAT_RANGE_PROTO_RANDOM_FULLY)),
	)
}

// nfDrop is the verdict for a packet that goes no further (linux/netfilter.h).
const nfDrop = 0

func decide(code int32, more ...[]byte) []byte {
	return expression("immediate", number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT),
		nested(unix.NFTA_IMMEDIATE_DATA, nested(unix.NFTA_DATA_VERDICT,
			append([][]byte{number(unix.NFTA_VERDICT_CODE, uint32(code))}, more...)...)))
}

func join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
