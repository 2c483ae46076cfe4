// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

type wireFloatingIP struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	ProjectID   string `json:"project_id"`
	NetworkID   string `json:"floating_network_id"`
	Address     string `json:"floating_ip_address"`
	PortID      string `json:"port_id"`
	Revision    *int   `json:"revision_number"` // nil: this Neutron has none
}

var floatingFields = []string{"id", "description", "project_id", "floating_network_id", "floating_ip_address", "port_id", "revision_number"}

type floatingBody struct {
	FloatingIP wireFloatingIP `json:"floatingip"`
}

// Subnet implements sdn.Subnets. It always asks Neutron.
func (b *Neutron) Subnet(ctx context.Context, id string) (sdn.Subnet, error) {
	var body subnetBody
	err := b.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"subnets", id}, Query: url.Values{"fields": {"network_id", "cidr"}}, Out: &body, Subject: "SubnetNotFound",
	})
	if err != nil {
		return sdn.Subnet{}, err
	}
	return sdn.Subnet{ID: id, NetworkID: body.Subnet.NetworkID, CIDR: body.Subnet.CIDR}, nil
}

// CreateFloatingIP implements sdn.FloatingIPs. The mark is in the description: tags
// cannot be given as one is made.
func (b *Neutron) CreateFloatingIP(ctx context.Context, owner sdn.Owner, r sdn.FloatingIPRequest) (sdn.FloatingIP, error) {
	f, err := b.createFloatingIP(ctx, owner, r)
	if err != nil {
		return sdn.FloatingIP{}, ofExternalNetwork(err)
	}
	return f, nil
}

// ofExternalNetwork makes the error of a refused floating IP name its external network or that
// network's subnet: all other fields of the request are Kuryr's own.
func ofExternalNetwork(err error) error {
	if !errors.Is(err, sdn.ErrInvalid) {
		return err
	}
	return &sdn.InvalidError{Field: sdn.FieldExternalNetwork, Err: err}
}

func (b *Neutron) createFloatingIP(ctx context.Context, owner sdn.Owner, r sdn.FloatingIPRequest) (sdn.FloatingIP, error) {
	description, err := session.Mark{Cluster: b.config.ClusterID, Owner: owner}.Description()
	if err != nil {
		return sdn.FloatingIP{}, err
	}
	body := object{"floating_network_id": r.NetworkID, "description": description}
	for name, v := range map[string]string{
		"project_id": r.ProjectID, "subnet_id": r.SubnetID, "floating_ip_address": r.Address, "port_id": r.PortID,
	} {
		if v != "" {
			body[name] = v
		}
	}
	var out floatingBody
	err = b.Do(ctx, session.Request{
		Method: http.MethodPost, Path: []string{"floatingips"}, Body: object{"floatingip": body}, Out: &out, Creates: true, Subject: session.FloatingMissing,
	})
	if err != nil {
		return sdn.FloatingIP{}, err
	}
	return floatingOf(out.FloatingIP), nil
}

func floatingOf(w wireFloatingIP) sdn.FloatingIP {
	return sdn.FloatingIP{
		ID: w.ID, Owner: session.ParseMark(w.Description).Owner, ProjectID: w.ProjectID, NetworkID: w.NetworkID, Address: w.Address, PortID: w.PortID,
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
		m := session.ParseMark(w.Description)
		return m.Cluster == b.config.ClusterID || m.Cluster == "" && (projectID == "" || w.ProjectID == projectID)
	}
	all, err := session.ReadAll(ctx, b.Client, session.Request{Path: []string{"floatingips"}, Query: byID(nil, floatingFields), Subject: session.FloatingMissing}, ours)
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
	if id == "" {
		return wireFloatingIP{}, fmt.Errorf("the request names no floating IP: %w", sdn.ErrNotFound)
	}
	var body floatingBody
	err := b.Do(ctx, session.Request{
		Method: http.MethodGet, Path: []string{"floatingips", id}, Query: url.Values{"fields": floatingFields}, Out: &body, Subject: session.FloatingMissing,
	})
	if err != nil {
		return wireFloatingIP{}, err
	}
	if c := session.ParseMark(body.FloatingIP.Description).Cluster; c != "" && c != b.config.ClusterID {
		return wireFloatingIP{}, fmt.Errorf("it belongs to cluster %s: %w", c, sdn.ErrNotFound)
	}
	return body.FloatingIP, nil
}

// Associate implements sdn.FloatingIPs. Neutron would take it from another port
// without a word, so it is looked at first.
func (b *Neutron) Associate(ctx context.Context, id, portID string) error {
	if err := b.associate(ctx, id, portID); err != nil {
		return ofExternalNetwork(err)
	}
	return nil
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
	return b.setPort(ctx, w, portID)
}

// setPort assigns the floating IP to a port; nil is none. Neutron refuses if the floating IP has
// changed since it was read.
func (b *Neutron) setPort(ctx context.Context, w wireFloatingIP, port any) error {
	r := session.Request{
		Method: http.MethodPut, Path: []string{"floatingips", w.ID}, Body: object{"floatingip": object{"port_id": port}}, Subject: session.FloatingMissing,
	}
	if w.Revision != nil {
		r.Header = session.Unchanged(*w.Revision)
	}
	return b.Do(ctx, r)
}

// Dissociate implements sdn.FloatingIPs. Neutron refuses if the floating IP has changed since it
// was read.
func (b *Neutron) Dissociate(ctx context.Context, id, portID string) error {
	w, err := b.readFloatingIP(ctx, id)
	if err == nil && w.PortID == portID && portID != "" {
		err = b.setPort(ctx, w, nil)
	}
	if err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	return nil
}

// DeleteFloatingIP implements sdn.FloatingIPs. Neutron refuses if the floating IP has changed since
// it was read.
func (b *Neutron) DeleteFloatingIP(ctx context.Context, id, portID string) error {
	if err := b.deleteFloatingIP(ctx, id, portID); err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	return nil
}

func (b *Neutron) deleteFloatingIP(ctx context.Context, id, portID string) error {
	w, err := b.readFloatingIP(ctx, id)
	switch {
	case err != nil || session.ParseMark(w.Description).Cluster != b.config.ClusterID:
		return err
	case w.PortID != "" && w.PortID != portID:
		return fmt.Errorf("port %s has it: %w", w.PortID, sdn.ErrConflict)
	}
	r := session.Request{Method: http.MethodDelete, Path: []string{"floatingips", id}, Subject: session.FloatingMissing}
	if w.Revision != nil {
		r.Header = session.Unchanged(*w.Revision)
	}
	return b.Do(ctx, r)
}

// DisownFloatingIP implements sdn.FloatingIPs. What people have written beside the
// mark stays.
func (b *Neutron) DisownFloatingIP(ctx context.Context, id string) error {
	if err := b.disownFloatingIP(ctx, id); err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return err
	}
	return nil
}

func (b *Neutron) disownFloatingIP(ctx context.Context, id string) error {
	w, err := b.readFloatingIP(ctx, id)
	if err != nil || session.ParseMark(w.Description).Cluster != b.config.ClusterID {
		return err
	}
	r := session.Request{
		Method: http.MethodPut, Path: []string{"floatingips", id}, Subject: session.FloatingMissing,
		Body: object{"floatingip": object{"description": session.Unmarked(w.Description)}},
	}
	if w.Revision != nil {
		r.Header = session.Unchanged(*w.Revision)
	}
	return b.Do(ctx, r)
}
