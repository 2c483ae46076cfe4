// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"context"
	"slices"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// quotas is a cloud in which project "full" has used up its quota of ports. It notes which projects
// were asked about.
type quotas struct{ asked []string }

func (q *quotas) Room(_ context.Context, projectID string, _ []string) (sdn.Room, error) {
	q.asked = append(q.asked, projectID)
	used := 3
	if projectID == "full" {
		used = 10
	}
	return sdn.Room{Ports: &sdn.Usage{Used: used, Limit: 10}}, nil
}

// TestQuotasOfProjectsAreApart: a refusal in one project has the cloud asked about that project, and
// keeps no other project's pools from ports, in the same network either.
func TestQuotasOfProjectsAreApart(t *testing.T) {
	cloud := &quotas{}
	o := options(nil)
	o.Capacity = cloud
	c := newCapacity(o)
	full := &v1.PoolKey{ProjectID: "full", NodeName: "n", SubnetIDs: []string{"s"}}
	free := &v1.PoolKey{ProjectID: "free", NodeName: "n", SubnetIDs: []string{"s"}}
	if n := c.admit(full, 2); n != 2 {
		t.Fatalf("admitted %d of 2 ports before the cloud has said anything", n)
	}
	_, _ = c.ended(t.Context(), full, 2, 0, sdn.ErrProjectQuota)
	if s := c.standing(full); s.Full == nil || s.Full.Scope.ID != "full" {
		t.Errorf("after the refusal the standing of project full is %+v, want its quota full", s)
	}
	if n := c.admit(full, 2); n != 0 {
		t.Errorf("admitted %d ports of project full", n)
	}
	if s := c.standing(free); s.Full != nil || s.Scarce != nil {
		t.Errorf("the standing of project free is %+v, want room", s)
	}
	if n := c.refill(t.Context(), free, c.admit(free, 3), 0, 1); n != 3 {
		t.Errorf("admitted %d of 3 ports of project free", n)
	}
	if !slices.Equal(cloud.asked, []string{"full", "free"}) {
		t.Errorf("the cloud was asked about %v, want each project once", cloud.asked)
	}
}
