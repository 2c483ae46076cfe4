// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Whom findings of a kind concern at most: see Finding.Part.
const all, part = false, true

// Holds reports whether a first start is to wait until a finding is mended: it is an error about
// what all pods or all Services need, or nothing of the cloud could be checked.
func Holds(f Finding) bool {
	return f.Name == CloudUnavailable || f.Severity == Error && !f.Part && slices.Contains(Holding(), f.Name)
}

// Holding returns the names of the findings that may hold a first start.
func Holding() []string {
	names := []string{CloudUnavailable}
	for _, c := range checks {
		if !c.Part {
			names = append(names, c.Name)
		}
	}
	return names
}

// ifAll returns the kind for findings that concern as many as the kind says only if all is true.
func (k Kind) ifAll(all bool) Kind {
	k.Part = k.Part || !all
	return k
}

// all reports whether it concerns all pods or all Services that some subnets are broken. Pods get
// addresses of the first subnet of each entry until it is full. All pods need the cluster's DNS.
// Another Service works if it has a cluster IP in another subnet.
func (f *Facts) all(broken func(subnetID string) bool) bool {
	if slices.ContainsFunc(f.Config.PodSubnets, func(entry []string) bool { return broken(entry[0]) }) {
		return true
	}
	work := f.subnets(slices.DeleteFunc(slices.Clone(f.Config.ServiceSubnetIDs), broken))
	works := func(s Service) bool { return s.in(work) }
	return slices.ContainsFunc(f.Config.ServiceSubnetIDs, broken) && (!slices.ContainsFunc(f.Cluster.Services.Value, works) ||
		slices.ContainsFunc(f.Cluster.Services.Value, func(s Service) bool { return s.DNS && !works(s) }))
}

// in reports whether a Service has a cluster IP in one of these subnets.
func (s Service) in(subnets []sdn.SurveyedSubnet) bool {
	return slices.ContainsFunc(s.ClusterIPs, func(ip netip.Addr) bool { return within(subnets, netip.PrefixFrom(ip, ip.BitLen())) })
}
