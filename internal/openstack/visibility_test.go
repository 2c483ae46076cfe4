// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
)

// A credential that has lost its role, or is for another project, is told of no port:
// that is no word about the ports.
func TestLessShownIsNotGone(t *testing.T) {
	s := newOnSim(t)
	p := s.create(t, s.target.Backend, s.request("", ""), 1)[0]
	member, err := openstack.New(t.Context(), openstack.Config{ClusterID: "one", Cloud: "tenant"})
	must(t, err)
	if _, err := member.Port(t.Context(), p.ID); !errors.Is(err, sdn.ErrNotFound) {
		t.Fatalf("Port as another project's member: %v; this test is about ErrNotFound", err)
	}
	err = member.Sees(t.Context(), p.ProjectID, p.NetworkID)
	if !errors.Is(err, sdn.ErrForbidden) || !strings.Contains(err.Error(), p.ProjectID) {
		t.Errorf("Sees as another project's member: %v, want ErrForbidden that names the project", err)
	}
	own, err := member.Neutron.Project(t.Context())
	must(t, err)
	for _, c := range []struct {
		as      *openstack.Backend
		project string
		network string
		asks    map[string]int
	}{
		{member, own, "", map[string]int{}},
		{s.target.Fresh(t).(*openstack.Backend), p.ProjectID, p.NetworkID, map[string]int{"GET ports": 1, "GET networks/{id}": 1}},
		// A project that does not exist, as an administrator asks who sees all.
		{s.target.Fresh(t).(*openstack.Backend), sdntest.MissingID, p.NetworkID, map[string]int{"GET ports": 1, "GET quotas/{id}": 1, "GET networks/{id}": 1}},
		{s.target.Fresh(t).(*openstack.Backend), sdntest.MissingID, "", map[string]int{"GET ports": 1, "GET quotas/{id}": 1}},
	} {
		s.asked()
		for range 3 { // as of many ports at once
			if err := c.as.Sees(t.Context(), c.project, c.network); err != nil {
				t.Errorf("Sees(%s, %s): %v", c.project, c.network, err)
			}
		}
		if diff := cmp.Diff(c.asks, s.asked()); diff != "" {
			t.Errorf("requests of Sees(%s, %s): (-want +got)\n%s", c.project, c.network, diff)
		}
	}
	// The own project in another region: the network is not there.
	if err := member.Sees(t.Context(), own, sdntest.MissingID); !errors.Is(err, sdn.ErrForbidden) {
		t.Errorf("Sees of a network that is not shown: %v, want ErrForbidden", err)
	}
}
