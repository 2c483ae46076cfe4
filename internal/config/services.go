// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"regexp"
	"time"
)

// providerForm is what Octavia takes as the name of a provider.
var providerForm = regexp.MustCompile(`^[0-9A-Za-z._-]{1,255}$`)

// maxAllowed is how many of a kind annotations may name.
const maxAllowed = 1000

func checkServices(s *Services, d *decoder) {
	d.project("services.projectID", s.ProjectID)
	d.ids("services.subnetIDs", s.SubnetIDs, "subnet", maxAddresses)
	d.ids("services.nodeSubnetIDs", s.NodeSubnetIDs, "subnet", maxAddresses)
	if s.Provider != "" && !providerForm.MatchString(s.Provider) {
		d.fault("services.provider", noProvider+", or leave it out for the cloud's default", s.Provider)
	}
	for _, f := range []struct {
		path string
		id   *string
		kind string
	}{
		{"services.flavorID", &s.FlavorID, "loadbalancer flavor"},
		{"services.externalNetworkID", &s.ExternalNetworkID, "network"},
		{"services.externalSubnetID", &s.ExternalSubnetID, "subnet"},
	} {
		if *f.id != "" {
			d.uuid(f.path, f.id, f.kind)
		}
	}
	if s.ExternalSubnetID != "" && s.ExternalNetworkID == "" {
		d.fault("services.externalNetworkID", "missing: write the ID of the network that externalSubnetID is of")
	}
	checkAllowed(s.Allowed, d)
	d.between("services.checkInterval", s.CheckInterval, 10*time.Second, 24*time.Hour)
	if s.ReleaseAfter.Duration != 0 {
		d.between("services.releaseAfter", s.ReleaseAfter, time.Minute, 24*time.Hour)
	}
}

const noProvider = "%q is no name of a provider: write one that 'openstack loadbalancer provider list' prints"

func checkAllowed(a Allowed, d *decoder) {
	const path = "services.allowed."
	d.ids(path+"memberSubnetIDs", a.MemberSubnetIDs, "subnet", maxAllowed)
	d.ids(path+"externalNetworkIDs", a.ExternalNetworkIDs, "network", maxAllowed)
	d.ids(path+"externalSubnetIDs", a.ExternalSubnetIDs, "subnet", maxAllowed)
	d.ids(path+"flavorIDs", a.FlavorIDs, "loadbalancer flavor", maxAllowed)
	if len(a.Providers) > maxAllowed {
		d.fault(path+"providers", "want at most %d, got %d", maxAllowed, len(a.Providers))
	}
	for i, p := range a.Providers {
		if !providerForm.MatchString(p) {
			d.fault(fmt.Sprintf("%sproviders[%d]", path, i), noProvider, p)
		}
	}
}

func (d *decoder) project(path, id string) {
	if id != "" && !projectForm.MatchString(id) {
		d.fault(path, "%q is no ID of a project: write what 'openstack project show -c id NAME' prints", id)
	}
}
