// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// maxRestarts bounds how often a list is begun anew because what a page ended with
// was deleted before the next was asked for.
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
	ports, err := readAll(ctx, b, request{path: []string{"ports"}, query: byID(match, fields), subject: "PortNotFound"}, keep)
	for _, w := range ports {
		found[w.ID] = w
	}
	return err
}

// byID is a query of Neutron for what matches, in an order in which nothing is seen
// twice or left out because something else is made or deleted meanwhile.
func byID(match url.Values, fields []string) url.Values {
	query := url.Values{"fields": fields, "sort_key": {"id"}, "sort_dir": {"asc"}}
	maps.Copy(query, match)
	return query
}

// listable is what lists are read of.
type listable interface{ id() string }

func (w wirePort) id() string       { return w.ID }
func (w wireGroup) id() string      { return w.ID }
func (w wireTrunk) id() string      { return w.ID }
func (w wireFloatingIP) id() string { return w.ID }
func (w wireBalancer) id() string   { return w.ID }
func (w wireListener) id() string   { return w.ID }
func (w wirePool) id() string       { return w.ID }
func (w wireMember) id() string     { return w.ID }

// readAll reads a list, page after page, and returns what is to be kept of it; nil
// keeps all. The list is named as the last element of the path is. A page is asked for
// by what the one before ended with; if that was deleted meanwhile, Neutron answers
// 404 and Octavia 400, and the list is begun anew.
func readAll[T listable](ctx context.Context, b *Backend, r request, keep func(T) bool) ([]T, error) {
	for try := 1; ; try++ {
		all, marker, err := readPages(ctx, b, r, keep)
		gone := marker != "" && (errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid))
		if err == nil || !gone || try > maxRestarts {
			return all, err
		}
	}
}

// readPages reads a list once. If that fails it returns what the last page ended with.
func readPages[T listable](ctx context.Context, b *Backend, r request, keep func(T) bool) (all []T, marker string, err error) {
	name := r.path[len(r.path)-1]
	key := strings.ReplaceAll(name, "-", "_") // security-groups
	r.method, r.query = http.MethodGet, maps.Clone(r.query)
	r.query.Set("limit", strconv.Itoa(b.config.PageSize))
	for {
		var page map[string]json.RawMessage
		r.out = &page
		if err := b.do(ctx, r); err != nil {
			return nil, marker, err
		}
		var rows []T
		var links []wireLink
		if err := json.Unmarshal(page[key], &rows); err != nil {
			return nil, "", fmt.Errorf("%w: reading the list of %s: %w", sdn.ErrUnavailable, name, err)
		}
		_ = json.Unmarshal(page[key+"_links"], &links) // without them it was the last page
		for _, row := range rows {
			if keep == nil || keep(row) {
				all = append(all, row)
			}
		}
		if !goesOn(links) || len(rows) == 0 {
			return all, "", nil
		}
		marker = rows[len(rows)-1].id()
		r.query.Set("marker", marker)
	}
}
