// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestRefusedMembers: a cloud that refuses some members without naming them gets all others
// with a few requests. It rarely gets requests for those that it refuses.
func TestRefusedMembers(t *testing.T) {
	for _, named := range []bool{true, false} {
		for _, bad := range [][]int{{1}, {7}, {40}, {3, 4, 39}} {
			t.Run(fmt.Sprint(named, bad), func(t *testing.T) {
				w := newWorld(t)
				w.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80)}
				w.settle()
				var all []int
				for i := 1; i <= 40; i++ {
					all = append(all, i)
				}
				w.klb.Spec.Listeners[0] = port("TCP", 80, all...)
				isBad := func(m sdn.Member) bool {
					return slices.ContainsFunc(bad, func(i int) bool { return m.IP == member(i).IP })
				}
				requests, began := 0, w.now
				for range 400 {
					_, have, p, err := w.plan()
					if err != nil {
						t.Fatal(err)
					}
					if len(p.Steps) == 0 {
						if len(have[0].Listeners[0].Pool.Members) == 40-len(bad) && len(p.RefusedMembers) == len(bad) {
							break
						}
						w.now = w.now.Add(p.Wake)
						continue
					}
					s := p.Steps[0].(balancer.ChangeMembers)
					requests++
					if i := slices.IndexFunc(s.Add, isBad); i >= 0 {
						var names []sdn.Member
						if named {
							names = s.Add[i : i+1]
						}
						w.attempts.RefusedMembers(s.Add, names, w.now, time.Second, time.Minute, "no such subnet")
						continue
					}
					if err := w.do(s); err != nil {
						t.Fatal(err)
					}
				}
				_, have, p, _ := w.plan()
				if why := p.RefusedMembers; len(why) != len(bad) || len(have[0].Listeners[0].Pool.Members) != 40-len(bad) {
					t.Fatalf("there are %d members, and told is %q", len(have[0].Listeners[0].Pool.Members), why)
				}
				if took := w.now.Sub(began); requests > 10+14*len(bad) || took > 2*time.Minute {
					t.Errorf("%d requests in %s", requests, took)
				}
			})
		}
	}
}
