// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// canonical writes IDs as the cloud writes them: it takes them in capitals, too, and
// answers in small letters. What was asked for would never be what there is.
func canonical(c *Config) {
	c.Pods.MoreSubnetIDs = lower(c.Pods.MoreSubnetIDs)
	lists := [][]string{c.Pods.SubnetIDs, c.Pods.SecurityGroupIDs, c.Services.SubnetIDs, c.Services.NodeSubnetIDs}
	a := &c.Services.Allowed
	lists = append(lists, a.MemberSubnetIDs, a.ExternalNetworkIDs, a.ExternalSubnetIDs, a.FlavorIDs)
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

// lower is m in small letters.
func lower(m map[string][]string) map[string][]string {
	if m == nil {
		return nil
	}
	out := map[string][]string{}
	for first, more := range m {
		for _, id := range more {
			out[strings.ToLower(first)] = append(out[strings.ToLower(first)], strings.ToLower(id))
		}
	}
	return out
}
