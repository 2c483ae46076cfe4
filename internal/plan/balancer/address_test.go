// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestFloatingIP: it is created, found, moved and given back by how it was obtained.
func TestFloatingIP(t *testing.T) {
	mine := func(id, address, port string) sdn.FloatingIP {
		return sdn.FloatingIP{ID: id, Owner: owner, NetworkID: outsideNet, Address: address, PortID: port}
	}
	theirs := func(id, address, port string) sdn.FloatingIP {
		return sdn.FloatingIP{ID: id, NetworkID: outsideNet, Address: address, PortID: port}
	}
	another := func(id, address, port string) sdn.FloatingIP {
		f := mine(id, address, port)
		f.Owner.Name = "other"
		return f
	}
	anyIP := &v1.PublicIPSpec{NetworkID: outsideNet}
	five := &v1.PublicIPSpec{NetworkID: outsideNet, Address: "203.0.113.5"}
	kept := &v1.PublicIPSpec{NetworkID: outsideNet, Keep: true}
	for _, tc := range []struct {
		name     string
		want     *v1.PublicIPSpec
		deleted  bool
		prior    *v1.PublicIPStatus
		noPort   bool
		withheld bool
		held     bool
		partial  bool
		all      []sdn.FloatingIP
		steps    []string
		has      *v1.PublicIPStatus
		problem  string // a part of it
		kept     string // likewise
		unsure   bool
	}{
		{name: "none is wanted"},
		{name: "one is made, on the port at once", want: anyIP, steps: []string{"create floating IP in network outside-net"}},
		{name: "there is no port yet", want: anyIP, noPort: true},
		{
			name: "the one on the port is taken", want: anyIP, all: []sdn.FloatingIP{theirs("a", "203.0.113.9", "vip")},
			has: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9"},
		},
		{
			name: "one whose making was cut short is taken up", want: anyIP, all: []sdn.FloatingIP{mine("a", "203.0.113.9", "")},
			steps: []string{"associate floating IP 203.0.113.9 with port vip"},
		},
		{
			name: "of several, the one on the port", want: anyIP, prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9", Made: true},
			all: []sdn.FloatingIP{mine("a", "203.0.113.9", ""), mine("b", "203.0.113.10", "vip")}, steps: []string{"delete floating IP 203.0.113.9"},
			has: &v1.PublicIPStatus{ID: "b", IP: "203.0.113.10", Made: true},
		},
		{
			name: "of several, the one that was in use", want: anyIP, prior: &v1.PublicIPStatus{ID: "b", IP: "203.0.113.10", Made: true},
			all:   []sdn.FloatingIP{mine("c", "203.0.113.11", "server"), mine("b", "203.0.113.10", ""), mine("a", "203.0.113.9", "")},
			steps: []string{"associate floating IP 203.0.113.10 with port vip"},
		},
		{
			name: "of several, one that no other port has", want: anyIP,
			all:   []sdn.FloatingIP{mine("c", "203.0.113.11", "server"), mine("a", "203.0.113.9", "")},
			steps: []string{"associate floating IP 203.0.113.9 with port vip"},
		},
		{
			name: "nobody's own is not taken without being asked for", want: anyIP, all: []sdn.FloatingIP{theirs("a", "203.0.113.9", "")},
			steps: []string{"create floating IP in network outside-net"},
		},
		{
			name: "the one that is asked for", want: five, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", ""), theirs("b", "203.0.113.6", "")},
			steps: []string{"associate floating IP 203.0.113.5 with port vip"},
		},
		{
			name: "it is there", want: five, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "vip")},
			has: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5"},
		},
		{
			name: "the one that is asked for is of another network", want: &v1.PublicIPSpec{NetworkID: "other-net", Address: "203.0.113.5"},
			all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "")}, problem: "is in network outside-net, but the Service wants one in other-net",
		},
		{
			name: "it has one of another network", want: &v1.PublicIPSpec{NetworkID: "other-net", Address: "203.0.113.5"},
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5"}, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "")},
			steps: []string{"associate floating IP 203.0.113.5 with port vip"},
		},
		{
			name: "it had one of another network before that was withheld", want: &v1.PublicIPSpec{NetworkID: "other-net", Address: "203.0.113.5"},
			held: true, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "")},
			steps: []string{"associate floating IP 203.0.113.5 with port vip"},
		},
		{
			name: "somebody else uses it", want: five, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "other")}, problem: "in use by port other",
		},
		{
			name: "the one asked for does not exist", want: five, steps: []string{"create floating IP 203.0.113.5 in network outside-net"},
		},
		{
			name: "another address: the old one goes when the new one is there", want: five,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9", Made: true}, all: []sdn.FloatingIP{mine("a", "203.0.113.9", "vip")},
			steps: []string{"create floating IP 203.0.113.5 in network outside-net"},
		},
		{
			name: "another address: they change places", want: five,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9", Made: true},
			all:   []sdn.FloatingIP{mine("a", "203.0.113.9", "vip"), theirs("b", "203.0.113.5", "")},
			steps: []string{"dissociate floating IP 203.0.113.9 from port vip", "associate floating IP 203.0.113.5 with port vip"},
		},
		{
			name: "another address: the old one is deleted", want: five,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9", Made: true},
			all:   []sdn.FloatingIP{mine("a", "203.0.113.9", ""), theirs("b", "203.0.113.5", "vip")},
			steps: []string{"delete floating IP 203.0.113.9"}, has: &v1.PublicIPStatus{ID: "b", IP: "203.0.113.5"},
		},
		{
			name: "it moves to another load balancer", want: anyIP,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9", Made: true}, all: []sdn.FloatingIP{mine("a", "203.0.113.9", "old")},
			steps: []string{"dissociate floating IP 203.0.113.9 from port old", "associate floating IP 203.0.113.9 with port vip"},
		},
		{
			name: "the user's moves, too", want: five,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5"}, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "old")},
			steps: []string{"dissociate floating IP 203.0.113.5 from port old", "associate floating IP 203.0.113.5 with port vip"},
		},
		{
			name: "one that was found on the port of a load balancer that is made anew", want: anyIP,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5"}, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "")},
			steps: []string{"associate floating IP 203.0.113.5 with port vip"},
		},
		{
			name:  "no longer wanted, made by us",
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9", Made: true}, all: []sdn.FloatingIP{mine("a", "203.0.113.9", "vip")},
			steps: []string{"delete floating IP 203.0.113.9"},
		},
		{
			name: "no longer wanted, and no status", all: []sdn.FloatingIP{mine("a", "203.0.113.9", "vip")},
			steps: []string{"delete floating IP 203.0.113.9"},
		},
		{
			name:  "no longer wanted, of the user",
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9"}, all: []sdn.FloatingIP{theirs("a", "203.0.113.9", "vip")},
			steps: []string{"dissociate floating IP 203.0.113.9 from port vip"},
		},
		{name: "one of others on the port of a Service without", all: []sdn.FloatingIP{theirs("a", "203.0.113.9", "vip")}},
		{
			name: "deleted", want: anyIP, deleted: true, all: []sdn.FloatingIP{mine("a", "203.0.113.9", "vip")},
			steps: []string{"delete floating IP 203.0.113.9"},
		},
		{
			name: "one to keep is said not to be made, and is nobody's from then on", want: kept, all: []sdn.FloatingIP{mine("a", "203.0.113.9", "vip")},
			steps: []string{"keep floating IP 203.0.113.9 in the project"}, has: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9"},
		},
		{
			name: "one that is kept already", want: kept, prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9"},
			all: []sdn.FloatingIP{theirs("a", "203.0.113.9", "vip")}, has: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9"},
		},
		{
			name:  "one to keep is kept when it is no longer wanted",
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.9"}, all: []sdn.FloatingIP{mine("a", "203.0.113.9", "vip")},
			steps: []string{"dissociate floating IP 203.0.113.9 from port vip", "keep floating IP 203.0.113.9 in the project"},
		},
		{
			name: "one to keep outlives the Service, whatever the status says", want: kept, deleted: true,
			all:   []sdn.FloatingIP{mine("a", "203.0.113.9", "vip")},
			steps: []string{"dissociate floating IP 203.0.113.9 from port vip", "keep floating IP 203.0.113.9 in the project"},
		},
		{
			name: "somebody gave the port one of theirs, another is asked for", want: five,
			all: []sdn.FloatingIP{theirs("a", "203.0.113.9", "vip"), theirs("b", "203.0.113.5", "")}, problem: "somebody gave floating IP 203.0.113.9",
		},
		{
			name: "one that was made for another Service is not taken from it", want: five,
			all: []sdn.FloatingIP{another("a", "203.0.113.5", "")}, problem: "made for Service shop/other",
		},
		{
			name: "nor if somebody has given it to this one", want: anyIP,
			all: []sdn.FloatingIP{another("a", "203.0.113.5", "vip")}, problem: "somebody gave floating IP 203.0.113.5",
		},
		{
			name: "somebody has taken the user's away: it is not taken back", want: five,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5"}, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "server")},
			problem: "in use by port server",
		},
		{
			name: "somebody has taken ours away: it is not taken back", want: anyIP,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5", Made: true}, all: []sdn.FloatingIP{mine("a", "203.0.113.5", "server")},
			problem: "in use by port server",
		},
		{
			name:  "no longer wanted, of the user, who has given it to a server",
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5"}, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "server")},
		},
		{
			name:  "no longer wanted, made by us, and somebody has given it to a server",
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5", Made: true}, all: []sdn.FloatingIP{mine("a", "203.0.113.5", "server")},
			steps: []string{"keep floating IP 203.0.113.5 in the project"},
		},
		{
			name:  "no longer wanted, made by us, at a load balancer that is to go",
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5", Made: true}, all: []sdn.FloatingIP{mine("a", "203.0.113.5", "old")},
			steps: []string{"delete floating IP 203.0.113.5"},
		},
		{
			name: "no longer wanted, and not all ports are known", partial: true,
			all:   []sdn.FloatingIP{mine("a", "203.0.113.5", "vip"), mine("b", "203.0.113.6", ""), another("c", "203.0.113.7", "server")},
			steps: []string{"delete floating IP 203.0.113.5", "delete floating IP 203.0.113.6"},
		},
		{
			name: "no longer wanted, made by us, and at a port that may be ours", partial: true, all: []sdn.FloatingIP{mine("a", "203.0.113.5", "server")}, unsure: true,
		},
		{
			name: "no longer wanted, of the user, and at a port that may be ours", partial: true,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5"}, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "server")}, unsure: true,
		},
		{
			name: "what is wanted cannot be had: what there is, is not forgotten", want: five,
			prior:   &v1.PublicIPStatus{ID: "b", IP: "203.0.113.6"},
			all:     []sdn.FloatingIP{theirs("a", "203.0.113.5", "server"), theirs("b", "203.0.113.6", "vip")},
			problem: "in use by port server", has: &v1.PublicIPStatus{ID: "b", IP: "203.0.113.6"},
		},
		{
			name: "nobody could be kept out: it is reserved", want: anyIP, withheld: true,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5", Made: true}, all: []sdn.FloatingIP{mine("a", "203.0.113.5", "vip")},
			steps: []string{"dissociate floating IP 203.0.113.5 from port vip"},
		},
		{
			name: "nobody could be kept out: none is made", want: anyIP, withheld: true, all: []sdn.FloatingIP{mine("a", "203.0.113.5", "")},
		},
		{
			name: "nobody could be kept out: the user's goes, too", want: five, withheld: true,
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5"}, all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "old")},
			steps: []string{"dissociate floating IP 203.0.113.5 from port old"},
		},
		{
			name: "nobody could be kept out: the one that is asked for goes, whatever the status says", want: five, withheld: true,
			all:   []sdn.FloatingIP{theirs("a", "203.0.113.5", "vip")},
			steps: []string{"dissociate floating IP 203.0.113.5 from port vip"},
		},
		{
			name: "nobody could be kept out, and it is another's that is asked for", want: five, withheld: true,
			all: []sdn.FloatingIP{another("a", "203.0.113.5", "vip")}, problem: "cannot enforce the Service's source ranges",
		},
		{
			name: "nobody could be kept out, and somebody has made it public", want: anyIP, withheld: true,
			all: []sdn.FloatingIP{theirs("a", "203.0.113.5", "vip")}, problem: "cannot enforce the Service's source ranges",
		},
		{
			name: "withheld and no longer wanted", withheld: true, all: []sdn.FloatingIP{mine("a", "203.0.113.5", "")},
			steps: []string{"delete floating IP 203.0.113.5"},
		},
		{
			name: "another network is for new ones", want: &v1.PublicIPSpec{NetworkID: "other-net"},
			prior: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5", Made: true}, all: []sdn.FloatingIP{mine("a", "203.0.113.5", "vip")},
			has: &v1.PublicIPStatus{ID: "a", IP: "203.0.113.5", Made: true}, kept: `network "outside-net" instead of "other-net"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			klb := newWorld(t).klb
			klb.Spec.PublicIP, klb.Status.PublicIP = tc.want, tc.prior
			if tc.deleted {
				klb.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			if tc.held {
				klb.Status.WithheldPublicIP = tc.want.Address
			}
			at := balancer.Place{Port: "vip", Own: []string{"vip", "old"}, Withheld: tc.withheld, Partial: tc.partial}
			if tc.noPort {
				at.Port, at.Own = "", nil
			}
			got := balancer.NextAddress(klb, at, tc.all, owner)
			var steps []string
			for _, s := range got.Steps {
				steps = append(steps, s.String())
			}
			if got.Unsure != tc.unsure {
				t.Errorf("unsure %v, want %v", got.Unsure, tc.unsure)
			}
			if !strings.Contains(got.Problem, tc.problem) || tc.problem == "" && got.Problem != "" {
				t.Errorf("problem %q, want %q", got.Problem, tc.problem)
			}
			if said := keptText(got.Kept); !strings.Contains(said, tc.kept) || tc.kept == "" && said != "" {
				t.Errorf("kept %q, want %q", said, tc.kept)
			}
			if diff := cmp.Diff(tc.steps, steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if got.Has != nil {
				i := slices.IndexFunc(tc.all, func(f sdn.FloatingIP) bool { return f.ID == got.Has.ID })
				if got.Has.NetworkID != tc.all[i].NetworkID {
					t.Errorf("network %q, want %q", got.Has.NetworkID, tc.all[i].NetworkID)
				}
				got.Has.NetworkID = ""
			}
			if diff := cmp.Diff(tc.has, got.Has); diff != "" {
				t.Errorf("has (-want +got):\n%s", diff)
			}
		})
	}
}

// keptText describes for people what stays.
func keptText(kept []v1.UnchangedField) string {
	var texts []string
	for _, d := range kept {
		texts = append(texts, balancer.Unchanged(d))
	}
	return strings.Join(texts, "\n")
}
