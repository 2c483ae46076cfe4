// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// canonical writes IDs as the cloud writes them. The cloud accepts capitals and answers in small
// letters, so a comparison with capitals would always fail.
func canonical(c *Config) {
	c.Pods.MoreSubnetIDs = lower(c.Pods.MoreSubnetIDs)
	lists := [][]string{c.Pods.SubnetIDs, c.Pods.SecurityGroupIDs, c.Services.SubnetIDs, c.Services.NodeSubnetIDs}
	a := &c.Services.Allowed
	lists = append(lists, a.MemberSubnetIDs, a.ExternalNetworkIDs, a.ExternalSubnetIDs, a.FlavorIDs)
	for _, rule := range c.Pods.SecurityGroups {
		lists = append(lists, rule.SecurityGroupIDs)
	}
	for _, n := range c.Nodes {
		lists = append(lists, n.ParentSubnetIDs, n.SubnetIDs)
	}
	lists = append(lists, c.Networks.SubnetPoolIDs)
	for _, n := range c.Networks.Namespaces {
		lists = append(lists, n.SubnetPoolIDs)
	}
	for _, g := range c.Networks.Given {
		lists = append(lists, g.SubnetIDs)
	}
	for _, p := range c.Projects {
		lists = append(lists, p.SecurityGroupIDs, p.SubnetPoolIDs)
	}
	for _, ids := range lists {
		for i := range ids {
			ids[i] = strings.ToLower(ids[i])
		}
	}
	for _, id := range single(c) {
		*id = strings.ToLower(*id)
	}
}

// single returns the fields that hold one ID of the cloud each. IDs of projects are not among them:
// Keystone takes them as they are.
func single(c *Config) []*string {
	s := &c.Services
	ids := []*string{&c.Pods.NetworkID, &s.FlavorID, &s.ExternalNetworkID, &s.ExternalSubnetID, &c.Networks.RouterID}
	for i := range c.Nodes {
		ids = append(ids, &c.Nodes[i].NetworkID)
	}
	for i := range c.Networks.Namespaces {
		ids = append(ids, &c.Networks.Namespaces[i].RouterID)
	}
	for i := range c.Networks.Given {
		ids = append(ids, &c.Networks.Given[i].NetworkID)
	}
	for _, r := range routers(c) {
		ids = append(ids, &r.ExternalNetworkID)
	}
	for i := range c.Projects {
		ids = append(ids, &c.Projects[i].RouterID, &c.Projects[i].ExternalNetworkID)
	}
	return ids
}

// routers returns the routers that Kuryr makes.
func routers(c *Config) (all []*Router) {
	add := func(r *Router) {
		if r != nil {
			all = append(all, r)
		}
	}
	add(c.Networks.Router)
	for i := range c.Networks.Namespaces {
		add(c.Networks.Namespaces[i].Router)
	}
	for i := range c.Projects {
		add(c.Projects[i].Router)
	}
	return all
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
