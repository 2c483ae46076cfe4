// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestRestartKeepsGroups: a restart writes nothing, and changes of the meantime are followed.
func TestRestartKeepsGroups(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one, two := b.bound(b.pod("one")), b.bound(b.pod("two"))
	b.fenced("web", one, two)
	b.realised("web")
	id := b.fence().ID
	b.eventually("both have it", func() bool { return b.has(one, group, id) && b.has(two, group, id) })
	updates := b.cloud.Calls(memory.UpdatePort)
	b.stop()
	b.start()
	b.never("a restart changes a port", func() bool { return b.cloud.Calls(memory.UpdatePort) != updates })
	b.stop()
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0].Members = membersAt(two) })
	b.start()
	b.eventually("who has left meanwhile loses it", func() bool { return b.has(one, group) && b.has(two, group, id) })
}

// TestFenceGoes: the group is deleted with its KuryrLoadBalancer, after its ports have lost it. A
// group that no status names is deleted, too.
func TestFenceGoes(t *testing.T) {
	b := fenceBed(t)
	b.unhurried = true // nothing is deleted during this comparison
	b.start()
	one := b.bound(b.pod("one"))
	klb := b.fenced("web", one)
	b.realised("web")
	release := b.block(memory.UpdatePort)
	b.delete(klb)
	b.eventually("the load balancer goes", func() bool { return b.tree("web") == nil })
	b.never("the object goes before its group", func() bool { return b.klb("web") == nil || b.fence() == nil })
	release()
	b.removed("web")
	if n := len(b.cloud.SecurityGroups()); n > 0 || !b.has(one, group) {
		t.Errorf("%d groups are left, the port has %v", n, groupsOf(t, b, one.Name))
	}
	owner := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "gone"}
	if _, err := b.cloud.Backend("cluster").EnsureSecurityGroup(t.Context(), owner, sdn.SecurityGroup{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	b.eventually("a group of nobody's goes", func() bool { return len(b.cloud.SecurityGroups()) == 0 })
}

// TestGroupForgotten: a status that does not name its group any more, or is empty, takes the group
// from no port. Then it names the group again.
func TestGroupForgotten(t *testing.T) {
	for name, patch := range map[string]string{"the group": `{"status":{"securityGroupID":null}}`, "everything": `{"status":null}`} {
		t.Run(name, func(t *testing.T) {
			b := fenceBed(t)
			b.set(func(s *settings.Settings) { s.Orphans.Grace.Duration = time.Millisecond })
			b.start()
			one := b.bound(b.pod("one"))
			b.fenced("web", one)
			ip := b.realised("web").Status.PublicIP.IP
			id := b.fence().ID
			b.eventually("the member has it", func() bool { return b.has(one, group, id) })
			updates := b.cloud.Calls(memory.UpdatePort)
			release := b.block(memory.EnsureSecurityGroup)
			if err := b.client.Status().Patch(t.Context(), b.klb("web"), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Fatal(err)
			}
			b.never("a port is changed, or the group deleted", func() bool {
				return b.cloud.Calls(memory.UpdatePort) != updates || b.cloud.Calls(memory.DeleteSecurityGroup) > 0
			})
			release()
			b.eventually("it is named again", func() bool { return b.klb("web").Status.SecurityGroupID == id })
			if klb := b.realised("web"); klb.Status.PublicIP == nil || klb.Status.PublicIP.IP != ip || b.cloud.Calls(memory.UpdatePort) != updates {
				t.Errorf("floating IP %+v, %d changes of ports", klb.Status.PublicIP, b.cloud.Calls(memory.UpdatePort)-updates)
			}
		})
	}
}

// TestFenceOfOthers: somebody has put a group on another port, or the group may not be deleted.
// That does not block the deletion of a Service. The group is deleted once that is possible.
func TestFenceOfOthers(t *testing.T) {
	for name, forbidden := range map[string]error{"in use": nil, "forbidden": fmt.Errorf("deleting: %w", sdn.ErrForbidden)} {
		t.Run(name, func(t *testing.T) {
			b := fenceBed(t)
			b.start()
			one := b.bound(b.pod("one"))
			klb := b.fenced("web", one)
			b.realised("web")
			id := b.fence().ID
			theirs, err := b.cloud.Backend("other").CreatePorts(t.Context(), sdn.Owner{Kind: "x", Name: "vm"}, sdn.PortRequest{
				NetworkID: network, SubnetIDs: []string{subnet}, SecurityGroupIDs: []string{id},
			}, 1)
			if err != nil {
				t.Fatal(err)
			}
			b.fail(memory.DeleteSecurityGroup, forbidden)
			b.delete(klb)
			b.removed("web")
			b.mentions("Event", b.eventOn("web", "SecurityGroupLeft"), id, "deletes it once")
			b.eventually("the pod's port loses it", func() bool { return b.has(one, group) })
			if b.fence() == nil {
				t.Fatal("the group is gone")
			}
			b.fail("", nil)
			if err := b.cloud.Backend("other").DeletePort(t.Context(), theirs[0].ID); err != nil {
				t.Fatal(err)
			}
			b.eventually("the group goes then", func() bool { return len(b.cloud.SecurityGroups()) == 0 })
		})
	}
}

// TestGroupWithoutMark: somebody has removed a group's mark, so that no later comparison finds the
// group. It is reported as left over, and delays the Service by less than a minute.
func TestGroupWithoutMark(t *testing.T) {
	b := fenceBed(t)
	b.unhurried = true
	b.start()
	klb := b.fenced("web", b.bound(b.pod("one")))
	b.realised("web")
	id := b.fence().ID
	b.fail(memory.DeleteSecurityGroup, fmt.Errorf("deleting: it bears no mark: %w", sdn.ErrInvalid))
	b.delete(klb)
	b.removed("web")
	b.mentions("Event", b.eventOn("web", "SecurityGroupLeft"), id, "no mark", "Delete it there")
}

// TestGroupOfOthersHands: a change that somebody makes to a group is reverted and reported. A group
// that somebody deletes while no port has it is created again before a port is to have it.
func TestGroupOfOthersHands(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one := b.bound(b.pod("one"))
	b.fenced("web", one)
	b.realised("web")
	id, want := b.fence().ID, b.fence().Rules
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
	b.cloud.EditSecurityGroup(id, func(g *sdn.SecurityGroup) {
		g.Owner, g.Rules = sdn.Owner{}, []sdn.Rule{rule(8080, "0.0.0.0/0")}
	})
	b.mentions("Event", b.eventOn("web", "Drift"), "security group "+id)
	b.eventually("it is as it was", func() bool {
		g := b.fence()
		return g != nil && g.ID == id && g.Owner.Name == "web" && cmp.Equal(g.Rules, want)
	})
	b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = time.Hour })
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0].Members = nil })
	b.eventually("no port has it", func() bool { return b.has(one, group) })
	b.realised("web")
	if err := b.cloud.Backend("cluster").DeleteSecurityGroup(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.eventually("there is another", func() bool {
		g := b.fence()
		return g != nil && g.ID != id && b.klb("web").Status.SecurityGroupID == g.ID
	})
}

// tardy answers late after it has created a group.
type tardy struct {
	sdn.SecurityGroups
	wait func()
}

func (s tardy) EnsureSecurityGroup(ctx context.Context, owner sdn.Owner, want sdn.SecurityGroup) (sdn.SecurityGroup, error) {
	g, err := s.SecurityGroups.EnsureSecurityGroup(ctx, owner, want)
	s.wait()
	return g, err
}

// TestFenceInTheMaking: a group that no status names yet, as the cloud answers late, is not taken
// for an unnamed one.
func TestFenceInTheMaking(t *testing.T) {
	b := fenceBed(t)
	b.set(func(s *settings.Settings) { s.Orphans.Grace.Duration = time.Millisecond })
	b.guarding = func(inner sdn.SecurityGroups) sdn.SecurityGroups {
		return tardy{inner, func() {
			looks := b.cloud.Calls(memory.ListSecurityGroups)
			for end := time.Now().Add(time.Second); time.Now().Before(end) && b.cloud.Calls(memory.ListSecurityGroups) < looks+4; {
				time.Sleep(time.Millisecond)
			}
		}}
	}
	b.start()
	one := b.bound(b.pod("one"))
	b.fenced("web", one)
	b.realised("web")
	if n := b.cloud.Calls(memory.DeleteSecurityGroup); n > 0 || !b.has(one, group, b.fence().ID) {
		t.Errorf("%d groups were deleted, the port has %v", n, groupsOf(t, b, one.Name))
	}
}

// TestFencesOnTheirOwn: a Service whose group is created slowly, and an unnamed group that is
// deleted slowly, do not delay the ranges of other Services.
func TestFencesOnTheirOwn(t *testing.T) {
	b := fenceBed(t)
	b.set(func(s *settings.Settings) {
		s.Orphans.Interval.Duration, s.Orphans.Grace.Duration = 20*time.Millisecond, time.Millisecond
	})
	gate, deleting := make(chan struct{}), make(chan struct{})
	b.guarding = func(inner sdn.SecurityGroups) sdn.SecurityGroups {
		return stuckGroups{SecurityGroups: inner, owner: "slow", gate: gate, deleting: sync.OnceFunc(func() { close(deleting) })}
	}
	b.start()
	b.fenced("web", b.bound(b.pod("one")))
	b.realised("web")
	id := b.klb("web").Status.SecurityGroupID
	b.fenced("slow", b.bound(b.pod("two")))
	b.eventually("the slow one's is made", func() bool { return len(b.cloud.SecurityGroups()) == 2 })
	owner := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "gone"}
	if _, err := b.cloud.Backend("cluster").EnsureSecurityGroup(t.Context(), owner, sdn.SecurityGroup{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-deleting:
	case <-time.After(30 * time.Second):
		t.Error("nobody's group waits for that of a Service")
	}
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.SourceRanges = []string{"192.0.2.128/25"} })
	b.eventually("its rules follow", func() bool { return cmp.Equal(b.groupOf(id).Rules, []sdn.Rule{rule(8080, "192.0.2.128/25")}) })
	close(gate)
}

// stuckGroups blocks the calls that create one owner's groups, and those that delete other groups.
type stuckGroups struct {
	sdn.SecurityGroups
	owner    string
	gate     <-chan struct{}
	deleting func()
}

func (s stuckGroups) wait(ctx context.Context) error {
	select {
	case <-s.gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s stuckGroups) EnsureSecurityGroup(ctx context.Context, owner sdn.Owner, want sdn.SecurityGroup) (sdn.SecurityGroup, error) {
	g, err := s.SecurityGroups.EnsureSecurityGroup(ctx, owner, want)
	if owner.Name == s.owner {
		err = errors.Join(err, s.wait(ctx))
	}
	return g, err
}

func (s stuckGroups) DeleteSecurityGroup(ctx context.Context, id string) error {
	s.deleting()
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.SecurityGroups.DeleteSecurityGroup(ctx, id)
}

// groupOf returns a security group; the zero value if it does not exist.
func (b *bed) groupOf(id string) sdn.SecurityGroup {
	for _, g := range b.cloud.SecurityGroups() {
		if g.Group.ID == id {
			return g.Group
		}
	}
	return sdn.SecurityGroup{}
}

// TestGroupsWithoutServices: a group that is left from a time when Services were served is deleted
// also where none are served any more.
func TestGroupsWithoutServices(t *testing.T) {
	b := newWholeBed(t)
	b.set(func(s *settings.Settings) {
		s.Services.SubnetIDs = nil
		s.Orphans.Interval.Duration, s.Orphans.Grace.Duration = 100*time.Millisecond, time.Millisecond
	})
	owner := sdn.Owner{Kind: "kuryrloadbalancer", Namespace: "default", Name: "gone"}
	if _, err := b.cloud.Backend("cluster").EnsureSecurityGroup(t.Context(), owner, sdn.SecurityGroup{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	b.launch()
	b.eventually("it goes", func() bool { return len(b.cloud.SecurityGroups()) == 0 })
}

// TestNoGroupIsOnTheObject: the status says that a load balancer needs no group. The planner of
// ports finds it there after a restart too, while the cloud does not report the features of its
// providers.
func TestNoGroupIsOnTheObject(t *testing.T) {
	b := fenceBed(t)
	b.start()
	one := b.bound(b.pod("one"))
	b.fenced("web", one)
	b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Provider = "amphora" })
	b.realised("web")
	b.eventually("the status says that it needs none", func() bool {
		s := b.klb("web").Status
		return s.SecurityGroupState == v1.SecurityGroupNone && s.SecurityGroupID == ""
	})
	b.eventually("the port has its pool's alone", func() bool { return b.has(one, group) })
	b.stop()
	const left = "5f1c5aac-0000-4000-8000-0000000000e1"
	has := func() string {
		var port v1.KuryrPort
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(one), &port); err != nil {
			t.Fatal(err)
		}
		return port.Annotations[v1.MemberGroupsAnnotation]
	}
	if err := b.client.Patch(t.Context(), one, mergePatch(t, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1.MemberGroupsAnnotation: left}}})); err != nil {
		t.Fatal(err)
	}
	if has() != left {
		t.Fatalf("the port has %q", has())
	}
	release := b.block(memory.GetFeatures)
	defer release()
	b.start()
	b.eventually("the port does not keep what it had", func() bool { return has() == "" })
}
