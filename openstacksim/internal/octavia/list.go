// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

// pageMax is Octavia's default of pagination_max_limit.
const pageMax = 1000

// page holds the order and paging parameters of a GET: octavia 11.0.0, api/common/pagination.py.
type page struct {
	limit   int // 0: Octavia fails, unless the list is empty
	marker  string
	reverse bool
	sort    []table.Key
	query   url.Values
}

// readPage runs before the handler, whether or not that uses pages.
func (c *call) readPage() *fault {
	q := c.r.URL.Query()
	c.page = &page{marker: q.Get("marker"), reverse: q.Get("page_reverse") == "True", query: q, limit: pageMax}
	if q.Has("limit") && q.Get("limit") != "infinite" {
		n, err := strconv.Atoi(strings.TrimSpace(q.Get("limit")))
		if err != nil {
			return badQuery("Supplied pagination limit '%s' is not valid.", q.Get("limit"))
		}
		c.page.limit = min(max(n, 0), pageMax)
	} else if q.Has("limit") {
		c.page.limit = 0
	}
	return c.page.readSort()
}

func (p *page) readSort() *fault {
	if sort := p.query.Get("sort"); sort != "" {
		for _, one := range strings.Split(sort, ",") {
			parts := strings.Split(one, ":")
			if len(parts) > 2 {
				list := make([]any, len(parts))
				for i, part := range parts {
					list[i] = part
				}
				return badQuery("Supplied sort key '%s' is not valid.", repr(list))
			}
			if bad := p.addSort(parts[0], strings.Join(parts[1:], "")); bad != nil {
				return bad
			}
		}
		return nil
	}
	keys := p.query.Get("sort_key")
	if keys == "" {
		return nil
	}
	dirs := strings.Split(p.query.Get("sort_dir"), ",")
	for i, key := range strings.Split(keys, ",") {
		dir := ""
		if i < len(dirs) {
			dir = dirs[i]
		}
		if bad := p.addSort(key, dir); bad != nil {
			return bad
		}
	}
	return nil
}

func (p *page) addSort(key, dir string) *fault {
	dir = strings.ToLower(dir)
	if dir != "" && dir != "asc" && dir != "desc" {
		return badQuery("Supplied sort direction '%s' is not valid.", dir)
	}
	p.sort = append(p.sort, table.Key{Field: key, Desc: dir == "desc"})
	return nil
}

var auxiliary = []string{"limit", "marker", "sort", "sort_key", "sort_dir", "fields", "page_reverse"}

// list answers a list call with the rows that pass keep. Unless project is empty, it restricts
// them to that project.
func list[T any](c *call, t *table.Table[T], many, project string, keep func(*T) bool, view func(*T) record) (answer, *fault) {
	filters, tags, bad := filtersOf[T](c.page.query)
	if bad != nil {
		return answer{}, bad
	}
	if project != "" {
		filters["project_id"] = []string{project}
	}
	rows, _, err := t.Select(table.Query{Filters: filters, Sort: orderOf[T](c.page)}, func(row *T) bool {
		return (keep == nil || keep(row)) && tags.match(row)
	})
	var field *table.FieldError
	if errors.As(err, &field) {
		return answer{}, refuse(400, "Supplied sort key '%s' is not valid.", field.Field)
	}
	if rows, bad = cut(c.page, t, rows); bad != nil {
		return answer{}, bad
	}
	links, bad := c.links(idOf(rows, 0), idOf(rows, len(rows)-1), len(rows))
	if bad != nil {
		return answer{}, bad
	}
	out := each(rows, view)
	for i := range out {
		out[i] = c.pick(out[i])
	}
	return answer{200, record{many: out, linksOf(many): links}}, nil
}

// linksOf returns the name of a list's links. Two of the names in Octavia lack their s.
func linksOf(many string) string {
	switch many {
	case "flavorprofiles":
		return "flavorprofile_links"
	case "availability_zone_profiles":
		return "availability_zone_profile_links"
	}
	return many + "_links"
}

func idOf[T any](rows []*T, i int) string {
	if i < 0 || i >= len(rows) {
		return ""
	}
	id, _ := table.Value(rows[i], "id").(string)
	return id
}

// orderOf adds the fields by which every list is sorted last.
func orderOf[T any](p *page) []table.Key {
	out := slices.Clone(p.sort)
	for _, field := range []string{"created_at", "id"} {
		if table.Has[T](field) && !slices.ContainsFunc(p.sort, func(k table.Key) bool { return k.Field == field }) {
			out = append(out, table.Key{Field: field})
		}
	}
	return out
}

// cut returns one page. With page_reverse it is the first rows of the list before the marker, not
// the last ones: Octavia does not reverse the order.
func cut[T any](p *page, t *table.Table[T], rows []*T) ([]*T, *fault) {
	if p.marker != "" {
		if _, ok := t.Get(p.marker); !ok {
			return nil, refuse(400, "Supplied pagination marker '%s' is not valid.", p.marker)
		}
		i := slices.IndexFunc(rows, func(r *T) bool { return table.Value(r, "id") == p.marker })
		switch {
		case i < 0:
			rows = nil
		case p.reverse:
			rows = rows[:i]
		default:
			rows = rows[i+1:]
		}
	}
	if p.limit > 0 && len(rows) > p.limit {
		rows = rows[:p.limit]
	}
	return rows, nil
}

func (c *call) links(first, last string, n int) ([]record, *fault) {
	p, out := c.page, []record{}
	if n == 0 {
		return out, nil
	}
	query := "limit=" + strconv.Itoa(p.limit)
	switch { // Observed: ?limit=0 of a list that is not empty.
	case p.limit == 0 && c.o.Later:
		query = "limit=None"
	case p.limit == 0:
		return nil, crash("'>=' not supported between instances of 'int' and 'NoneType'")
	}
	for _, name := range []string{"sort", "sort_key"} {
		if v := p.query.Get(name); v != "" {
			query += "&" + name + "=" + v
		}
	}
	href := strings.TrimSuffix(c.o.URL, "/") + c.r.URL.Path + "?" + query + "&marker="
	if p.marker != "" {
		out = append(out, record{"rel": "previous", "href": href + first + "&page_reverse=True"})
	}
	if n >= p.limit {
		out = append(out, record{"rel": "next", "href": href + last})
	}
	return out, nil
}

// pick returns the requested fields.
func (c *call) pick(r record) record {
	fields, asked := c.r.URL.Query()["fields"]
	if !asked {
		return r
	}
	for name := range r {
		if !slices.Contains(fields, name) {
			delete(r, name)
		}
	}
	return r
}

// tagFilter maps each of the four parameters to its tags.
type tagFilter map[string][]string

var tagFilters = []string{"tags", "tags-any", "not-tags", "not-tags-any"}

func filtersOf[T any](query url.Values) (map[string][]string, tagFilter, *fault) {
	filters, tags := map[string][]string{}, tagFilter{}
	for name, v := range query {
		switch {
		case slices.Contains(auxiliary, name):
			continue
		case slices.Contains(tagFilters, name) && table.Has[T]("tags"):
			for _, one := range v {
				tags[name] = append(tags[name], strings.Split(one, ",")...)
			}
			continue
		case name == "loadbalancer_id":
			name = "load_balancer_id"
		}
		if !table.Has[T](name) || len(v) > 1 {
			return nil, nil, refuse(400, "One or more arguments are either duplicate or invalid")
		}
		filters[name] = v
	}
	return filters, tags, nil
}

func (f tagFilter) match(row any) bool {
	if len(f) == 0 {
		return true
	}
	b, ok := row.(interface{ tagged() []string })
	if !ok {
		return true
	}
	has := func(tag string) bool { return slices.Contains(b.tagged(), tag) }
	all := func(tags []string) bool { return !slices.ContainsFunc(tags, func(t string) bool { return !has(t) }) }
	return all(f["tags"]) &&
		(f["tags-any"] == nil || slices.ContainsFunc(f["tags-any"], has)) &&
		(f["not-tags"] == nil || !all(f["not-tags"])) &&
		(f["not-tags-any"] == nil || !slices.ContainsFunc(f["not-tags-any"], has))
}

func (b *base) tagged() []string { return b.Tags }
