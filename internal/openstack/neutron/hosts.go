// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ParentPort implements sdn.Hosts, with one request. If several ports match, Neutron does not show
// which one is a virtual machine's. A subnet has an address only once, so with the nodes' subnets
// the result is unique.
//
// An administrator sees the ports of all projects, and several projects may use the same private
// address. Ports that do not count are filtered here and not by the query, so that the error can
// name them.
func (b *Neutron) ParentPort(ctx context.Context, m sdn.Machine) (string, error) {
	id, err := b.parentPort(ctx, m)
	if err != nil {
		what := "port"
		if m.Trunk {
			what = "port of a trunk"
		}
		in := "any subnet"
		if len(m.SubnetIDs) > 0 {
			in = "subnet " + strings.Join(m.SubnetIDs, ", ")
		}
		return "", fmt.Errorf("looking for the %s with address %s in %s: %w", what, m.Address, in, err)
	}
	return id, nil
}

func (b *Neutron) parentPort(ctx context.Context, m sdn.Machine) (string, error) {
	ip, err := netip.ParseAddr(m.Address)
	if err != nil {
		return "", fmt.Errorf("%w: %w", sdn.ErrInvalid, err)
	}
	if m.ProjectID, err = b.ProjectOr(ctx, m.ProjectID); err != nil {
		return "", err
	}
	if m.ProjectID == "" {
		return "", fmt.Errorf("Neutron does not show the credential's project: set nodes[].parentProjectID: %w", sdn.ErrInvalid)
	}
	ports, err := b.portsAt(ctx, ip, m)
	if err != nil {
		return "", err
	}
	all := len(ports)
	ports = slices.DeleteFunc(ports, func(w wirePort) bool { return w.ProjectID != m.ProjectID })
	if all > 0 && len(ports) == 0 {
		return "", fmt.Errorf("%d ports of projects other than %s have it: if one is the machine's, set nodes[].parentProjectID to its project: %w", all, m.ProjectID, sdn.ErrNotFound)
	}
	return pickParent(ports, m)
}

// portsAt returns the ports that have a machine's address in one of its subnets.
func (b *Neutron) portsAt(ctx context.Context, ip netip.Addr, m sdn.Machine) ([]wirePort, error) {
	query := url.Values{"fields": {"id", "fixed_ips", "project_id", "device_id"}, "fixed_ips": {"ip_address=" + ip.String()}}
	if m.Trunk {
		query.Add("fields", "trunk_details")
	}
	for _, s := range m.SubnetIDs {
		query.Add("fixed_ips", "subnet_id="+s)
	}
	var body portsBody
	if err := b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"ports"}, Query: query, Out: &body, Creates: true}); err != nil {
		return nil, err
	}
	// Neutron may mean that the port has the address, and one in the subnet.
	return slices.DeleteFunc(body.Ports, func(w wirePort) bool {
		return !slices.ContainsFunc(w.FixedIPs, func(f wireIP) bool {
			return f.IP == ip.String() && (len(m.SubnetIDs) == 0 || slices.Contains(m.SubnetIDs, f.SubnetID))
		})
	}), nil
}

// pickParent returns which of ports, which are of the machine's project and have its
// address, is the machine's.
func pickParent(ports []wirePort, m sdn.Machine) (string, error) {
	var found []string
	for _, w := range ports {
		if (m.ServerID == "" || w.DeviceID == m.ServerID) && (!m.Trunk || w.Trunk != nil && w.Trunk.TrunkID != "") {
			found = append(found, w.ID)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%d ports have it (%s): set nodes[].parentSubnetIDs: %w", len(found), strings.Join(found, ", "), sdn.ErrInvalid)
	case len(ports) == 0:
		return "", sdn.ErrNotFound
	case m.ServerID != "" && ports[0].DeviceID != m.ServerID:
		return "", fmt.Errorf("port %s has it and belongs to server %q, but the node's providerID names %s: %w", ports[0].ID, ports[0].DeviceID, m.ServerID, sdn.ErrNotFound)
	}
	return "", fmt.Errorf("port %s has it, but is not the parent of a trunk: %w", ports[0].ID, sdn.ErrNotFound)
}
