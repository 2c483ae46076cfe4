// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// canonical writes IDs as the cloud writes them: it takes them in capitals, too, and
// answers in small letters. What was asked for would never be what there is.
func canonical(c *Config) {
	lists := [][]string{c.Pods.SubnetIDs, c.Pods.SecurityGroupIDs, c.Services.SubnetIDs, c.Services.NodeSubnetIDs}
	for _, rule := range c.Pods.SecurityGroups {
		lists = append(lists, rule.SecurityGroupIDs)
	}
	for _, n := range c.Nodes {
		lists = append(lists, n.ParentSubnetIDs)
	}
	for _, ids := range lists {
		for i := range ids {
			ids[i] = strings.ToLower(ids[i])
		}
	}
	s := &c.Services
	for _, id := range []*string{&c.Pods.NetworkID, &s.FlavorID, &s.ExternalNetworkID, &s.ExternalSubnetID} {
		*id = strings.ToLower(*id)
	}
}
