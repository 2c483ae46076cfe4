// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// addressesIn is a cloud that only lists floating IPs, by project.
type addressesIn struct {
	sdn.FloatingIPs
	all map[string][]sdn.FloatingIP
}

func (a addressesIn) ListFloatingIPs(_ context.Context, project string) ([]sdn.FloatingIP, error) {
	return a.all[project], nil
}

// TestUsableAddresses: of the project where its load balancer is, a Service of another project may have
// its own floating IP alone.
func TestUsableAddresses(t *testing.T) {
	klb := &v1.KuryrLoadBalancer{}
	klb.Spec.ProjectID, klb.Status.LoadBalancers = "blue", []v1.LoadBalancerStatus{{ID: "lb", ProjectID: "red"}}
	klb.Status.PublicIP = &v1.PublicIPStatus{ID: "own"}
	cloud := addressesIn{all: map[string][]sdn.FloatingIP{"blue": {{ID: "blue-1"}}, "red": {{ID: "red-1"}, {ID: "own"}}}}
	v := &reconciliation{Reconciler: &Reconciler{Options: Options{Shards: kube.Alone{}, Cloud: Cloud{FloatingIPs: cloud}}}, klb: klb}
	var ids []string
	all, err := v.usable(t.Context())
	for _, f := range all {
		ids = append(ids, f.ID)
	}
	if err != nil || !slices.Equal(ids, []string{"blue-1", "own"}) {
		t.Errorf("usable are %q, %v; want that of the project, and the own one", ids, err)
	}
}
