// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import "strings"

// fieldsOf names what of a Service, and of the configuration, the cloud may have meant
// when it refused something: it speaks of its own fields. text is the error.
func fieldsOf(text string) string {
	ours, cloud, _ := strings.Cut(text, " answered ")
	says := func(words string) bool { return strings.Contains(strings.ToLower(cloud), words) }
	switch {
	case strings.Contains(ours, "is none of the cloud's"), says("is not enabled"):
		return "the Service's annotation openstack.org/kuryr-provider, and services.provider in Kuryr's configuration"
	case says("flavor"):
		return "the Service's annotation loadbalancer.openstack.org/flavor-id, and services.flavorID in Kuryr's configuration"
	case says("availability"):
		return "the Service's annotation loadbalancer.openstack.org/availability-zone"
	case strings.Contains(ours, "floating IP"):
		return "the Service's annotations loadbalancer.openstack.org/floating-network-id and loadbalancer.openstack.org/floating-subnet-id, " +
			"and services.externalNetworkID and services.externalSubnetID in Kuryr's configuration"
	case says("subnet"):
		return "services.subnetIDs and services.nodeSubnetIDs in Kuryr's configuration, " +
			"and the Service's annotation loadbalancer.openstack.org/member-subnet-id"
	}
	return "the Service's annotations and services in Kuryr's configuration"
}
