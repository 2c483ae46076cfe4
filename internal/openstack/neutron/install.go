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
	k, match := setupKind(s)
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
	rows, err := session.ReadAll[resource](ctx, b.Client, session.Request{Path: []string{k.many}, Query: byID(match, []string{"id"}), Subject: noSuchPath}, nil)
	switch {
	case err != nil:
		return "", fmt.Errorf("looking for the %s %s: %w", s.Kind, s.Name, err)
	case len(rows) == 0:
		return "", fmt.Errorf("there is no such %s: %w", s.Kind, sdn.ErrNotFound)
	case len(rows) > 1 && s.Kind != sdn.SetupRouterInterface && s.Kind != sdn.SetupRule:
		return "", fmt.Errorf("there are %d %ss %s, so it is unknown which one is meant: %w", len(rows), s.Kind, s.Name, sdn.ErrInvalid)
	}
	return rows[0].ID, nil
}

// setupKind returns the kind of a thing, and what is particular of it in a list of that kind.
func setupKind(s sdn.Setup) (k kind, match url.Values) {
	switch match = (url.Values{}); s.Kind {
	case sdn.SetupRouter:
		k = routerKind
	case sdn.SetupNetwork:
		k = networkKind
	case sdn.SetupSubnet:
		k, match = subnetKind, url.Values{"network_id": {s.NetworkID}, "ip_version": {strconv.Itoa(version(s))}}
	case sdn.SetupRouterInterface:
		k, match = portKind, url.Values{"device_owner": routerOwners, "fixed_ips": {"subnet_id=" + s.SubnetID}}
	case sdn.SetupGroup:
		k = groupKind
	case sdn.SetupRule:
		k, match = ruleKind, url.Values{"security_group_id": {s.GroupID}, "remote_ip_prefix": {s.Prefix.String()}, "direction": {"ingress"}}
	}
	return k, match
}

func version(s sdn.Setup) int {
	if s.Prefix.Addr().Is6() {
		return 6
	}
	return 4
}

// MakeSetup implements sdn.Installer.
func (b *Neutron) MakeSetup(ctx context.Context, s sdn.Setup) (string, error) {
	body := object{}
	if s.Name != "" {
		session.Set(body, map[string]string{"name": s.Name, "description": b.installed(), "project_id": s.ProjectID})
	}
	switch s.Kind {
	case sdn.SetupRouter:
		return "", fmt.Errorf("making a router: %w", sdn.ErrInvalid)
	case sdn.SetupRouterInterface:
		err := b.changeRouterInterface(ctx, s.RouterID, "add_router_interface", s.SubnetID, "")
		if err != nil {
			return "", fmt.Errorf("giving router %s an interface in subnet %s: %w", s.RouterID, s.SubnetID, err)
		}
		return "", nil
	case sdn.SetupSubnet:
		addSubnet(body, s)
	case sdn.SetupRule:
		body["security_group_id"], body["direction"], body["remote_ip_prefix"] = s.GroupID, "ingress", s.Prefix.String()
		body["ethertype"] = fmt.Sprintf("IPv%d", version(s))
	case sdn.SetupNetwork, sdn.SetupGroup: // have a name alone
	}
	k, _ := setupKind(s)
	made, err := send[resource](ctx, b.Client, k, k.request(http.MethodPost, "", body))
	if err != nil {
		return "", fmt.Errorf("making the %s %s: %w", s.Kind, s.Name, err)
	}
	return made.ID, nil
}

// addSubnet adds what a subnet has to the body of a request. Nodes address pods, so it has no DHCP.
func addSubnet(body object, s sdn.Setup) {
	body["network_id"], body["cidr"], body["ip_version"], body["enable_dhcp"] = s.NetworkID, s.Prefix.String(), version(s), false
	if s.Gateway.IsValid() {
		body["gateway_ip"] = s.Gateway.String()
	}
	if s.Pool.First.IsValid() {
		body["allocation_pools"] = []object{{"start": s.Pool.First.String(), "end": s.Pool.Last.String()}}
	}
}
