// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"slices"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// Without a project to look in it is the credential's: an administrator is shown
// the ports of all.
func TestStraysOfTheCredentialsProject(t *testing.T) {
	cloud := openstacksim.Start(t)
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", cloud.CloudsFile(t))
	r := newReal(t)
	stray := func(project string) string {
		net, err := networks.Create(t.Context(), r.client, networks.CreateOpts{ProjectID: project}).Extract()
		must(t, err)
		p, err := ports.Create(t.Context(), r.client, ports.CreateOpts{
			NetworkID: net.ID, ProjectID: project, Name: sdn.FreePortName, DeviceOwner: "compute:kuryr",
		}).Extract()
		must(t, err)
		return p.ID
	}
	own, others := stray(""), stray(r.project)
	found, err := r.backend(t, "one").Strays(t.Context(), "")
	must(t, err)
	var ids []string
	for _, p := range found {
		ids = append(ids, p.ID)
	}
	if !slices.Equal(ids, []string{own}) {
		t.Errorf("Strays shows %q, want %s alone: %s is of another project", ids, own, others)
	}
}
