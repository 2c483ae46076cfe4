// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack

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

// errShifted says that what a page ended with is not there any more, so that nobody
// knows what the pages after it would have begun with.
var errShifted = errors.New("its pages have shifted")

// readAll reads a list, page after page, and returns what is to be kept of it; nil
// keeps all. The list is named as the last element of the path is. If what a page ended
// with is deleted before the next is asked for, the list is begun anew. A list is never
// ErrNotFound for that.
func readAll[T listable](ctx context.Context, b *Backend, r request, keep func(T) bool) ([]T, error) {
	for try := 1; ; try++ {
		all, err := readPages(ctx, b, r, keep)
		switch {
		case !errors.Is(err, errShifted):
			return all, err
		case try > maxRestarts:
			return nil, fmt.Errorf("%w: what ends a page was deleted meanwhile, %d times: %w", sdn.ErrUnavailable, try, err)
		}
	}
}

// readPages reads a list once. A page is asked for by what the one before ended with.
// If that is gone, Octavia answers 400, and Neutron 404, or shows an empty page, or the
// first one again, as it pages each kind.
func readPages[T listable](ctx context.Context, b *Backend, r request, keep func(T) bool) (all []T, err error) {
	r.method, r.query = http.MethodGet, maps.Clone(r.query)
	r.query.Set("limit", strconv.Itoa(b.config.PageSize))
	seen := map[string]bool{} // on earlier pages
	ordered := r.query.Get("sort_key") == "id"
	for marker := ""; ; {
		rows, more, err := readPage[T](ctx, b, r)
		switch {
		case marker != "" && (errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid)):
			return nil, fmt.Errorf("%w: %s", errShifted, err.Error())
		case err != nil:
			return nil, err
		case marker != "" && len(rows) == 0: // the last page was full, or this is no page
			r.query.Del("marker")
			r.query.Set("id", marker)
			rows, _, err = readPage[T](ctx, b, r)
			if err == nil && len(rows) == 0 {
				err = fmt.Errorf("%w: an empty page behind %s", errShifted, marker)
			}
			return all, err
		case marker != "" && (seen[rows[0].id()] || ordered && rows[0].id() <= marker):
			return nil, fmt.Errorf("%w: the page behind %s is an earlier one", errShifted, marker)
		}
		for _, row := range rows {
			seen[row.id()] = true
			if keep == nil || keep(row) {
				all = append(all, row)
			}
		}
		if !more || len(rows) == 0 {
			return all, nil
		}
		marker = rows[len(rows)-1].id()
		r.query.Set("marker", marker)
	}
}

func readPage[T listable](ctx context.Context, b *Backend, r request) (rows []T, more bool, err error) {
	var page map[string]json.RawMessage
	r.out = &page
	if err := b.do(ctx, r); err != nil {
		return nil, false, err
	}
	name := r.path[len(r.path)-1]
	key := strings.ReplaceAll(name, "-", "_") // security-groups
	if err := json.Unmarshal(page[key], &rows); err != nil {
		return nil, false, fmt.Errorf("%w: reading the list of %s: %w", sdn.ErrUnavailable, name, err)
	}
	var links []wireLink
	_ = json.Unmarshal(page[key+"_links"], &links) // without them it was the last page
	return rows, goesOn(links), nil
}
