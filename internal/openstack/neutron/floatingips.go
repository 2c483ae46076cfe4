// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

type wireFloatingIP struct {
	resource
	NetworkID string `json:"floating_network_id"`
	Address   string `json:"floating_ip_address"`
	PortID    string `json:"port_id"`
	Revision  *int   `json:"revision_number"` // nil: this Neutron has none
}

var floatingFields = []string{"id", "description", "project_id", "floating_network_id", "floating_ip_address", "port_id", "revision_number"}

// Subnet implements sdn.Subnets. It always asks Neutron.
func (b *Neutron) Subnet(ctx context.Context, id string) (sdn.Subnet, error) {
	w, err := get[wireSubnet](ctx, b, subnetKind, id, "network_id", "cidr")
	if err != nil {
		return sdn.Subnet{}, err
	}
	return sdn.Subnet{ID: id, NetworkID: w.NetworkID, CIDR: w.CIDR}, nil
}

// ofExternalNetwork makes the error of a refused floating IP name its external network or that
// network's subnet: all other fields of the request are Kuryr's own.
func ofExternalNetwork(err error) error {
	if !errors.Is(err, sdn.ErrInvalid) {
		return err
	}
	return &sdn.InvalidError{Field: sdn.FieldExternalNetwork, Err: err}
}

// CreateFloatingIP implements sdn.FloatingIPs.
func (b *Neutron) CreateFloatingIP(ctx context.Context, owner sdn.Owner, r sdn.FloatingIPRequest) (sdn.FloatingIP, error) {
	body, err := b.newBody(owner, "", r.ProjectID)
	if err != nil {
		return sdn.FloatingIP{}, ofExternalNetwork(err)
	}
	body["floating_network_id"] = r.NetworkID
	session.Set(body, map[string]string{"subnet_id": r.SubnetID, "floating_ip_address": r.Address, "port_id": r.PortID})
	post := floatingKind.request(http.MethodPost, "", body)
	post.Creates = true
	w, err := send[wireFloatingIP](ctx, b.Client, floatingKind, post)
	if err != nil {
		return sdn.FloatingIP{}, ofExternalNetwork(err)
	}
	return floatingOf(w), nil
}

func floatingOf(w wireFloatingIP) sdn.FloatingIP {
	return sdn.FloatingIP{
		ID: w.ID, Owner: w.mark().Owner, ProjectID: w.ProjectID, NetworkID: w.NetworkID, Address: w.Address, PortID: w.PortID,
	}
}

// ListFloatingIPs implements sdn.FloatingIPs. It lists all that the credential sees, because
// floating IPs of the cluster may belong to another project than the configured one.
func (b *Neutron) ListFloatingIPs(ctx context.Context, projectID string) ([]sdn.FloatingIP, error) {
	projectID, err := b.ProjectOr(ctx, projectID)
	if err != nil {
		return nil, err
	}
	ours := func(w wireFloatingIP) bool {
		m := w.mark()
		return m.Cluster == b.Config.ClusterID || m.Cluster == "" && (projectID == "" || w.ProjectID == projectID)
	}
	all, err := session.ReadAll(ctx, b.Client, session.Request{Path: []string{"floatingips"}, Query: byID(nil, floatingFields), Subject: floatingKind.missing}, ours)
	if err != nil {
		return nil, err
	}
	var out []sdn.FloatingIP
	for _, w := range all {
		out = append(out, floatingOf(w))
	}
	return out, nil
}

// readFloatingIP reads a floating IP that belongs to this cluster or carries no mark.
func (b *Neutron) readFloatingIP(ctx context.Context, id string) (wireFloatingIP, error) {
	w, err := get[wireFloatingIP](ctx, b, floatingKind, id, floatingFields...)
	if err != nil {
		return wireFloatingIP{}, err
	}
	if c := w.mark().Cluster; c != "" && c != b.Config.ClusterID {
		return wireFloatingIP{}, fmt.Errorf("it belongs to cluster %s: %w", c, sdn.ErrNotFound)
	}
	return w, nil
}

// Associate implements sdn.FloatingIPs. Neutron would take it from another port
// without a word, so it is looked at first.
func (b *Neutron) Associate(ctx context.Context, id, portID string) error {
	return ofExternalNetwork(b.associate(ctx, id, portID))
}

func (b *Neutron) associate(ctx context.Context, id, portID string) error {
	if portID == "" {
		return fmt.Errorf("the request names no port: %w", sdn.ErrInvalid)
	}
	w, err := b.readFloatingIP(ctx, id)
	switch {
	case err != nil || w.PortID == portID:
		return err
	case w.PortID != "":
		return fmt.Errorf("port %s has it: %w", w.PortID, sdn.ErrConflict)
	}
	return b.change(ctx, w, http.MethodPut, object{"port_id": portID})
}

// change changes or deletes a floating IP. Neutron refuses if it has changed since it was read.
func (b *Neutron) change(ctx context.Context, w wireFloatingIP, method string, body any) error {
	r := floatingKind.request(method, w.ID, body)
	if w.Revision != nil {
		r.Header = session.Unchanged(*w.Revision)
	}
	return b.Do(ctx, r)
}

// Dissociate implements sdn.FloatingIPs.
func (b *Neutron) Dissociate(ctx context.Context, id, portID string) error {
	w, err := b.readFloatingIP(ctx, id)
	if err == nil && w.PortID == portID && portID != "" {
		err = b.change(ctx, w, http.MethodPut, object{"port_id": nil})
	}
	return session.IgnoreNotFound(err)
}

// DeleteFloatingIP implements sdn.FloatingIPs.
func (b *Neutron) DeleteFloatingIP(ctx context.Context, id, portID string) error {
	w, err := b.readFloatingIP(ctx, id)
	switch {
	case err != nil || w.mark().Cluster != b.Config.ClusterID:
	case w.PortID != "" && w.PortID != portID:
		err = fmt.Errorf("port %s has it: %w", w.PortID, sdn.ErrConflict)
	default:
		err = b.change(ctx, w, http.MethodDelete, nil)
	}
	return session.IgnoreNotFound(err)
}

// DisownFloatingIP implements sdn.FloatingIPs. What people have written beside the
// mark stays.
func (b *Neutron) DisownFloatingIP(ctx context.Context, id string) error {
	w, err := b.readFloatingIP(ctx, id)
	if err == nil && w.mark().Cluster == b.Config.ClusterID {
		err = b.change(ctx, w, http.MethodPut, object{"description": session.Unmarked(w.Description)})
	}
	return session.IgnoreNotFound(err)
}
