// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// strayNames are the names of free ports of kuryr-kubernetes, which kept no objects: the first was
// used until 2017 and by people's scripts, the other one since, if it was configured to name ports.
// Ports without such a name cannot be distinguished from ports of its pods.
var strayNames = []string{sdn.FreePortName, "kuryr-pool-port"}

var strayFields = append(slices.Clone(portFields), "revision_number", "tags")

// isStray reports whether a port is free and nobody's. Off its trunk it has no
// device_owner.
func isStray(w wirePort) bool {
	return slices.Contains(strayNames, w.Name) && w.DeviceID == "" && !strings.Contains(w.Description, session.ClusterMark) &&
		slices.Contains([]string{deviceOwner, subportDeviceOwner, ""}, w.DeviceOwner)
}

// Strays implements sdn.Adoption: one list of ports, and one of trunks if some
// port is on one, each in pages. An administrator is shown the ports of all
// projects: with a credential that does not tell its project one has to be named.
func (b *Neutron) Strays(ctx context.Context, projectID string) (_ []sdn.Port, err error) {
	defer wrap(&err, "looking for free ports of an earlier Kuryr in project %q", projectID)
	found, err := b.listStrays(ctx, projectID)
	if err != nil {
		return nil, err
	}
	on := map[string]trunkPlace{}
	if slices.ContainsFunc(found, func(w wirePort) bool { return w.DeviceOwner == subportDeviceOwner }) {
		if on, err = b.trunkPlaces(ctx); err != nil {
			return nil, err
		}
	}
	out := make([]sdn.Port, 0, len(found))
	for _, w := range found {
		p, err := b.strayPort(ctx, w, on)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (b *Neutron) listStrays(ctx context.Context, projectID string) ([]wirePort, error) {
	projectID, err := b.ProjectOr(ctx, projectID)
	switch {
	case err != nil:
		return nil, err
	case projectID == "":
		return nil, fmt.Errorf("Neutron does not show the credential's project, so a project must be named: %w", sdn.ErrInvalid)
	}
	match := url.Values{"device_owner": {deviceOwner, subportDeviceOwner}, "name": strayNames, "project_id": {projectID}}
	return b.list(ctx, match, strayFields, isStray)
}

// strayPort converts an unmarked free port. A port that Neutron could not bind to its host counts
// as a port without a host.
func (b *Neutron) strayPort(ctx context.Context, w wirePort, on map[string]trunkPlace) (sdn.Port, error) {
	p, err := b.detailed(ctx, w)
	if err != nil {
		return sdn.Port{}, fmt.Errorf("cannot read port %s: %w", w.ID, err)
	}
	if t, ok := on[w.ID]; ok {
		onTrunk(&p, t.parentID, t.vlan)
	} else if w.DeviceOwner == subportDeviceOwner || w.VIFType == vifUnbound || w.VIFType == vifFailed || w.VIFType == "" {
		p.Host = ""
	}
	return p, nil
}

// Claim implements sdn.Adoption: the mark is written in one request that insists
// on the port being as it was seen; tags follow where Neutron has them. To claim
// again for the same owner completes what a lost answer has left.
func (b *Neutron) Claim(ctx context.Context, id string, owner sdn.Owner) (err error) {
	defer wrap(&err, "claiming port %s", id)
	m := session.Mark{Cluster: b.Config.ClusterID, Owner: owner}
	description, err := m.Description()
	if err != nil {
		return err
	}
	w, err := get[wirePort](ctx, b, portKind, id, strayFields...)
	if err != nil {
		return err
	}
	if w.mark() != m {
		if !isStray(w) {
			return notStray(w)
		}
		if err := b.writeMark(ctx, w, description); err != nil {
			return err
		}
	}
	if w.DeviceOwner == subportDeviceOwner {
		b.parents.trunks.Store(true)
	}
	b.known.Store(id, place{subport: w.DeviceOwner == subportDeviceOwner})
	return b.tag(ctx, w, m)
}

// writeMark makes an unmarked port a free port of this cluster. It keeps a person's description if
// there is room.
func (b *Neutron) writeMark(ctx context.Context, w wirePort, description string) error {
	if both := w.Description + " " + description; w.Description != "" && len(both) <= session.MaxDescription {
		description = both
	}
	r := portKind.request(http.MethodPut, w.ID, object{"description": description, "name": sdn.FreePortName})
	r.Header = session.Unchanged(w.Revision)
	return b.Do(ctx, r)
}

// tag adds a mark's tags to those that a port has, if new ports get them too.
func (b *Neutron) tag(ctx context.Context, w wirePort, m session.Mark) error {
	if !b.mayTag(ctx) {
		return nil
	}
	tags := slices.Clone(w.Tags)
	for _, t := range m.Tags() {
		if !slices.Contains(tags, t) {
			tags = append(tags, t)
		}
	}
	if len(tags) == len(w.Tags) {
		return nil
	}
	return b.Do(ctx, session.Request{
		Method: http.MethodPut, Path: []string{"ports", w.ID, "tags"}, Subject: portKind.missing, Body: object{"tags": tags},
	})
}

// wrap says what failed, if something did.
func wrap(err *error, doing string, of ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(doing, of...), *err)
	}
}

func notStray(w wirePort) error {
	return fmt.Errorf("it is no longer a free port of an earlier Kuryr: name %q, device %q of %q, description %q: %w",
		w.Name, w.DeviceID, w.DeviceOwner, w.Description, sdn.ErrConflict)
}

// DeleteStray implements sdn.Adoption.
func (b *Neutron) DeleteStray(ctx context.Context, id string) (err error) {
	defer func() { err = session.IgnoreNotFound(err) }()
	defer wrap(&err, "deleting free port %s of an earlier Kuryr", id)
	w, err := get[wirePort](ctx, b, portKind, id, strayFields...)
	if err != nil {
		return err
	}
	if !isStray(w) {
		return notStray(w)
	}
	if w.DeviceOwner == subportDeviceOwner {
		if err := b.detach(ctx, id, ""); err != nil {
			return err
		}
		if w, err = get[wirePort](ctx, b, portKind, id, strayFields...); err != nil { // as it is now
			return err
		}
		if !isStray(w) {
			return notStray(w)
		}
	}
	r := portKind.request(http.MethodDelete, id, nil)
	r.Header = session.Unchanged(w.Revision)
	return b.Do(ctx, r)
}
