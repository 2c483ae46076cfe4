// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func (f services) group(rules ...sdn.Rule) sdn.SecurityGroup {
	return sdn.SecurityGroup{Name: "default/" + f.owner.Name, ProjectID: f.ProjectID, Rules: rules}
}

// ensured makes a group twice, and checks the returned and the listed group.
func (f services) ensured(want sdn.SecurityGroup) sdn.SecurityGroup {
	f.t.Helper()
	var got sdn.SecurityGroup
	for range 2 {
		var err error
		got, err = f.Backend.EnsureSecurityGroup(f.ctx(), f.owner, want)
		if err != nil {
			f.t.Fatalf("EnsureSecurityGroup(%+v): %v", want, err)
		}
	}
	f.groupGoes(f.Backend, got.ID)
	rules, err := sdn.CanonicalRules(want.Rules)
	if diff := cmp.Diff(rules, got.Rules); diff != "" || err != nil || got.Owner != f.owner || got.Name != want.Name || got.ID == "" {
		f.t.Errorf("EnsureSecurityGroup = %+v, %v; (-want +got)\n%s", got, err, diff)
	}
	if let := f.Cloud.LetIn(f.t, got.ID); !cmp.Equal(rules, let) {
		f.t.Errorf("the cloud's group has %+v, want %+v and nothing else", let, rules)
	}
	if mine := f.myGroups(f.Backend); len(mine) != 1 || mine[0] != got.ID {
		f.t.Errorf("ListSecurityGroups shows %v of the owner, want %s alone", mine, got.ID)
	}
	return got
}

func (f services) groupGoes(b Services, id string) {
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), callTimeout)
		defer cancel()
		if err := f.settled(func() error { return b.DeleteSecurityGroup(ctx, id) }); err != nil {
			f.t.Errorf("DeleteSecurityGroup(%s) after the test: %v", id, err)
		}
	})
}

// myGroups returns the IDs of this case's owner's groups among those that b lists.
func (f services) myGroups(b Services) (ids []string) {
	f.t.Helper()
	all, err := b.ListSecurityGroups(f.ctx())
	if err != nil {
		f.t.Fatalf("ListSecurityGroups: %v", err)
	}
	for _, g := range all {
		if g.Owner == f.owner {
			ids = append(ids, g.ID)
		}
	}
	return ids
}

func groupHoldsItsRules(t *testing.T, f services) {
	web := sdn.Rule{Protocol: "TCP", From: 80, To: 80, Remote: "10.0.0.0/8"}
	many := []sdn.Rule{
		web, {Protocol: "UDP", From: 1, To: 65535, Remote: "0.0.0.0/0"}, {Protocol: "SCTP", From: 7, To: 9, Remote: "fd00::/64"},
		{Protocol: "TCP", From: 80, To: 80, Remote: "10.1.2.3/8"}, {Protocol: "TCP", From: 443, To: 443, Remote: "::/0"},
	}
	first := f.ensured(f.group())
	for _, rules := range [][]sdn.Rule{{web}, many, many[1:3], {web}, nil} {
		if again := f.ensured(f.group(rules...)); again.ID != first.ID {
			t.Errorf("EnsureSecurityGroup has made another group: %s, want %s", again.ID, first.ID)
		}
	}
	if _, err := f.Fresh(t).EnsureSecurityGroup(f.ctx(), f.owner, f.group(web)); err != nil {
		t.Errorf("EnsureSecurityGroup of a process that has just begun: %v", err)
	}
	if mine := f.myGroups(f.Backend); len(mine) != 1 {
		t.Errorf("%d groups are the owner's, want 1", len(mine))
	}
	for what, bad := range map[string]sdn.Rule{
		"a prefix": {Protocol: "TCP", From: 1, To: 1, Remote: "nonsense"}, "a protocol": {Protocol: "GRE", From: 1, To: 1, Remote: "::/0"},
		"ports": {Protocol: "TCP", From: 2, To: 1, Remote: "::/0"},
	} {
		if _, err := f.Backend.EnsureSecurityGroup(f.ctx(), f.owner, f.group(bad)); !errors.Is(err, sdn.ErrInvalid) {
			t.Errorf("EnsureSecurityGroup with what is no %s: %v, want ErrInvalid", what, err)
		}
	}
}

func groupOfOthers(t *testing.T, f services) {
	web := sdn.Rule{Protocol: "TCP", From: 80, To: 80, Remote: "10.0.0.0/8"}
	theirs, err := f.Other.EnsureSecurityGroup(f.ctx(), f.owner, f.group(web))
	if err != nil {
		t.Fatalf("EnsureSecurityGroup of the other cluster: %v", err)
	}
	f.groupGoes(f.Other, theirs.ID)
	if mine := f.ensured(f.group()); mine.ID == theirs.ID {
		t.Error("EnsureSecurityGroup has taken another cluster's")
	}
	for _, id := range []string{theirs.ID, MissingID} {
		if err := f.Backend.DeleteSecurityGroup(f.ctx(), id); err != nil {
			t.Errorf("DeleteSecurityGroup of another cluster's, and of none: %v", err)
		}
	}
	if got := f.myGroups(f.Other); len(got) != 1 {
		t.Errorf("the other cluster's groups are %v, want its own left there", got)
	}
}

func groupInUse(t *testing.T, f services) {
	g := f.ensured(f.group())
	ports, err := f.Backend.CreatePorts(f.ctx(), f.owner, sdn.PortRequest{
		ProjectID: f.ProjectID, SubnetIDs: []string{f.Subnet.ID}, SecurityGroupIDs: []string{g.ID},
	}, 1)
	if err != nil {
		t.Fatalf("CreatePorts with the group: %v", err)
	}
	var pending *sdn.PendingError
	if err := f.Backend.DeleteSecurityGroup(f.ctx(), g.ID); !errors.As(err, &pending) || pending.Retry <= 0 {
		t.Errorf("DeleteSecurityGroup of what a port has: %v, want a PendingError", err)
	}
	if err := f.Backend.DeletePort(f.ctx(), ports[0].ID); err != nil {
		t.Fatalf("DeletePort: %v", err)
	}
	for range 2 {
		if err := f.Backend.DeleteSecurityGroup(f.ctx(), g.ID); err != nil {
			t.Errorf("DeleteSecurityGroup: %v", err)
		}
	}
	if got := f.myGroups(f.Backend); len(got) != 0 {
		t.Errorf("ListSecurityGroups shows %v after they are deleted", got)
	}
}

func groupAnswerIsLost(t *testing.T, f services) {
	if !f.Cloud.LoseAnswer(t) {
		t.Skip("this cloud loses no answers")
	}
	web := sdn.Rule{Protocol: "TCP", From: 80, To: 80, Remote: "10.0.0.0/8"}
	if _, err := f.Backend.EnsureSecurityGroup(f.ctx(), f.owner, f.group(web)); !errors.Is(err, sdn.ErrUnavailable) {
		t.Errorf("EnsureSecurityGroup with its answer lost: %v, want ErrUnavailable", err)
	}
	f.ensured(f.group(web))
}
