// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var (
	prefixOf = netip.MustParsePrefix
	addrOf   = netip.MustParseAddr
)

func valid() Interface {
	return Interface{
		PortID: "a28c7404-7495-4557-b7fc-3e293508dbc6", Type: "ovs", ContainerID: "c1", Name: "eth0",
		MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 0, 1}, MTU: 1442,
		Addresses: []Address{{Prefix: prefixOf("10.0.0.5/24"), Gateway: addrOf("10.0.0.1")}},
	}
}

func TestCheckRefusesWhatCannotBePlugged(t *testing.T) {
	if err := valid().check(); err != nil {
		t.Fatalf("check of a valid interface = %v", err)
	}
	for name, spoil := range map[string]func(*Interface){
		"no port ID":            func(i *Interface) { i.PortID = "" },
		"path as port ID":       func(i *Interface) { i.PortID = "../../etc" },
		"newline in port ID":    func(i *Interface) { i.PortID = "a\n" },
		"no container ID":       func(i *Interface) { i.ContainerID = "" },
		"space in container ID": func(i *Interface) { i.ContainerID = "a interface=eth1" },
		"no name":               func(i *Interface) { i.Name = "" },
		"long name":             func(i *Interface) { i.Name = "interface-eth0-0" },
		"template as name":      func(i *Interface) { i.Name = "eth%d" },
		"path as name":          func(i *Interface) { i.Name = "../lo" },
		"dots as name":          func(i *Interface) { i.Name = ".." },
		"all":                   func(i *Interface) { i.Name = "all" },
		"loopback":              func(i *Interface) { i.Name = "lo" },
		"bridge":                func(i *Interface) { i.Bridge = "br int" },
		"short MAC":             func(i *Interface) { i.MAC = i.MAC[:5] },
		"zero MAC":              func(i *Interface) { i.MAC = make(net.HardwareAddr, 6) },
		"multicast MAC":         func(i *Interface) { i.MAC[0] = 1 },
		"long MAC":              func(i *Interface) { i.MAC = make(net.HardwareAddr, 8) },
		"negative MTU":          func(i *Interface) { i.MTU = -1 },
		"tiny MTU":              func(i *Interface) { i.MTU = 67 },
		"huge MTU":              func(i *Interface) { i.MTU = 65536 },
		"no address":            func(i *Interface) { i.Addresses[0].Prefix = netip.Prefix{} },
		"multicast address":     func(i *Interface) { i.Addresses[0].Prefix = prefixOf("224.0.0.1/4") },
		"mapped address":        func(i *Interface) { i.Addresses[0].Prefix = prefixOf("::ffff:1.2.3.4/128") },
		"gateway of the other family": func(i *Interface) {
			i.Addresses[0].Gateway = addrOf("fd00::1")
		},
		"route of both families": func(i *Interface) {
			i.Routes = []Route{{Destination: prefixOf("fd00::/64"), Gateway: addrOf("10.0.0.1")}}
		},
		"route to nowhere": func(i *Interface) { i.Routes = []Route{{Gateway: addrOf("10.0.0.1")}} },
	} {
		t.Run(name, func(t *testing.T) {
			i := valid()
			spoil(&i)
			if err := i.check(); !errors.Is(err, ErrInvalid) {
				t.Errorf("check = %v, want ErrInvalid", err)
			}
		})
	}
}

func TestHops(t *testing.T) {
	nets := []Address{
		{Prefix: prefixOf("10.0.0.5/24"), Gateway: addrOf("10.0.0.1")},
		{Prefix: prefixOf("10.1.0.5/24"), Gateway: addrOf("10.1.0.1")},
		{Prefix: prefixOf("fd00::5/64"), Gateway: addrOf("fe80::1")},
	}
	v4, v6 := prefixOf("0.0.0.0/0"), prefixOf("::/0")
	for _, c := range []struct {
		name string
		i    Interface
		want []Hop
	}{
		{"one default route a family, by the first gateway", Interface{Default: true, Addresses: nets},
			[]Hop{{v4, addrOf("10.0.0.1"), false}, {v6, addrOf("fe80::1"), false}}},
		{"not the default", Interface{Addresses: nets, Routes: []Route{{v4, addrOf("10.0.0.2")}}}, nil},
		{"no gateway", Interface{Default: true, Addresses: []Address{{Prefix: prefixOf("10.0.0.5/24")}}}, nil},
		{"gateway outside", Interface{Default: true, Addresses: []Address{{prefixOf("10.0.0.5/32"), addrOf("169.254.1.1")}}},
			[]Hop{{v4, addrOf("169.254.1.1"), true}}},
		{"own default route first", Interface{Default: true, Addresses: nets[:1], Routes: []Route{{v4, addrOf("10.0.0.2")}}},
			[]Hop{{v4, addrOf("10.0.0.2"), false}}},
		{"host bits", Interface{Addresses: nets, Routes: []Route{{prefixOf("10.96.0.7/12"), addrOf("10.0.0.2")}}},
			[]Hop{{prefixOf("10.96.0.0/12"), addrOf("10.0.0.2"), false}}},
		{"on the link", Interface{Addresses: nets, Routes: []Route{{Destination: prefixOf("10.9.0.0/16")}}},
			[]Hop{{prefixOf("10.9.0.0/16"), netip.Addr{}, false}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
			samePrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
			if diff := cmp.Diff(c.want, c.i.Hops(), same, samePrefix); diff != "" {
				t.Errorf("Hops (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostDevice(t *testing.T) {
	for id, want := range map[string]string{"a28c7404-7495-4557-b7fc-3e293508dbc6": "tapa28c7404-74", "short": "tapshort"} {
		if got := HostDevice(id); got != want {
			t.Errorf("HostDevice(%q) = %q, want %q", id, got, want)
		}
	}
}

// FuzzMark: parsing accepts exactly the texts that writing produces.
func FuzzMark(f *testing.F) {
	f.Add(markOf(valid()).String())
	f.Add("kuryr port=a sandbox=b interface=c")
	f.Add("kuryr port= sandbox= interface=")
	f.Fuzz(func(t *testing.T, alias string) {
		m, ok := parseMark(alias)
		if ok && m.String() != alias {
			t.Errorf("parseMark(%q) = %+v, which is written %q", alias, m, m.String())
		}
		if ok && len(alias) > 255 {
			t.Errorf("an alias of %d bytes is longer than the kernel takes", len(alias))
		}
		if !ok && m != (mark{}) {
			t.Errorf("parseMark(%q) = %+v without success", alias, m)
		}
	})
}

// FuzzIdentity: an identity that passes the check makes a mark that can be parsed. Its names stay
// unchanged as parts of paths and of command lines.
func FuzzIdentity(f *testing.F) {
	f.Add("a28c7404-7495-4557-b7fc-3e293508dbc6", "c1", "eth0")
	f.Add("../../../../x", "a b", "e\x00")
	f.Fuzz(func(t *testing.T, port, container, name string) {
		i := valid()
		i.PortID, i.ContainerID, i.Name = port, container, name
		if i.check() != nil {
			return
		}
		if m, ok := parseMark(markOf(i).String()); !ok || m != markOf(i) {
			t.Errorf("the mark %q reads as %+v, %v", markOf(i), m, ok)
		}
		device := HostDevice(port)
		if len(device) > 15 || strings.ContainsAny(device, "/ :%\n") || filepath.Base(name) != name || strings.HasPrefix(device, "-") {
			t.Errorf("port %q makes device %q, interface %q", port, device, name)
		}
		if b, err := describe("plug", i); err != nil || strings.Count(string(b), "\n") != 1 {
			t.Errorf("describe = %q, %v", b, err)
		}
		for _, v := range environment("plug", i) {
			if strings.ContainsAny(v, "\x00") {
				t.Errorf("environment holds %q", v)
			}
		}
	})
}

// FuzzType: a type never leads out of the folder of drivers.
func FuzzType(f *testing.F) {
	f.Add("midonet")
	f.Add("../../bin/sh")
	dir := f.TempDir()
	s := New(Config{DriverDir: filepath.Join(dir, "drivers")})
	f.Fuzz(func(t *testing.T, typ string) {
		d, err := s.Driver(typ)
		if typ == "ovs" || typ == "bridge" || typ == "vlan" || typ == "macvlan" {
			return
		}
		if d != nil || !errors.Is(err, ErrUnknownType) {
			t.Errorf("Driver(%q) = %v, %v", typ, d, err)
		}
		if typeRE.MatchString(typ) && filepath.Dir(filepath.Join(dir, "drivers", typ)) != filepath.Join(dir, "drivers") {
			t.Errorf("type %q leads out", typ)
		}
	})
}

func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nb\x1b[0m\xff"))
	f.Fuzz(func(t *testing.T, said []byte) {
		whole, pieces := &tail{limit: 64}, &tail{limit: 64}
		_, _ = whole.Write(said)
		for rest := said; len(rest) > 0; {
			n := 1 + rand.N(len(rest))
			_, _ = pieces.Write(rest[:n])
			rest = rest[n:]
		}
		s := whole.String()
		if s != pieces.String() {
			t.Errorf("%q written at once and in pieces differs: %q, %q", said, s, pieces.String())
		}
		if len(s) > 200 || !utf8.ValidString(s) || strings.ContainsAny(s, "\n\r\x1b\x00") {
			t.Errorf("%q is kept as %q", said, s)
		}
	})
}
