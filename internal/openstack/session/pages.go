// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// maxRestarts limits how often a list is restarted because the last object of a page was deleted
// before the next page was requested.
const maxRestarts = 3

// Listable is what lists are read of. Its key is its ID.
type Listable interface{ Key() string }

// errShifted means that the last object of a page no longer exists, so the start of the next page
// is unknown.
var errShifted = errors.New("the list has changed between two pages")

// ReadAll reads a list, page after page, and returns the objects that keep accepts; nil accepts
// all. The name of the list is the last element of the path. If the last object of a page is
// deleted before the next page is requested, ReadAll restarts the list. It never returns
// ErrNotFound for that.
func ReadAll[T Listable](ctx context.Context, b *Client, r Request, keep func(T) bool) ([]T, error) {
	for try := 1; ; try++ {
		all, err := readPages(ctx, b, r, keep)
		switch {
		case !errors.Is(err, errShifted):
			return all, err
		case try > maxRestarts:
			return nil, fmt.Errorf("%w: the last object of a page was deleted meanwhile, %d times: %w", sdn.ErrUnavailable, try, err)
		}
	}
}

// readPages reads a list once. The marker of a page is the last object of the previous one. If that
// object is deleted, Octavia answers 400. Neutron answers 404, an empty page, or the first page
// again, depending on the kind.
func readPages[T Listable](ctx context.Context, b *Client, r Request, keep func(T) bool) (all []T, err error) {
	r.Method, r.Query = http.MethodGet, maps.Clone(r.Query)
	r.Query.Set("limit", strconv.Itoa(b.Config.PageSize))
	seen := map[string]bool{} // on earlier pages
	ordered := r.Query.Get("sort_key") == "id"
	for marker := ""; ; {
		rows, more, err := readPage[T](ctx, b, r)
		switch {
		case marker != "" && (errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid)):
			return nil, fmt.Errorf("%w: %s", errShifted, err.Error())
		case err != nil:
			return nil, err
		case marker != "" && len(rows) == 0: // the last page was full, or this is no page
			r.Query.Del("marker")
			r.Query.Set("id", marker)
			rows, _, err = readPage[T](ctx, b, r)
			if err == nil && len(rows) == 0 {
				err = fmt.Errorf("%w: an empty page after %s", errShifted, marker)
			}
			return all, err
		case marker != "" && (seen[rows[0].Key()] || ordered && rows[0].Key() <= marker):
			return nil, fmt.Errorf("%w: the page after %s is an earlier one", errShifted, marker)
		}
		for _, row := range rows {
			seen[row.Key()] = true
			if keep == nil || keep(row) {
				all = append(all, row)
			}
		}
		if !more || len(rows) == 0 {
			return all, nil
		}
		marker = rows[len(rows)-1].Key()
		r.Query.Set("marker", marker)
	}
}

func readPage[T Listable](ctx context.Context, b *Client, r Request) (rows []T, more bool, err error) {
	var page map[string]json.RawMessage
	r.Out = &page
	if err := b.Do(ctx, r); err != nil {
		return nil, false, err
	}
	name := r.Path[len(r.Path)-1]
	key := strings.ReplaceAll(name, "-", "_") // security-groups
	if err := json.Unmarshal(page[key], &rows); err != nil {
		return nil, false, fmt.Errorf("%w: reading the list of %s: %w", sdn.ErrUnavailable, name, err)
	}
	type link struct{ Rel string }
	var links []link
	_ = json.Unmarshal(page[key+"_links"], &links) // without them it was the last page
	// The length does not show whether a page follows: a cloud may have its own limit.
	return rows, slices.Contains(links, link{"next"}), nil
}
