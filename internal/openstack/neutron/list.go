// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// ListPorts implements sdn.Ports. Neutron filters by the device_owners of Kuryr's ports; this
// function filters by the cluster's mark.
//
// A subport that was just taken off its trunk has no device_owner, and Neutron has no filter for
// that. If trunks are in use, or may have been before a restart, ListPorts also lists ports with
// the name of a free port.
func (b *Neutron) ListPorts(ctx context.Context) ([]sdn.PortSummary, error) {
	before := xsync.ToPlainMap(b.known)
	all, err := b.list(ctx, url.Values{"device_owner": {deviceOwner, subportDeviceOwner}}, listFields, b.ours)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(all, func(w wirePort) bool { return w.DeviceOwner == subportDeviceOwner }) {
		b.parents.trunks.Store(true)
	}
	if b.parents.trunks.Load() || !b.listed.Load() {
		free, err := b.list(ctx, url.Values{"name": {sdn.FreePortName}}, listFields, b.ours)
		if err != nil {
			return nil, err
		}
		all = append(all, free...)
	}
	found := map[string]wirePort{}
	for _, w := range all {
		found[w.ID] = w
	}
	b.listed.Store(true)
	b.inventoried(before, found)
	out := make([]sdn.PortSummary, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		w := found[id]
		out = append(out, sdn.PortSummary{ID: id, Name: w.Name, Owner: w.mark().Owner, ProjectID: w.ProjectID, Host: w.host(), Created: w.Created, Active: passes(w), Revision: w.Revision, SecurityGroupIDs: w.SecurityGroups})
	}
	return out, nil
}

// maxIDs is how many ports one request names at most: a proxy may take no longer line.
const maxIDs = 100

// States implements sdn.Ports.
func (b *Neutron) States(ctx context.Context, ids []string) (map[string]sdn.PortState, error) {
	states := map[string]sdn.PortState{}
	for some := range slices.Chunk(ids, maxIDs) {
		ports, err := b.list(ctx, url.Values{"id": some}, []string{"id", "status", "description", "security_groups"}, b.ours)
		if err != nil {
			return nil, fmt.Errorf("reading the states of %d ports: %w", len(ids), err)
		}
		for _, w := range ports {
			states[w.ID] = sdn.PortState{Active: passes(w), SecurityGroupIDs: slices.Sorted(slices.Values(w.SecurityGroups))}
		}
	}
	return states, nil
}

// passes reports whether a port's traffic passes. Neutron reports DOWN for a port behind a parent
// port; its traffic passes if the parent's does.
func passes(w wirePort) bool {
	return w.Status == statusActive || w.mark().Parent != ""
}

// listFields are what ListPorts needs.
var listFields = []string{"id", "name", "description", "status", "device_owner", "created_at", "project_id", "binding:host_id", "revision_number", "security_groups"}

func (b *Neutron) ours(w wirePort) bool { return w.mark().Cluster == b.Config.ClusterID }

// list lists the ports that match and are to be kept.
func (b *Neutron) list(ctx context.Context, match url.Values, fields []string, keep func(wirePort) bool) ([]wirePort, error) {
	return session.ReadAll(ctx, b.Client, session.Request{Path: []string{"ports"}, Query: byID(match, fields), Subject: portKind.missing}, keep)
}
