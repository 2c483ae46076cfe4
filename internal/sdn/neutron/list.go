// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// maxRestarts bounds how often a list is begun anew because the port that a page
// ended with was deleted before the next was asked for.
const maxRestarts = 3

// ListPorts implements sdn.Ports. Neutron narrows the list down to the
// device_owners of Kuryr's ports; what is this cluster's is decided here, by the
// mark.
//
// A subport just taken off its trunk has no device_owner, and Neutron cannot be
// asked for such. If trunks are in use, or may have been before a restart, those
// of a free port's name are listed too.
func (b *Backend) ListPorts(ctx context.Context) ([]sdn.PortSummary, error) {
	before := b.known.ids()
	found := map[string]wirePort{}
	if err := b.list(ctx, url.Values{"device_owner": {deviceOwner, subportDeviceOwner}}, listFields, b.ours, found); err != nil {
		return nil, fmt.Errorf("listing ports: %w", err)
	}
	for _, w := range found {
		if w.DeviceOwner == subportDeviceOwner {
			b.parents.trunks.Store(true)
		}
	}
	if b.parents.trunks.Load() || !b.listed.Load() {
		if err := b.list(ctx, url.Values{"name": {sdn.FreePortName}}, listFields, b.ours, found); err != nil {
			return nil, fmt.Errorf("listing ports by name: %w", err)
		}
	}
	b.listed.Store(true)
	b.known.listed(before, found)
	out := make([]sdn.PortSummary, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		w := found[id]
		m := parseMark(w.Description)
		out = append(out, sdn.PortSummary{ID: id, Owner: m.owner, Created: w.Created, Active: w.Status == statusActive || m.parent != ""})
	}
	return out, nil
}

// listFields are what ListPorts needs.
var listFields = []string{"id", "name", "description", "status", "device_owner", "created_at"}

func (b *Backend) ours(w wirePort) bool {
	return parseMark(w.Description).cluster == b.config.ClusterID
}

// list adds the ports that match and are to be kept.
func (b *Backend) list(ctx context.Context, match url.Values, fields []string, keep func(wirePort) bool, found map[string]wirePort) error {
	for try := 1; ; try++ {
		some := map[string]wirePort{} // of this try: what an earlier one saw may have gone
		marker, err := b.listPages(ctx, match, fields, keep, some)
		if err == nil {
			maps.Copy(found, some)
		}
		gone := errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid)
		if err == nil || marker == "" || !gone || try > maxRestarts {
			return err
		}
	}
}

// listPages reads page after page. If that fails it returns the port after
// which.
func (b *Backend) listPages(ctx context.Context, match url.Values, fields []string, keep func(wirePort) bool, found map[string]wirePort) (marker string, err error) {
	query := maps.Clone(match)
	query["fields"] = fields
	query.Set("sort_key", "id")
	query.Set("sort_dir", "asc")
	query.Set("limit", strconv.Itoa(b.config.PageSize))
	for {
		var page portsBody
		err := b.do(ctx, request{method: http.MethodGet, path: []string{"ports"}, query: query, out: &page, subject: "PortNotFound"})
		if err != nil {
			return marker, err
		}
		for _, w := range page.Ports {
			if keep(w) {
				found[w.ID] = w
			}
		}
		if len(page.Ports) < b.config.PageSize {
			return "", nil
		}
		marker = page.Ports[len(page.Ports)-1].ID
		query.Set("marker", marker)
	}
}
