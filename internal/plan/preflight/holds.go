// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import "slices"

// holding are the kinds of errors about what all pods, or all Services, need. Other errors are of
// single nodes, Services, namespaces or projects: the rest of the cluster is not to wait for these.
var holding = []string{
	PublicNetworkMissing, "PublicSubnetMissing", "PodSubnetMissing", "PodNetworkMismatch", "ServiceSubnetMissing", "NetworkDown",
	"PodSubnetNotRouted", "ServiceSubnetNotRouted", "RouterDown", "RouterWithoutGateway", "ServiceRouteMissing", "ServiceRangeOutside",
	"DNSOutside", "SecurityGroupMissing", "LoadBalancingMissing", "ProviderMissing", "ExtensionMissing",
}

// Holding returns the names of the findings that hold a first start.
func Holding() []string { return append([]string{CloudUnavailable}, holding...) }

// Holds reports whether a first start is to wait until a finding is mended: it is an error about
// what all pods or all Services need, or nothing of the cloud could be checked.
func Holds(f Finding) bool {
	return f.Name == CloudUnavailable || f.Severity == Error && slices.Contains(holding, f.Name)
}
