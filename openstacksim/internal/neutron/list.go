// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

// parameters are the query parameters that are no filters.
var parameters = []string{"fields", "sort_key", "sort_dir", "limit", "marker", "page_reverse"}

// fields returns the fields that the request asks for; nil is all.
func (c *call) fields() []string {
	if c.request == nil {
		return nil
	}
	return c.query()["fields"]
}

// query returns the parsed query. It is parsed once a request.
func (c *call) query() url.Values {
	if c.parsed == nil {
		c.parsed = c.request.URL.Query()
	}
	return c.parsed
}

// list answers a GET of the collection.
func (k *kind[T]) list(c *call) (any, *fault) {
	if k.listing != nil {
		k.listing(c)
	}
	query := c.query()
	q, keep, f := k.filter(c, query)
	if f != nil {
		return nil, f
	}
	if q.Limit, f = limitOf(query); f != nil {
		return nil, f
	}
	if q.Sort, f = k.sorting(query); f != nil {
		return nil, f
	}
	q.Reverse = strings.EqualFold(query.Get("page_reverse"), "true")
	if q.Limit > 0 { // a marker without a limit is ignored
		q.Marker = query.Get("marker")
	}
	rows, f := k.page(q, keep)
	if f != nil {
		return nil, f
	}
	return &page[T]{k, c, k.views(c, rows), links(c, q, rows)}, nil
}

// page returns the rows of a page. lost decides what follows a marker that does not exist.
func (k *kind[T]) page(q table.Query, keep func(*T) bool) ([]*T, *fault) {
	rows, _, err := k.rows.Select(q, keep)
	var marker *table.MarkerError
	switch {
	case err == nil:
		return rows, nil
	case !errors.As(err, &marker):
		return nil, badRequest("%v", err)
	case k.lost == refusesPage:
		return nil, k.notFound(marker.Marker)
	case k.lost == showsNothing:
		return nil, nil
	}
	q.Marker = ""
	return k.page(q, keep)
}

// filter converts the query's filters to those of the table and a test of rows.
func (k *kind[T]) filter(c *call, query url.Values) (q table.Query, keep func(*T) bool, f *fault) {
	q.Filters = map[string][]string{}
	tests, wrong := []func(*T) bool{}, []string{}
	for _, name := range sortedKeys(query) {
		if slices.Contains(parameters, name) {
			continue
		}
		a := k.attrs.byName[name]
		if a == nil || !a.Filter {
			wrong = append(wrong, name)
			continue
		}
		given := slices.DeleteFunc(slices.Clone(query[name]), func(s string) bool { return s == "" })
		if given, f = a.filterValues(c.api, given); f != nil {
			return q, nil, f
		}
		if len(given) == 0 {
			continue
		}
		if special := k.special(name); special != nil {
			tests = append(tests, func(row *T) bool { return special(c, row, given) })
		} else if k.fields[name] != nil {
			q.Filters[name] = given
		}
	}
	if len(wrong) > 0 {
		return q, nil, badRequest("%s is invalid attribute for filtering", repr(wrong))
	}
	if !c.admin() {
		tests = append(tests, func(row *T) bool { return k.sees(c, row) })
	}
	return q, all(tests), nil
}

// all returns a test that passes if all tests pass; nil without tests.
func all[T any](tests []func(*T) bool) func(*T) bool {
	switch len(tests) {
	case 0:
		return nil
	case 1:
		return tests[0]
	}
	return func(row *T) bool {
		for _, test := range tests {
			if !test(row) {
				return false
			}
		}
		return true
	}
}

// special returns the test of a filter that is no plain field.
func (k *kind[T]) special(name string) func(*call, *T, []string) bool {
	if test := k.filters[name]; test != nil {
		return test
	}
	if match := tagFilters[name]; match != nil {
		return func(_ *call, row *T, wanted []string) bool { return match(commonOf(row).Tags, wanted) }
	}
	return nil
}

// filterValues converts a filter's values like values of the attribute.
func (a *attribute) filterValues(from *api, given []string) ([]string, *fault) {
	if a.ConvertListTo != nil {
		for _, s := range given {
			if key, _, ok := strings.Cut(s, "="); len(given) == 1 && s == "True" {
				return nil, nil
			} else if !ok || strings.TrimSpace(key) == "" {
				return nil, invalid("'%s' is not of the form <key>=[value]", s)
			}
		}
		return given, nil
	}
	if a.Name == "mac_address" {
		return plainMACs(given), nil
	}
	if a.ConvertTo == nil {
		return given, nil
	}
	out := make([]string, len(given))
	for i, s := range given {
		v, f := from.converters[a.ConvertTo.Name](s)
		if f != nil {
			return nil, f
		}
		out[i] = fmt.Sprint(v)
	}
	return out, nil
}

func limitOf(query url.Values) (int, *fault) {
	s := query.Get("limit")
	if !query.Has("limit") {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 {
		return 0, refuse(http.StatusBadRequest, "BadRequest", "Bad limit request: Limit must be an integer 0 or greater and not '%s'.", s)
	}
	return n, nil
}

func (k *kind[T]) sorting(query url.Values) ([]table.Key, *fault) {
	drop := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
	}
	keys, dirs := drop(query["sort_key"]), drop(query["sort_dir"])
	if len(keys) != len(dirs) {
		return nil, badRequest("The number of sort_keys and sort_dirs must be same")
	}
	absent := slices.DeleteFunc(slices.Clone(keys), func(s string) bool {
		a := k.attrs.byName[s]
		return a != nil && a.SortKey
	})
	if len(absent) > 0 {
		return nil, badRequest("%s is invalid attribute for sort_keys", repr(absent))
	}
	wrong := slices.DeleteFunc(slices.Clone(dirs), func(s string) bool { return s == "asc" || s == "desc" })
	if len(wrong) > 0 {
		return nil, badRequest("%s is invalid value for sort_dirs, valid value is 'asc' and 'desc'", repr(wrong))
	}
	var out []table.Key
	for i, key := range keys {
		out = append(out, table.Key{Field: key, Desc: dirs[i] == "desc"})
	}
	return out, nil
}

// link leads to another page.
type link struct {
	Rel  string `json:"rel"`
	Href string `json:"href"`
}

// links returns the links to the pages around this one. A full page has a next page, even if it
// is the last one (neutron 21.0.0: api/api_common.py).
func links[T any](c *call, q table.Query, rows []*T) []link {
	if q.Limit == 0 {
		return nil
	}
	first, last := "", ""
	if len(rows) > 0 {
		first, last = commonOf(rows[0]).ID, commonOf(rows[len(rows)-1]).ID
	}
	var out []link
	part := len(rows) < q.Limit
	if !part || q.Reverse {
		out = append(out, link{"next", c.pageURL(last, false)})
	}
	if !part || !q.Reverse {
		out = append(out, link{"previous", c.pageURL(first, true)})
	}
	return out
}

// pageURL returns the request's own URL with another marker. The parameters keep their order; the
// marker comes last.
func (c *call) pageURL(marker string, reverse bool) string {
	var kept []string
	for part := range strings.SplitSeq(c.request.URL.RawQuery, "&") {
		name, value, _ := strings.Cut(part, "=")
		if name == "" || name == "marker" || name == "page_reverse" {
			continue
		}
		n, _ := url.QueryUnescape(name)
		v, _ := url.QueryUnescape(value)
		kept = append(kept, url.QueryEscape(n)+"="+url.QueryEscape(v))
	}
	if marker != "" {
		kept = append(kept, "marker="+url.QueryEscape(marker))
	}
	if reverse {
		kept = append(kept, "page_reverse=True")
	}
	return c.URL + c.request.URL.Path + "?" + strings.Join(kept, "&")
}
