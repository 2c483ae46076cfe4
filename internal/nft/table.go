// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// tableName is the table's, one of each family. Nothing outside of it is touched.
const tableName = "kuryr-services"

// set is a set, or a map, whose elements change while the rules stay.
type set struct {
	name    string
	id      uint32 // any that differs in a transaction
	key     []field
	value   []datatype // nil: a set
	element func(f nodeport.Frontend, b nodeport.Backend) entry
	has     func(f nodeport.Frontend, own bool) bool // of which frontends it has elements; own: the node itself is behind it
}

// entry is an element as the kernel has it.
type entry struct{ key, value string }

// sets hold the destinations: of traffic to an external IP, to a node port, to a host port of one
// address, to a host port of all addresses, and of the node's own traffic; and the same connections
// after the translation. For a node port the latter omit the port to which the connection came,
// because nft 1.0.6 lists that and does not read its own list again, which people do who keep their
// rules in a file. So packets that another program's rule sends to a Service with a node port, or
// to a pod's port that is a host port, are masqueraded, too.
func (f family) sets() []set {
	target := []datatype{f.address, portType}
	external := func(f nodeport.Frontend) bool { return !f.Host && !f.Everywhere() }
	nodePort := func(f nodeport.Frontend, _ bool) bool { return !f.Host && f.Everywhere() }
	with, without := []field{f.daddrField(), protocolField, dportField}, []field{protocolField, dportField}
	return []set{
		{"external-ips", 1, with, target, atAddress, func(f nodeport.Frontend, own bool) bool { return external(f) && !own }},
		{"node-ports", 2, without, target, atAll, nodePort},
		{"host-address-ports", 3, with, target, atAddress, func(f nodeport.Frontend, _ bool) bool { return f.Host && !f.Everywhere() }},
		{"host-ports", 4, without, target, atAll, func(f nodeport.Frontend, _ bool) bool { return f.Host && f.Everywhere() }},
		{"own-addresses", 8, with, target, atAddress, func(_ nodeport.Frontend, own bool) bool { return own }},
		{"external-ip-flows", 5, []field{f.originalDaddr(), f.daddrField(), protocolField, dportField}, nil, flowFrom, func(f nodeport.Frontend, _ bool) bool { return external(f) }},
		{"node-port-flows", 6, with, nil, flow, nodePort},
		{"host-port-flows", 7, with, nil, flow, func(f nodeport.Frontend, _ bool) bool { return f.Host }},
	}
}

func atAddress(f nodeport.Frontend, b nodeport.Backend) entry {
	return entry{bytesOf(f.Address) + service(f.Protocol, f.Port), bytesOf(b.Addr()) + portBytes(b.Port())}
}

func atAll(f nodeport.Frontend, b nodeport.Backend) entry {
	return entry{service(f.Protocol, f.Port), bytesOf(b.Addr()) + portBytes(b.Port())}
}

func flow(f nodeport.Frontend, b nodeport.Backend) entry {
	return entry{key: bytesOf(b.Addr()) + service(f.Protocol, b.Port())}
}

func flowFrom(f nodeport.Frontend, b nodeport.Backend) entry {
	return entry{key: bytesOf(f.Address) + flow(f, b).key}
}

func bytesOf(ip netip.Addr) string { return string(ip.AsSlice()) }

func service(p corev1.Protocol, port uint16) string {
	return string([]byte{numberOf(p), 0, 0, 0}) + portBytes(port)
}

func portBytes(port uint16) string { return string(align(binary.BigEndian.AppendUint16(nil, port))) }

func numberOf(p corev1.Protocol) byte {
	switch p {
	case corev1.ProtocolTCP:
		return unix.IPPROTO_TCP
	case corev1.ProtocolUDP:
		return unix.IPPROTO_UDP
	case corev1.ProtocolSCTP:
		return unix.IPPROTO_SCTP
	}
	return 0
}

// chain is a chain with its rules; it is called at a hook of the kernel's if it
// has a priority.
type chain struct {
	name, typ      string
	hook, priority int32
	rules          []rule
}

type rule struct {
	comment string
	body    []byte
}

func (f family) chains() []chain {
	s := f.sets()
	enter := []rule{{"to Services and pods", decide(unix.NFT_JUMP, text(unix.NFTA_VERDICT_CHAIN, "services"))}}
	all := []chain{
		{"services", "", 0, 0, []rule{
			{"external IPs", f.translate(s[0])},
			{"node ports of this node's addresses", join(f.notLoopback(), f.local(), f.translate(s[1]))},
			{"host ports of one address", join(f.local(), f.translate(s[2]))},
			{"host ports of this node's addresses", join(f.local(), f.translate(s[3]))},
		}},
		{"prerouting", "nat", unix.NF_INET_PRE_ROUTING, -100, enter},
		{"output", "nat", unix.NF_INET_LOCAL_OUT, -100, append([]rule{{"the Kubernetes API", f.translate(s[4])}}, enter...)},
		{"postrouting", "nat", unix.NF_INET_POST_ROUTING, 100, []rule{
			{"replies come back by this node", masquerade(s[5])},
			{"replies come back by this node", masquerade(s[6])},
			{"replies come back by this node", masquerade(s[7])},
		}},
	}
	if !f.v6 { // before anything else sees it; replies have the node's address still
		all = append(all, chain{"loopback", "filter", unix.NF_INET_PRE_ROUTING, -300, []rule{
			{"the loopback's addresses are for this node alone", f.strayLoopback()},
		}})
	}
	return all
}

// comments are those of all rules, in the order in which the kernel lists them.
func (f family) comments() []string {
	var all []string
	for _, c := range f.chains() {
		for _, r := range c.rules {
			all = append(all, string(comment(unix.NFTA_RULE_USERDATA, r.comment)))
		}
	}
	return all
}

func (f family) what(format string, args ...any) string {
	return fmt.Sprintf(format, args...) + " of table " + f.name + " " + tableName
}

// build replaces the table, or makes it.
func (f family) build(want content) []message {
	name := text(unix.NFTA_TABLE_NAME, tableName)
	messages := []message{
		{f.what("making sure"), unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, name}, // there is something to delete
		{f.what("removing the former content"), unix.NFT_MSG_DELTABLE, 0, name},
		{f.what("making a new one in place"), unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, name},
	}
	for _, s := range f.sets() {
		messages = append(messages, message{f.what("making set %s", s.name), unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, s.define()})
	}
	for _, c := range f.chains() {
		messages = append(messages, message{f.what("making chain %s", c.name), unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, c.define()})
		for _, r := range c.rules {
			messages = append(messages, message{
				f.what("making a rule (%s) in chain %s", r.comment, c.name), unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_APPEND,
				join(text(unix.NFTA_RULE_TABLE, tableName), text(unix.NFTA_RULE_CHAIN, c.name), nested(unix.NFTA_RULE_EXPRESSIONS, r.body),
					comment(unix.NFTA_RULE_USERDATA, r.comment)),
			})
		}
	}
	return append(messages, f.change(nil, want)...)
}

func (c chain) define() []byte {
	body := join(text(unix.NFTA_CHAIN_TABLE, tableName), text(unix.NFTA_CHAIN_NAME, c.name))
	if c.priority == 0 {
		return body
	}
	return join(body, text(unix.NFTA_CHAIN_TYPE, c.typ), nested(unix.NFTA_CHAIN_HOOK,
		number(unix.NFTA_HOOK_HOOKNUM, uint32(c.hook)), number(unix.NFTA_HOOK_PRIORITY, uint32(c.priority))))
}

func (s set) define() []byte {
	var key []datatype
	for _, f := range s.key {
		key = append(key, f.datatype)
	}
	flags, value := uint32(0), []byte(nil)
	if s.value != nil {
		flags = unix.NFT_SET_MAP
		magic, length := concatenated(s.value)
		value = join(number(unix.NFTA_SET_DATA_TYPE, magic), number(unix.NFTA_SET_DATA_LEN, length))
	}
	magic, length := concatenated(key)
	return join(text(unix.NFTA_SET_TABLE, tableName), text(unix.NFTA_SET_NAME, s.name), number(unix.NFTA_SET_ID, s.id),
		number(unix.NFTA_SET_FLAGS, flags), number(unix.NFTA_SET_KEY_TYPE, magic), number(unix.NFTA_SET_KEY_LEN, length), value)
}

// concatenated is the type of several fields: six bits for the number of each,
// four bytes and multiples for their values (nft's src/datatype.c).
func concatenated(types []datatype) (magic, length uint32) {
	for _, t := range types {
		magic = magic<<6 | t.magic
		length += (t.bytes + 3) &^ 3
	}
	return magic, length
}

// content is the elements of each set, values and comments by key.
type content []map[string]element

type element struct{ value, comment string }

// frontends is how many sets, the first ones, have the frontends; the others follow.
const frontends = 5

// of returns the elements of a set, of which there are none if nothing is known.
func (c content) of(set int) map[string]element {
	if set >= len(c) {
		return nil
	}
	return c[set]
}

func (f family) content(t nodeport.Table) content {
	var all content
	for _, s := range f.sets() {
		elements := map[string]element{}
		for front, back := range t {
			if s.has(front, back.Own) && numberOf(front.Protocol) != 0 {
				e := s.element(front, back)
				elements[e.key] = element{e.value, back.For}
			}
		}
		all = append(all, elements)
	}
	return all
}

// decode reads a frontend, but for whether it is a pod's, and where it leads from an
// element of one of the maps.
func (f family) decode(key, value string) (front nodeport.Frontend, to netip.AddrPort, ok bool) {
	length := int(f.address.bytes)
	front.Address = netip.IPv4Unspecified()
	if f.v6 {
		front.Address = netip.IPv6Unspecified()
	}
	if len(key) == length+8 {
		front.Address, _ = netip.AddrFromSlice([]byte(key[:length]))
		key = key[length:]
	}
	if len(key) != 8 || len(value) != length+4 {
		return front, to, false
	}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		if numberOf(p) == key[0] {
			front.Protocol = p
		}
	}
	front.Port = binary.BigEndian.Uint16([]byte(key[4:]))
	ip, ok := netip.AddrFromSlice([]byte(value[:length]))
	return front, netip.AddrPortFrom(ip, binary.BigEndian.Uint16([]byte(value[length:]))), ok
}
