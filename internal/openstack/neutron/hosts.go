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

// ParentPort implements sdn.Hosts, with one request. Among several ports Neutron
// does not say which is a virtual machine's: a subnet has an address once, so
// whoever names the subnet of the nodes gets their ports.
func (b *Neutron) ParentPort(ctx context.Context, address string, subnetIDs []string, trunk bool) (string, error) {
	id, err := b.parentPort(ctx, address, subnetIDs, trunk)
	if err != nil {
		what := "port"
		if trunk {
			what = "port of a trunk"
		}
		in := "any subnet"
		if len(subnetIDs) > 0 {
			in = "subnet " + strings.Join(subnetIDs, ", ")
		}
		return "", fmt.Errorf("looking for the %s with address %s in %s: %w", what, address, in, err)
	}
	return id, nil
}

func (b *Neutron) parentPort(ctx context.Context, address string, subnetIDs []string, trunk bool) (string, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return "", fmt.Errorf("%w: %w", sdn.ErrInvalid, err)
	}
	query := url.Values{"fields": {"id", "fixed_ips"}, "fixed_ips": {"ip_address=" + ip.String()}}
	if trunk {
		query.Add("fields", "trunk_details")
	}
	for _, s := range subnetIDs {
		query.Add("fixed_ips", "subnet_id="+s)
	}
	var body portsBody
	if err := b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"ports"}, Query: query, Out: &body, Creates: true}); err != nil {
		return "", err
	}
	// Neutron may mean that the port has the address, and one in the subnet.
	body.Ports = slices.DeleteFunc(body.Ports, func(w wirePort) bool {
		return !slices.ContainsFunc(w.FixedIPs, func(f wireIP) bool {
			return f.IP == ip.String() && (len(subnetIDs) == 0 || slices.Contains(subnetIDs, f.SubnetID))
		})
	})
	var found []string
	for _, w := range body.Ports {
		if !trunk || w.Trunk != nil && w.Trunk.TrunkID != "" {
			found = append(found, w.ID)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%d have it (%s): name the subnets of the nodes: %w", len(found), strings.Join(found, ", "), sdn.ErrInvalid)
	case len(body.Ports) > 0:
		return "", fmt.Errorf("port %s has it and is not the parent of a trunk: %w", body.Ports[0].ID, sdn.ErrNotFound)
	}
	return "", sdn.ErrNotFound
}
