// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// The configuration chooses what serves load balancers: here Neutron itself does, and
// there is no Octavia.
func TestLoadBalancerAPI(t *testing.T) {
	cloud := openstacksim.Start(t, func(o *openstacksim.Options) { o.LBaaSv2 = true })
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	for api, want := range map[string]error{"octavia": sdn.ErrNoService, "lbaasv2": nil} {
		c, err := config.Parse([]byte("apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\nclusterID: one\n" +
			"neutron: {loadBalancerAPI: " + api + "}\npods: {subnetIDs: [7d9e8c56-5f5f-4b8e-9a52-9d4a5c0f1e11]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		backend, err := newBackend(t.Context(), nil, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := backend.Features(t.Context(), ""); !errors.Is(err, want) {
			t.Errorf("%s: asked what load balancers can do: %v, want %v", api, err, want)
		}
	}
}
