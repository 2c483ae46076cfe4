// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// installed is the description of what kuryr preflight --make has made. It is no mark: what carries
// a mark is deleted when nothing in the cluster owns it.
func (b *Neutron) installed() string {
	return "made by kuryr preflight for cluster " + b.Config.ClusterID
}

// FindSetup implements sdn.Installer, with one request.
func (b *Neutron) FindSetup(ctx context.Context, s sdn.Setup) (string, error) {
	many, match := setupQuery(s)
	if s.Name != "" {
		match.Set("name", s.Name)
		match.Set("description", b.installed())
	}
	if s.Name != "" || s.Kind == sdn.SetupRouter { // others may write any name and description on things of their own
		project, err := b.ProjectOr(ctx, s.ProjectID)
		if err != nil {
			return "", err
		}
		if project != "" { // else the cloud shows no other project's
			match.Set("project_id", project)
		}
	}
	rows, err := session.ReadAll[resource](ctx, b.Client, session.Request{Path: []string{many}, Query: byID(match, []string{"id"}), Subject: noSuchPath}, nil)
	switch {
	case err != nil:
		return "", fmt.Errorf("looking for the %s %s: %w", s.Kind, s.Name, err)
	case len(rows) == 0:
		return "", fmt.Errorf("there is no such %s: %w", s.Kind, sdn.ErrNotFound)
	case len(rows) > 1 && s.Kind != sdn.SetupLeg && s.Kind != sdn.SetupRule:
		return "", fmt.Errorf("there are %d %ss %s, so it is unknown which one is meant: %w", len(rows), s.Kind, s.Name, sdn.ErrInvalid)
	}
	return rows[0].ID, nil
}

// setupQuery returns the list that has a thing, and what is particular of it.
func setupQuery(s sdn.Setup) (many string, match url.Values) {
	switch s.Kind {
	case sdn.SetupRouter:
		return "routers", url.Values{}
	case sdn.SetupNetwork:
		return "networks", url.Values{}
	case sdn.SetupSubnet:
		return "subnets", url.Values{"network_id": {s.NetworkID}, "ip_version": {version(s)}}
	case sdn.SetupLeg:
		return "ports", url.Values{"device_owner": routerOwners, "fixed_ips": {"subnet_id=" + s.SubnetID}}
	case sdn.SetupGroup:
		return "security-groups", url.Values{}
	case sdn.SetupRule:
		return "security-group-rules", url.Values{"security_group_id": {s.GroupID}, "remote_ip_prefix": {s.Prefix.String()}, "direction": {"ingress"}}
	}
	return "", nil
}

func version(s sdn.Setup) string {
	if s.Prefix.Addr().Is6() {
		return strconv.Itoa(6)
	}
	return strconv.Itoa(4)
}

// MakeSetup implements sdn.Installer.
func (b *Neutron) MakeSetup(ctx context.Context, s sdn.Setup) (string, error) {
	var out map[string]resource
	r := session.Request{Method: http.MethodPost, Out: &out}
	body := object{}
	if s.Name != "" {
		body["name"], body["description"] = s.Name, b.installed()
		if s.ProjectID != "" {
			body["project_id"] = s.ProjectID
		}
	}
	one := ""
	switch s.Kind {
	case sdn.SetupRouter:
		return "", fmt.Errorf("making a router: %w", sdn.ErrInvalid)
	case sdn.SetupLeg:
		err := b.changeLeg(ctx, s.RouterID, "add_router_interface", s.SubnetID, "")
		if err != nil {
			return "", fmt.Errorf("giving router %s an interface in subnet %s: %w", s.RouterID, s.SubnetID, err)
		}
		return "", nil
	case sdn.SetupNetwork:
		one, r.Path = "network", []string{"networks"}
	case sdn.SetupSubnet:
		one, r.Path = "subnet", []string{"subnets"}
		addSubnet(body, s)
	case sdn.SetupGroup:
		one, r.Path = "security_group", []string{"security-groups"}
	case sdn.SetupRule:
		one, r.Path = "security_group_rule", []string{"security-group-rules"}
		body["security_group_id"], body["direction"], body["remote_ip_prefix"] = s.GroupID, "ingress", s.Prefix.String()
		body["ethertype"] = "IPv" + version(s)
	}
	r.Body = object{one: body}
	if err := b.Do(ctx, r); err != nil {
		return "", fmt.Errorf("making the %s %s: %w", s.Kind, s.Name, err)
	}
	return out[one].ID, nil
}

// addSubnet adds what a subnet has to the body of a request. Nodes address pods, so it has no DHCP.
func addSubnet(body object, s sdn.Setup) {
	body["network_id"], body["cidr"], body["enable_dhcp"] = s.NetworkID, s.Prefix.String(), false
	body["ip_version"] = 4
	if s.Prefix.Addr().Is6() {
		body["ip_version"] = 6
	}
	if s.Gateway.IsValid() {
		body["gateway_ip"] = s.Gateway.String()
	}
	if s.Pool.First.IsValid() {
		body["allocation_pools"] = []object{{"start": s.Pool.First.String(), "end": s.Pool.Last.String()}}
	}
}
