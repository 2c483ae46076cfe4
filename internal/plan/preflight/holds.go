// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Concern says whom a finding concerns.
type Concern string

const (
	AllPods     Concern = "all pods"
	AllServices Concern = "all Services" // all that the cluster has, or all public ones
	// Part is a single project, namespace, node or Service, some pods, or nothing that there is: the
	// rest of the cluster is not to wait for it.
	Part Concern = "a part"
)

// Holds reports whether a first start is to wait until a finding is mended: it is an error about
// what all pods or all Services need, or nothing of the cloud could be checked.
func Holds(f Finding) bool {
	return f.Name == CloudUnavailable || f.Severity == Error && f.Concerns != Part && slices.Contains(Holding(), f.Name)
}

// Holding returns the names of the findings that may hold a first start.
func Holding() []string {
	names := []string{CloudUnavailable}
	for _, c := range checks {
		if c.Concerns != Part {
			names = append(names, c.Name)
		}
	}
	return names
}

// of returns the kind for findings that concern only these, unless the kind concerns a part at most.
func (k Kind) of(whom Concern) Kind {
	if k.Concerns != Part {
		k.Concerns = whom
	}
	return k
}

// whom returns whom it concerns that these subnets do not work.
func (f *Facts) whom(broken []string) Concern {
	if slices.ContainsFunc(broken, f.first) {
		return AllPods
	}
	if slices.ContainsFunc(f.Config.ServiceSubnetIDs, func(id string) bool { return slices.Contains(broken, id) }) {
		return f.whomOfServices(broken)
	}
	return Part
}

// first reports whether pods get addresses of a subnet. They get some of the others of an entry only
// once its first one is full.
func (f *Facts) first(subnetID string) bool {
	return slices.ContainsFunc(f.Config.PodSubnets, func(entry []string) bool { return entry[0] == subnetID })
}

// whomOfServices returns whom it concerns that these subnets of cluster IPs do not work: all pods need
// DNS, and another Service works if it has a cluster IP in another subnet.
func (f *Facts) whomOfServices(broken []string) Concern {
	work := slices.DeleteFunc(f.subnets(f.Config.ServiceSubnetIDs), func(s sdn.SurveyedSubnet) bool { return slices.Contains(broken, s.ID) })
	whom := AllServices
	for _, s := range f.Cluster.Services.Value {
		if s.in(work) {
			whom = Part
		} else if s.DNS {
			return AllPods
		}
	}
	return whom
}

// in reports whether a Service has a cluster IP in one of these subnets.
func (s *Service) in(subnets []sdn.SurveyedSubnet) bool {
	return slices.ContainsFunc(s.ClusterIPs, func(ip netip.Addr) bool { return within(subnets, netip.PrefixFrom(ip, ip.BitLen())) })
}
