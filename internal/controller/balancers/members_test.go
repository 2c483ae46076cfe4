// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// roomFor is a cloud whose quota has room for so many more members.
type roomFor struct {
	sdn.LoadBalancers
	room int
	sent []string // the changes: added, removed, and whether that was done
}

func (r *roomFor) ChangeMembers(_ context.Context, _, _ string, add, remove []sdn.Member) error {
	fits := len(add)-len(remove) <= r.room
	r.sent = append(r.sent, fmt.Sprintf("+%d-%d %t", len(add), len(remove), fits))
	if !fits {
		return sdn.ErrQuota
	}
	r.room -= len(add) - len(remove)
	return nil
}

// TestMembersWithinAQuota: of a change over quota the removals are done, and the additions that there
// is room for. Nothing counts as done, and nothing is waited for, if there is no room at all: each end
// of such a wait would begin another round.
func TestMembersWithinAQuota(t *testing.T) {
	for name, tc := range map[string]struct {
		add, remove, room int
		want              []string
		did               int
	}{
		"one, no room":           {1, 0, 0, []string{"+1-0 false"}, 0},
		"four, no room":          {4, 0, 0, []string{"+4-0 false", "+2-0 false", "+1-0 false"}, 0},
		"four, room for two":     {4, 0, 2, []string{"+4-0 false", "+2-0 true"}, 1},
		"two for one, no room":   {2, 1, 0, []string{"+2-1 false", "+1-1 true"}, 1},
		"three for one, no room": {3, 1, 0, []string{"+3-1 false", "+1-1 true"}, 1},
		"over quota already":     {3, 2, -2, []string{"+3-2 false", "+2-2 false", "+0-2 true"}, 1},
	} {
		cloud := &roomFor{room: tc.room}
		r := &Reconciler{Options: Options{Shards: kube.Alone{}, Cloud: Cloud{LoadBalancers: cloud}, Now: time.Now}}
		r.wait.added, r.wait.busy = kube.NewSignal(), map[string]waiting{}
		v := &reconciliation{Reconciler: r, klb: &v1.KuryrLoadBalancer{}, memory: &memory{}}
		err := v.changeMembers(t.Context(), balancer.ChangeMembers{Below: balancer.Below{LoadBalancerID: "lb"}, Add: make([]sdn.Member, tc.add), Remove: make([]sdn.Member, tc.remove)})
		if !errors.Is(err, sdn.ErrQuota) || !slices.Equal(cloud.sent, tc.want) {
			t.Errorf("%s: changeMembers sent %v, %v; want %v and ErrQuota", name, cloud.sent, err, tc.want)
		}
		if len(v.round.did) != tc.did || len(r.wait.busy) != tc.did {
			t.Errorf("%s: done are %v, waited for are %v; want %d of each", name, v.round.did, r.wait.busy, tc.did)
		}
	}
}
