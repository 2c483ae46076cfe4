// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

// portKinds are the kinds of resources around ports, and what is known of them
// beside their rows.
type portKinds struct {
	ports         *kind[port]
	groups        *kind[securityGroup]
	rules         *kind[rule]
	addressGroups *kind[addressGroup]
	trunks        *kind[trunk]

	subnetAddresses map[string]*subnetAddresses // by subnet
	macs            map[macKey]struct{}         // in use
	defaults        map[string][]string         // by project: its default group
	subportOf       map[string]string           // by port: its trunk
	attributes      int                         // how many have standard attributes

	// portGone takes off a port what points to it before it goes; nil: nothing.
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
