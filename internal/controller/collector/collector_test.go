// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// shelf is a cloud with one kind of resource. It records what happens to the resources.
type shelf struct {
	there, named, usable, inUse []string
	making                      kube.Owners
	failing                     error
	every                       time.Duration

	mu                     sync.Mutex // of deleted
	adopted, deleted, told []string
	kind                   Kind
}

func (s *shelf) inventory() *Inventory {
	in := func(all *[]string) func(context.Context, Resource) (bool, error) {
		return func(_ context.Context, r Resource) (bool, error) { return slices.Contains(*all, r.ID), nil }
	}
	s.kind = Kind{
		Name:    "thing",
		Wanted:  in(&s.named),
		Deleted: prometheus.NewCounter(prometheus.CounterOpts{Name: "deleted"}),
		Making:  &s.making,
		Adopt: func(ctx context.Context, r Resource) (func(context.Context) error, error) {
			if adopts, _ := in(&s.usable)(ctx, r); !adopts {
				return nil, nil
			}
			return func(context.Context) error { s.adopted = append(s.adopted, r.ID); return nil }, nil
		},
		Delete: func(ctx context.Context, r Resource) error {
			if used, _ := in(&s.inUse)(ctx, r); used {
				return errUsed
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.deleted = append(s.deleted, r.ID)
			return nil
		},
	}
	live := settings.NewLive(settings.Settings{Orphans: config.Orphans{}})
	current := *live.Load()
	current.Orphans.Grace.Duration = time.Minute
	live.Set(current)
	return &Inventory{Name: "things", Settings: live, Shards: kube.Alone{}, comparison: s, Soon: true}
}

// resource is a resource whose owner has the same name.
func (s *shelf) resource(id string) Resource {
	return ownedBy(sdn.Owner{Namespace: id, Name: id}, &s.kind, id)
}

func (s *shelf) look(context.Context) (found Findings, err error) {
	for _, id := range s.there {
		found.Unnamed = append(found.Unnamed, s.resource(id))
	}
	return found, s.failing
}

func (s *shelf) tell(req ctrl.Request) { s.told = append(s.told, req.Name) }
func (s *shelf) period() time.Duration { return s.every }

// looking is a shelf with another way to look.
type looking struct {
	*shelf
	by func(context.Context) (Findings, error)
}

func (l looking) look(ctx context.Context) (Findings, error) { return l.by(ctx) }

// A resource that was found unnamed once is left alone. Found twice, it is adopted if an object can
// use it. It stays if an object names it by then or something uses it. Otherwise it is deleted,
// once.
func TestWhatBecomesOfAResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{there: []string{"waste"}}
		v := s.inventory()
		look := func() {
			t.Helper()
			if _, err := v.once(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		look()
		s.there = []string{"waste", "named", "usable", "in use", "taken"}
		s.named, s.usable, s.inUse = []string{"named"}, []string{"usable"}, []string{"in use"}
		if release, ok := s.making.Try(kube.OwnerRequest(s.resource("taken").Owner)); ok {
			defer release()
		}
		dry, err := v.look(t.Context())
		if err != nil || len(dry.Unnamed) != 5 || len(s.deleted)+len(s.adopted) > 0 {
			t.Errorf("look found %v, %v, deleted %v and adopted %v; want five, and nothing done", dry.Unnamed, err, s.deleted, s.adopted)
		}
		look()
		if !slices.Equal(s.deleted, []string{"waste"}) || len(s.adopted) > 0 {
			t.Errorf("deleted %v, adopted %v, want what was seen twice alone", s.deleted, s.adopted)
		}
		s.there = s.there[1:]
		look()
		s.there = slices.DeleteFunc(s.there, func(id string) bool { return id == "usable" })
		look()
		if !slices.Equal(s.deleted, []string{"waste"}) || !slices.Equal(s.adopted, []string{"usable"}) {
			t.Errorf("deleted %v, adopted %v", s.deleted, s.adopted)
		}
	})
}

// A resource is deleted in a look that finds it unnamed a grace period after another one, if all looks
// in between did, too.
func TestUnnamedInEachLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := &shelf{}, time.Now()
		v := s.inventory()
		for _, look := range []struct {
			at    int // seconds
			there []string
			want  []string
			why   string
		}{
			{0, []string{"a", "b"}, nil, "seen for the first time"},
			{59, []string{"b", "a", "c"}, nil, "within the grace"},
			{60, []string{"b", "c"}, []string{"b"}, "b is unnamed for 60 s; an object names a now"},
			{120, []string{"c", "b", "a", "b"}, []string{"b", "c"}, "b was not deleted; a starts anew"},
			{180, []string{"a"}, []string{"a"}, "a is unnamed since 120 s"},
			{240, nil, nil, "none is left"},
		} {
			time.Sleep(time.Until(began.Add(time.Duration(look.at) * time.Second)))
			s.there, s.deleted = look.there, nil
			if _, err := v.once(t.Context()); err != nil {
				t.Fatal(err)
			}
			if slices.Sort(s.deleted); !slices.Equal(s.deleted, look.want) {
				t.Errorf("after %d s (%s) %v are deleted, want %v", look.at, look.why, s.deleted, look.want)
			}
		}
	})
}

// Whatever the grace period, also none, one look is not enough.
func TestOneLookIsNeverEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{there: []string{"a"}}
		v := s.inventory()
		v.Settings.Set(settings.Settings{})
		for _, want := range []int{0, 1} {
			if again, err := v.once(t.Context()); err != nil || again != (want == 0) || len(s.deleted) != want {
				t.Errorf("deleted %v, another look is needed: %v, %v; want %d deleted", s.deleted, again, err, want)
			}
		}
	})
}

// A resource that the cloud does not delete is tried at growing intervals, whether the cloud refuses,
// says that it will be gone, or somebody uses it. It does not delay others, and is deleted once it can.
func TestWhatStaysIsTriedLessAndLess(t *testing.T) {
	for name, answer := range map[string]error{"refused": errors.New("409"), "accepted, and nothing happens": nil, "in use": errUsed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{every: 10 * time.Second}
				v := s.inventory()
				var turn sync.Mutex // as in TestWhenToLook
				tries, deletable := map[string]int{}, map[string]bool{"later": true}
				there := []string{"stays"}
				v.comparison = looking{s, func(context.Context) (found Findings, err error) {
					turn.Lock()
					defer turn.Unlock()
					for _, id := range there {
						found.Unnamed = append(found.Unnamed, s.resource(id))
					}
					return found, nil
				}}
				s.kind.Delete = func(_ context.Context, r Resource) error {
					turn.Lock()
					defer turn.Unlock()
					if tries[r.ID]++; deletable[r.ID] {
						there = slices.DeleteFunc(there, func(id string) bool { return id == r.ID })
						return nil
					}
					return answer
				}
				go func() { _ = v.Run(t.Context()) }()
				time.Sleep(10 * time.Hour)
				turn.Lock()
				if n := tries["stays"]; n < 30 || n > 60 {
					t.Errorf("%d deletions were requested in 10 hours, want one each 16 grace periods of a minute", n)
				}
				there = append(there, "later")
				turn.Unlock()
				time.Sleep(20 * time.Minute)
				turn.Lock()
				if n := tries["later"]; n != 1 {
					t.Errorf("%d deletions of a resource found later were requested, want 1", n)
				}
				deletable["stays"] = true
				turn.Unlock()
				time.Sleep(20 * time.Minute)
				turn.Lock()
				defer turn.Unlock()
				if len(there) != 0 {
					t.Errorf("%v are still there, although they can be deleted for 20 minutes", there)
				}
			})
		})
	}
}

// A failed comparison is repeated, at growing intervals. Without a period, a comparison without
// findings is the last one until another is requested.
func TestWhenToLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{failing: errors.New("away")}
		v := s.inventory()
		var looks []time.Duration
		began := time.Now()
		// The race detector knows no order between a test that sleeps and what a timer starts
		// meanwhile: the mutex tells it.
		var turn sync.Mutex
		v.comparison = looking{s, func(ctx context.Context) (Findings, error) {
			turn.Lock()
			defer turn.Unlock()
			looks = append(looks, time.Since(began))
			return s.look(ctx)
		}}
		go func() { _ = v.Run(t.Context()) }()
		time.Sleep(10 * time.Minute)
		turn.Lock()
		s.failing = nil
		turn.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []time.Duration{time.Minute, 3 * time.Minute, 7 * time.Minute, 15 * time.Minute}
		if !slices.Equal(looks, want) {
			t.Errorf("looks after %v, want %v", looks, want)
		}
	})
}

// An audit of which one comparison failed, the first or the second, is unsure: what that one did not show
// may be left over. It deletes nothing then.
func TestAuditThatFailedOnce(t *testing.T) {
	for failing := range 3 { // 2: none
		s, looks := &shelf{there: []string{"waste"}}, 0
		v := s.inventory()
		v.Settings = settings.NewLive(settings.Settings{}) // without a grace
		s.kind.Making = nil                                // without asking for an owner
		v.comparison = looking{s, func(ctx context.Context) (Findings, error) {
			defer func() { looks++ }()
			if looks == failing {
				return Findings{}, sdn.ErrUnavailable
			}
			return s.look(ctx)
		}}
		judged, _, unsure := Audit(t.Context(), nil, []*Inventory{v}, func(context.Context) error { return nil })
		if looks != 2 || errors.Is(unsure, sdn.ErrUnavailable) != (failing < 2) || (len(judged) == 1) != (failing == 2) {
			t.Errorf("comparison %d fails: after %d of them %v is due, error %v", failing, looks, judged, unsure)
		}
	}
}
