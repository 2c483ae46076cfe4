// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package conntrack_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/conntrack"
	"github.com/kuryr-go/kuryr/internal/nodetest"
)

func TestMain(m *testing.M) { nodetest.Main(m) }

// connect has the kernel track a connection as if its first packet had been from source
// to destination and had been led to answers.
func connect(t testing.TB, h *netlink.Handle, protocol uint8, source, destination, answers string) {
	t.Helper()
	from, to, by := netip.MustParseAddrPort(source), netip.MustParseAddrPort(destination), netip.MustParseAddrPort(answers)
	tuple := func(a, b netip.AddrPort) netlink.IPTuple {
		return netlink.IPTuple{SrcIP: net.IP(a.Addr().AsSlice()), DstIP: net.IP(b.Addr().AsSlice()), SrcPort: a.Port(), DstPort: b.Port(), Protocol: protocol}
	}
	family := netlink.InetFamily(unix.AF_INET)
	if from.Addr().Is6() {
		family = unix.AF_INET6
	}
	flow := &netlink.ConntrackFlow{FamilyType: uint8(family), Forward: tuple(from, to), Reverse: tuple(by, from), TimeOut: 600}
	if err := h.ConntrackCreate(netlink.ConntrackTable, family, flow); err != nil {
		t.Fatalf("making a connection from %s: %v", source, err)
	}
}

// handle is of a connection tracking that is empty.
func handle(t testing.TB) *netlink.Handle {
	t.Helper()
	nodetest.Need(t)
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.ConntrackTableFlush(netlink.ConntrackTable); h.Close() })
	if err := h.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		t.Skipf("SKIPPED: the kernel tracks no connections: %v", err)
	}
	return h
}

// sources are where the connections that there are come from.
func sources(t testing.TB, h *netlink.Handle) []string {
	t.Helper()
	var all []string
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		flows, err := h.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			all = append(all, f.Forward.SrcIP.String())
		}
	}
	slices.Sort(all)
	return all
}

func TestEnd(t *testing.T) {
	pod := netip.MustParseAddr("10.7.0.5")
	for name, c := range map[string]struct {
		match conntrack.Match
		is    func(conntrack.Flow) bool
		left  []string
	}{
		"of a pod":        {conntrack.Match{Source: pod}, nil, []string{"10.7.0.6", "10.7.0.7", "fd07::5"}},
		"to a pod":        {conntrack.Match{Answers: pod}, nil, []string{"10.7.0.5", "10.7.0.7", "fd07::5"}},
		"of IPv6":         {conntrack.Match{V6: true, Source: netip.MustParseAddr("fd07::5")}, nil, []string{"10.7.0.5", "10.7.0.6", "10.7.0.7"}},
		"of another IPv6": {conntrack.Match{V6: true, Source: netip.MustParseAddr("fd07::6")}, nil, []string{"10.7.0.5", "10.7.0.6", "10.7.0.7", "fd07::5"}},
		"by port":         {conntrack.Match{Protocol: unix.IPPROTO_UDP, Port: 30080}, nil, []string{"10.7.0.5", "10.7.0.7", "fd07::5"}},
		"by protocol":     {conntrack.Match{Protocol: unix.IPPROTO_UDP}, nil, []string{"10.7.0.7", "fd07::5"}},
		"by what is told": {conntrack.Match{}, func(f conntrack.Flow) bool {
			return f == conntrack.Flow{
				Protocol: unix.IPPROTO_UDP, Source: netip.MustParseAddrPort("10.7.0.6:2"),
				Destination: netip.MustParseAddrPort("192.0.2.1:30080"), Answers: netip.MustParseAddrPort("10.7.0.5:80"),
			}
		}, []string{"10.7.0.5", "10.7.0.7", "fd07::5"}},
	} {
		for _, crowded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, of many: %t", name, crowded), func(t *testing.T) {
				h := handle(t)
				connect(t, h, unix.IPPROTO_UDP, "10.7.0.5:1", "10.7.0.9:53", "10.7.0.9:53")
				connect(t, h, unix.IPPROTO_UDP, "10.7.0.6:2", "192.0.2.1:30080", "10.7.0.5:80")
				connect(t, h, unix.IPPROTO_SCTP, "10.7.0.7:3", "192.0.2.1:30080", "10.7.0.8:80")
				connect(t, h, unix.IPPROTO_SCTP, "[fd07::5]:5", "[fd07::9]:53", "[fd07::9]:53")
				others := 0
				if crowded {
					others = 2500
					crowd(t, h, others)
				}
				if err := conntrack.End(t.Context(), []conntrack.Match{c.match}, c.is); err != nil {
					t.Fatalf("End = %v", err)
				}
				left := slices.DeleteFunc(sources(t, h), func(s string) bool { return !strings.HasPrefix(s, "10.7.") && !strings.HasPrefix(s, "fd") })
				if diff := cmp.Diff(c.left, left); diff != "" {
					t.Errorf("connections that are left (-want +got):\n%s", diff)
				}
				if n := len(sources(t, h)) - len(left); n != others {
					t.Errorf("%d connections of others are left, want %d", n, others)
				}
			})
		}
	}
}

func TestEndOfContext(t *testing.T) {
	h := handle(t)
	connect(t, h, unix.IPPROTO_UDP, "10.7.0.5:1", "10.7.0.9:53", "10.7.0.9:53")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := conntrack.End(ctx, []conntrack.Match{{}}, nil); !errors.Is(err, context.Canceled) || len(sources(t, h)) != 1 {
		t.Errorf("End = %v, %d connections left; want it to do nothing", err, len(sources(t, h)))
	}
}

// crowd adds n connections of others: of TCP's kin, so that no match by protocol is theirs.
func crowd(t testing.TB, h *netlink.Handle, n int) {
	t.Helper()
	for k := range n {
		source := fmt.Sprintf("10.%d.%d.%d:%d", 8+k>>16&0xff, k>>8&0xff, k&0xff, 1024+k%60_000)
		connect(t, h, unix.IPPROTO_UDPLITE, source, "10.7.0.9:53", "10.7.0.9:53")
	}
}

// endOfAPod is what the end of a pod on a bridge takes.
func endOfAPod(t testing.TB) {
	t.Helper()
	var all []conntrack.Match
	for _, a := range []string{"10.7.0.5", "fd07::5"} {
		pod := netip.MustParseAddr(a)
		all = append(all, conntrack.Match{V6: pod.Is6(), Source: pod}, conntrack.Match{V6: pod.Is6(), Answers: pod})
	}
	if err := conntrack.End(t.Context(), all, nil); err != nil {
		t.Fatal(err)
	}
}

// Several pods may end at once, the daemon has 200 MiB, and a node has room for
// 262 144 connections: nothing is held of those that are not looked for.
func TestEndAmongMany(t *testing.T) {
	const many, limit = 20_000, 1 << 20
	h := handle(t)
	crowd(t, h, many)
	connect(t, h, unix.IPPROTO_UDP, "10.7.0.5:1", "10.7.0.9:53", "10.7.0.9:53")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	endOfAPod(t)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > limit {
		t.Errorf("to look among %d connections took %d bytes, want at most %d", many, used, limit)
	}
	if n := len(sources(t, h)); n != many {
		t.Errorf("%d connections are left, want %d", n, many)
	}
}

func BenchmarkEnd(b *testing.B) {
	for _, n := range []int{0, 2000, 200_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			crowd(b, handle(b), n)
			b.ReportAllocs()
			for b.Loop() {
				endOfAPod(b)
			}
		})
	}
}
