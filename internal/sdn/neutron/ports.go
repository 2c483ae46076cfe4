// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Port implements sdn.Ports. The VIF's type is Neutron's.
func (b *Backend) Port(ctx context.Context, id string) (sdn.Port, error) {
	p, err := b.port(ctx, id)
	if err != nil {
		return sdn.Port{}, fmt.Errorf("reading port %s: %w", id, err)
	}
	return p, nil
}

func (b *Backend) port(ctx context.Context, id string) (sdn.Port, error) {
	w, err := b.readPort(ctx, id, portFields)
	if err != nil {
		return sdn.Port{}, err
	}
	ids := make([]string, len(w.FixedIPs))
	for i, ip := range w.FixedIPs {
		ids[i] = ip.SubnetID
	}
	subnets, err := b.details.all(ctx, ids)
	if err != nil {
		return sdn.Port{}, err
	}
	p := portOf(w, subnets)
	if w.DeviceOwner == subportDeviceOwner {
		trunk, at, err := b.trunkOf(ctx, id)
		if err != nil {
			return sdn.Port{}, err
		}
		onTrunk(&p, trunk.PortID, at.SegmentationID)
	}
	return p, nil
}

// maxRestarts bounds how often a list is begun anew because the port that a page
// ended with was deleted before the next was asked for.
const maxRestarts = 3

// ListPorts implements sdn.Ports.
func (b *Backend) ListPorts(ctx context.Context) ([]sdn.PortSummary, error) {
	for try := 1; ; try++ {
		before := b.known.ids()
		out, now, marker, err := b.listOnce(ctx)
		if err == nil {
			b.known.listed(before, now)
			return out, nil
		}
		gone := errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid)
		if marker == "" || !gone || try > maxRestarts {
			return nil, fmt.Errorf("listing ports: %w", err)
		}
	}
}

// listOnce reads the pages. If that fails it returns the port after which.
func (b *Backend) listOnce(ctx context.Context) (out []sdn.PortSummary, now map[string]place, marker string, err error) {
	now = map[string]place{}
	query := url.Values{
		"device_owner": {deviceOwner, subportDeviceOwner},
		"fields":       {"id", "description", "status", "device_owner", "created_at"},
		"sort_key":     {"id"}, "sort_dir": {"asc"},
		"limit": {strconv.Itoa(b.config.PageSize)},
	}
	for {
		var page portsBody
		err := b.do(ctx, request{method: http.MethodGet, path: []string{"ports"}, query: query, out: &page, subject: "PortNotFound"})
		if err != nil {
			return nil, nil, marker, err
		}
		for _, w := range page.Ports {
			m := parseMark(w.Description)
			if m.cluster != b.config.ClusterID {
				continue
			}
			now[w.ID] = place{subport: w.DeviceOwner == subportDeviceOwner}
			out = append(out, sdn.PortSummary{ID: w.ID, Owner: m.owner, Created: w.Created, Active: w.Status == "ACTIVE"})
		}
		if len(page.Ports) < b.config.PageSize {
			return out, now, "", nil
		}
		marker = page.Ports[len(page.Ports)-1].ID
		query.Set("marker", marker)
	}
}

// UpdatePort implements sdn.Ports.
func (b *Backend) UpdatePort(ctx context.Context, id string, u sdn.PortUpdate) error {
	if err := b.updatePort(ctx, id, u); err != nil {
		return fmt.Errorf("updating port %s: %w", id, err)
	}
	return nil
}

func (b *Backend) updatePort(ctx context.Context, id string, u sdn.PortUpdate) error {
	if _, err := b.own(ctx, id); err != nil {
		return err
	}
	change := map[string]any{}
	if u.SecurityGroupIDs != nil {
		change["security_groups"] = notNil(*u.SecurityGroupIDs)
	}
	if u.Name != nil {
		change["name"] = *u.Name
	}
	if u.DeviceID != nil {
		change["device_id"] = *u.DeviceID
	}
	if len(change) == 0 {
		return nil
	}
	err := b.do(ctx, request{
		method: http.MethodPut, path: []string{"ports", id}, body: map[string]any{"port": change},
		subject: "PortNotFound",
	})
	if errors.Is(err, sdn.ErrNotFound) {
		b.known.drop(id)
	}
	return err
}

// DeletePort implements sdn.Ports.
func (b *Backend) DeletePort(ctx context.Context, id string) error {
	if err := b.deletePort(ctx, id); err != nil && !errors.Is(err, sdn.ErrNotFound) {
		return fmt.Errorf("deleting port %s: %w", id, err)
	}
	b.known.drop(id)
	return nil
}

func (b *Backend) deletePort(ctx context.Context, id string) error {
	at, err := b.own(ctx, id)
	if err != nil {
		return err
	}
	if at.subport {
		if err := b.detach(ctx, id, at.trunkID); err != nil {
			return err
		}
	}
	drop := request{method: http.MethodDelete, path: []string{"ports", id}, subject: "PortNotFound"}
	err = b.do(ctx, drop)
	if errors.Is(err, sdn.ErrConflict) {
		// Somebody may have put it on a trunk, or another one, since: what Neutron says now counts.
		if w, again := b.readPort(ctx, id, []string{"id", "description", "device_owner"}); again == nil && w.DeviceOwner == subportDeviceOwner {
			if err := b.detach(ctx, id, ""); err != nil {
				return err
			}
			err = b.do(ctx, drop)
		}
	}
	return err
}

func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
