// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

// portKinds holds the kinds of resources around ports, and their state outside of the rows.
type portKinds struct {
	ports         *kind[port]
	groups        *kind[securityGroup]
	rules         *kind[rule]
	addressGroups *kind[addressGroup]
	trunks        *kind[trunk]

	subnetAddresses map[string]*subnetAddresses // by subnet
	macs            map[macKey]struct{}         // in use
	defaults        map[string][]string         // project → its default group
	subportOf       map[string]string           // port → its trunk
	attributes      int                         // number of resources with standard attributes

	// portGone removes references to a port before the port is deleted; nil: it does nothing.
	portGone func(c *call, p *port)
}

func (s *Service) registerPorts() {
	s.subnetAddresses, s.macs = map[string]*subnetAddresses{}, map[macKey]struct{}{}
	s.defaults, s.subportOf = map[string][]string{}, map[string]string{}
	s.registerPort()
	s.registerGroups()
	s.registerAddressGroups()
	s.registerTrunks()
}
