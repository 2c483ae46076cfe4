// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"slices"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// inAnotherProject checks that each resource is made in the project of its request, and that the
// lists show what a cluster has in all projects.
func inAnotherProject(t *testing.T, f services) {
	if f.Second == "" {
		t.Skip("this credential can use one project only")
	}
	want := f.wanted(f.listener("TCP", 80, 1))
	want.ProjectID = f.Second
	if lb := f.balancer(want); lb.ProjectID != f.Second {
		t.Errorf("CreateLoadBalancer in project %s: it is in %q", f.Second, lb.ProjectID)
	}
	for _, b := range []Services{f.Backend, f.Fresh(t)} {
		found := 0
		for _, lb := range f.listed(b) {
			if lb.Owner == f.owner && lb.ProjectID == f.Second {
				found++
			}
		}
		if found != 1 {
			t.Errorf("ListLoadBalancers shows %d of the owner in project %s, want one", found, f.Second)
		}
	}
	group := f.group(sdn.Rule{Protocol: "TCP", From: 80, To: 80, Remote: "10.0.0.0/8"})
	group.ProjectID = f.Second
	made := f.ensured(group)
	all, err := f.Backend.ListSecurityGroups(f.ctx())
	if err != nil || !slices.ContainsFunc(all, func(g sdn.SecurityGroup) bool { return g.ID == made.ID && g.ProjectID == f.Second }) {
		t.Errorf("ListSecurityGroups = %+v, %v; want group %s in project %s", all, err, made.ID, f.Second)
	}
	group.ProjectID = f.ProjectID // a mark counts in the project that is meant
	own, err := f.Backend.EnsureSecurityGroup(f.ctx(), f.owner, group)
	f.groupGoes(f.Backend, own.ID)
	if err != nil || own.ID == made.ID {
		t.Errorf("EnsureSecurityGroup in project %q = group %s, %v; want another one than %s of project %s, which has the same owner and name", f.ProjectID, own.ID, err, made.ID, f.Second)
	}
	f.floatingIPInAnotherProject(want)
}

// floatingIPInAnotherProject takes the mark off a floating IP, which shows whose it is then.
func (f services) floatingIPInAnotherProject(lb sdn.LoadBalancer) {
	t := f.t
	t.Helper()
	port := ""
	for _, have := range f.listed(f.Backend) {
		if have.Owner == f.owner {
			port = have.VIPPortID
		}
	}
	r := f.floatingRequest(port)
	r.ProjectID = lb.ProjectID
	made := f.floatingIP(r)
	lists := func(project string) bool {
		all, err := f.Backend.ListFloatingIPs(f.ctx(), project)
		if err != nil {
			t.Fatalf("ListFloatingIPs of project %s: %v", project, err)
		}
		return slices.ContainsFunc(all, func(one sdn.FloatingIP) bool { return one.ID == made.ID && one.ProjectID == f.Second })
	}
	if one, two := lists(f.ProjectID), lists(f.Second); !one || !two {
		t.Errorf("ListFloatingIPs shows a floating IP of the cluster for its own project: %t, for another one: %t; want both", two, one)
	}
	if err := f.Backend.DisownFloatingIP(f.ctx(), made.ID); err != nil {
		t.Fatalf("DisownFloatingIP: %v", err)
	}
	if one, two := lists(f.ProjectID), lists(f.Second); one || !two {
		t.Errorf("ListFloatingIPs shows one without a mark for its own project: %t, for another one: %t; want the first only", two, one)
	}
}

// quotaOfOneProject checks that the quota of one project does not count what is in another.
func quotaOfOneProject(t *testing.T, f services) {
	if f.Second == "" || !f.Cloud.LimitLoadBalancers(t, 1) {
		t.Skip("this credential can use one project only, or this cloud's quota of load balancers cannot be changed")
	}
	f.balancer(f.wanted())
	other := f.wanted()
	other.ProjectID = f.Second
	f.balancer(other)
	if _, err := f.tryBalancer(f.wanted()); !errors.Is(err, sdn.ErrQuota) {
		t.Errorf("CreateLoadBalancer in the full project: %v, want ErrQuota", err)
	}
}
