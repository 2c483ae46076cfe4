// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func membersNamed(of string, n int) (out []sdn.Member) {
	for i := range n {
		out = append(out, sdn.Member{ID: fmt.Sprint(of, i), IP: fmt.Sprint(of, i), SubnetID: "s"})
	}
	return out
}

// outline describes what a call does: which members it sends, and how many the provider works
// at; or which members it changes one by one.
func (b batch) outline() (text string) {
	if b.put != nil {
		counts := map[byte]int{}
		for _, m := range b.put {
			counts[m.IP[0]]++
		}
		text = fmt.Sprintf("put s%d f%d g%d worked %d", counts['s'], counts['f'], counts['g'], b.worked)
	} else {
		for i, s := range b.single {
			if i < 5 {
				text += string("+=-"[s.how]) + s.member.IP + " "
			}
		}
		text += fmt.Sprint("single ", len(b.single))
	}
	if b.more {
		text += " more"
	}
	return text
}

func TestWhatACallDoes(t *testing.T) {
	ovn, amphora, old := ways{most: 100, all: true}, ways{most: 450}, ways{most: 450, single: true}
	for _, test := range []struct {
		ways                       ways
		stay, fresh, renamed, gone int
		want                       string
	}{
		{ovn, 0, 50, 0, 0, "put s0 f50 g0 worked 50"},
		{ovn, 0, 300, 0, 0, "put s0 f100 g0 worked 100 more"},
		{ovn, 48, 2, 0, 2, "+f0 -g0 +f1 -g1 single 4"},
		{ovn, 40, 10, 0, 10, "put s40 f10 g0 worked 60"},
		{ovn, 0, 50, 0, 50, "put s0 f50 g0 worked 100"},
		{ovn, 0, 60, 0, 60, "put s0 f40 g20 worked 100 more"},
		// Ten would fit into a request that works at a hundred.
		{ovn, 0, 90, 0, 90, "+f0 -g0 +f1 -g1 +f2 single 20 more"},
		{ovn, 0, 100, 0, 100, "+f0 -g0 +f1 -g1 +f2 single 20 more"},
		{ovn, 0, 50, 0, 100, "put s0 f0 g50 worked 100 more"}, // the pool has too many in any case
		{ovn, 0, 100, 0, 50, "put s0 f50 g0 worked 100 more"},
		{ovn, 750, 250, 0, 250, "+f0 -g0 +f1 -g1 +f2 single 20 more"},
		{ovn, 1, 0, 0, 1000, "-g0 -g1 -g2 -g3 -g4 single 20 more"},
		// The pool is never sent empty: the last member is removed by itself.
		{ovn, 0, 0, 0, 50, "put s0 f0 g1 worked 50 more"},
		{ovn, 0, 0, 0, 1, "-g0 single 1"},
		{ovn, 50, 1, 1, 0, "+f0 =s0 single 2"},
		{ways{most: 180, all: true}, 0, 90, 0, 90, "put s0 f90 g0 worked 180"}, // a quicker provider
		{amphora, 950, 50, 0, 50, "put s950 f50 g0 worked 50"},
		{amphora, 0, 1000, 0, 1000, "put s0 f450 g550 worked 450 more"},
		{amphora, 0, 500, 0, 1000, "put s0 f450 g50 worked 450 more"},
		{amphora, 10, 0, 0, 990, "put s10 f0 g0 worked 0"},
		{old, 2, 2, 1, 1, "+f0 -g0 +f1 =s0 single 4"},
	} {
		c := memberChange{stay: membersNamed("s", test.stay), fresh: membersNamed("f", test.fresh), gone: membersNamed("g", test.gone)}
		c.renamed = c.stay[:test.renamed]
		if got := c.next(test.ways).outline(); got != test.want {
			t.Errorf("%+v, %d stay, %d are new, %d gone: %s, want %s", test.ways, test.stay, test.fresh, test.gone, got, test.want)
		}
	}
	known := []wireMember{
		{ID: "1", Address: "10.1.0.1", Port: 80, wireState: wireState{Provisioning: "ERROR"}},
		{ID: "2", Address: "10.1.0.2", Port: 80, wireState: wireState{Provisioning: "ACTIVE"}},
	}
	anew := changeOf(known, []sdn.Member{{IP: "10.1.0.1", Port: 80}, {IP: "10.1.0.2", Port: 80}}, nil)
	if got := anew.next(ovn); anew.isNothing() || len(got.put) != 2 || len(anew.again) != 1 {
		t.Errorf("one in ERROR is not told anew with the others: %+v of %+v", got, anew)
	}
	nameless := memberChange{stay: membersNamed("s", 200), fresh: membersNamed("f", 1)}
	nameless.stay[0].SubnetID = ""
	nameless.renamed = nameless.stay[:1]
	if got, want := nameless.next(ovn).outline(), "put s200 f0 g0 worked 200 more"; got != want {
		t.Errorf("one that names no subnet is renamed: %s, want %s", got, want)
	}
}
