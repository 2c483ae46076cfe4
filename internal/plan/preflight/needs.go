// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"errors"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// What a check needs to have been read. Without it a check that found nothing has checked nothing.

func needSubnets(f *Facts) error { return f.Networks.Subnets.Err }

func needNetworks(f *Facts) error {
	return cmp.Or(f.Networks.Subnets.Err, f.Networks.Networks.Err)
}

func needRouters(f *Facts) error {
	if !f.routed() {
		return nil
	}
	return f.Networks.Routers.Err // it is the error of subnets and interfaces, too, if these were not read
}

func needRanges(f *Facts) error {
	err := f.Cluster.ServiceCIDRs.Err
	if !f.serves() || errors.Is(err, sdn.ErrNotFound) {
		return nil
	}
	return cmp.Or(f.Networks.Subnets.Err, err)
}

func needAddresses(f *Facts) error {
	return cmp.Or(needRanges(f), needNetworks(f), f.Cluster.Nodes.Err)
}

func needProviders(f *Facts) error {
	if !f.serves() || f.Config.Provider == "" || errors.Is(f.Balancing.Providers.Err, sdn.ErrNoService) {
		return nil
	}
	return f.Balancing.Providers.Err
}

// needPort is for what the ports of routers show.
func needPort(f *Facts) error {
	if f.Networks.RouterInterfaces.Err != nil {
		return f.Networks.RouterInterfaces.Err
	}
	if n, _ := f.network(f.Config.PodSubnetIDs()); n.Type != "" {
		return nil // the credential is an administrator's
	}
	if f.Networks.BindsShown == nil && f.routed() {
		if err := f.Networks.Networks.Err; err != nil {
			return err
		}
		return errors.New("Neutron shows no port of a router; connect the pods' subnet to a router, then run again")
	}
	return nil
}

func needNothing(*Facts) error { return nil }
