// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package table_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

type base struct {
	ID   string   `json:"id"`
	Tags []string `json:"tags"`
}

type row struct {
	base
	Name   string  `json:"name"`
	Up     bool    `json:"up"`
	Number int     `json:"number"`
	Parent *string `json:"parent"`
	secret string
}

func fill(rows ...row) *table.Table[row] {
	t := table.New(func(r *row) string { return r.ID })
	for i := range rows {
		t.Put(&rows[i])
	}
	return t
}

func ids(rows []*row) []string {
	out := []string{}
	for _, r := range rows {
		out = append(out, r.ID)
	}
	return out
}

func abc() *table.Table[row] {
	top := "top"
	return fill(
		row{base: base{ID: "c", Tags: []string{"x"}}, Name: "n1", Up: true, Number: 10},
		row{base: base{ID: "a"}, Name: "n2", Number: 9, Parent: &top},
		row{base: base{ID: "d", Tags: []string{"x", "y"}}, Name: "n1", Number: 9},
		row{base: base{ID: "b"}, Name: "n3", Up: true, Number: 10},
	)
}

func TestSelect(t *testing.T) {
	for name, c := range map[string]struct {
		query table.Query
		keep  func(*row) bool
		want  []string
		more  bool
	}{
		"all by ID":            {want: []string{"a", "b", "c", "d"}},
		"by name":              {query: table.Query{Filters: map[string][]string{"name": {"n1", "n3"}}}, want: []string{"b", "c", "d"}},
		"by truth":             {query: table.Query{Filters: map[string][]string{"up": {"True"}}}, want: []string{"b", "c"}},
		"by number":            {query: table.Query{Filters: map[string][]string{"number": {"9"}}}, want: []string{"a", "d"}},
		"by null":              {query: table.Query{Filters: map[string][]string{"parent": {""}}}, want: []string{"b", "c", "d"}},
		"by what it points to": {query: table.Query{Filters: map[string][]string{"parent": {"top"}}}, want: []string{"a"}},
		"by one of a list":     {query: table.Query{Filters: map[string][]string{"tags": {"y"}}}, want: []string{"d"}},
		"by an unknown field":  {query: table.Query{Filters: map[string][]string{"colour": {"red"}}}, want: []string{"a", "b", "c", "d"}},
		"by two fields":        {query: table.Query{Filters: map[string][]string{"name": {"n1"}, "number": {"9"}}}, want: []string{"d"}},
		"kept":                 {keep: func(r *row) bool { return r.ID > "b" }, want: []string{"c", "d"}},
		"sorted":               {query: table.Query{Sort: []table.Key{{Field: "number"}, {Field: "name", Desc: true}}}, want: []string{"a", "d", "b", "c"}},
		"first page":           {query: table.Query{Limit: 3}, want: []string{"a", "b", "c"}, more: true},
		"just a page":          {query: table.Query{Limit: 4}, want: []string{"a", "b", "c", "d"}},
		"next page":            {query: table.Query{Limit: 3, Marker: "c"}, want: []string{"d"}},
		"page after a row that is filtered out": {
			query: table.Query{Filters: map[string][]string{"name": {"n1"}}, Marker: "b", Limit: 1}, want: []string{"c"}, more: true,
		},
		"page of an order":     {query: table.Query{Sort: []table.Key{{Field: "number"}}, Marker: "d", Limit: 1}, want: []string{"b"}, more: true},
		"page back":            {query: table.Query{Marker: "d", Limit: 2, Reverse: true}, want: []string{"b", "c"}, more: true},
		"page back to the top": {query: table.Query{Marker: "c", Limit: 2, Reverse: true}, want: []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, more, err := abc().Select(c.query, c.keep)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, ids(got)); diff != "" || more != c.more {
				t.Errorf("Select: more = %t, want %t; rows (-want +got):\n%s", more, c.more, diff)
			}
		})
	}
}

func TestSelectRefuses(t *testing.T) {
	var marker *table.MarkerError
	if _, _, err := abc().Select(table.Query{Marker: "z"}, nil); !errors.As(err, &marker) || marker.Marker != "z" {
		t.Errorf("a marker of nothing: %v, want a MarkerError", err)
	}
	var field *table.FieldError
	if _, _, err := abc().Select(table.Query{Sort: []table.Key{{Field: "secret"}}}, nil); !errors.As(err, &field) || field.Field != "secret" {
		t.Errorf("sorted by what is no field: %v, want a FieldError", err)
	}
}

// TestPagesAreTheWhole pages through tables in any order, and joins the pages.
func TestPagesAreTheWhole(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := table.New(func(r *row) string { return r.ID })
		for i := range r.IntN(20) {
			all.Put(&row{base: base{ID: fmt.Sprintf("%02d", (i*7)%20)}, Number: r.IntN(4), Up: r.IntN(2) == 0})
		}
		q := table.Query{Limit: 1 + r.IntN(5), Filters: map[string][]string{"up": {"true"}}}
		if r.IntN(2) == 0 {
			q.Sort = []table.Key{{Field: "number", Desc: r.IntN(2) == 0}}
		}
		whole, _, err := all.Select(table.Query{Sort: q.Sort, Filters: q.Filters}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var pages []*row
		for more := true; more; {
			var page []*row
			if page, more, err = all.Select(q, nil); err != nil {
				t.Fatal(err)
			}
			pages = append(pages, page...)
			if len(page) > 0 {
				q.Marker = page[len(page)-1].ID
			}
		}
		if !slices.Equal(ids(whole), ids(pages)) {
			t.Fatalf("seed %d: pages %v, want %v", seed, ids(pages), ids(whole))
		}
	}
}

func TestPutDeleteGet(t *testing.T) {
	all := abc()
	all.Put(&row{base: base{ID: "b"}, Name: "again", secret: "s"})
	all.Delete("a")
	all.Delete("never was")
	if got, ok := all.Get("b"); !ok || got.Name != "again" || all.Len() != 3 {
		t.Errorf("Get(b) = %+v, %t of %d rows", got, ok, all.Len())
	}
	if _, ok := all.Get("a"); ok {
		t.Error("a is still there")
	}
	if got := ids(slices.Collect(all.All())); !slices.Equal(got, []string{"b", "c", "d"}) {
		t.Errorf("All = %v", got)
	}
}

func TestProject(t *testing.T) {
	r, _ := abc().Get("c")
	for fields, want := range map[string]string{
		"":          `{"id":"c","tags":["x"],"name":"n1","up":true,"number":10,"parent":null}`,
		"name":      `{"name":"n1"}`,
		"secret":    `{}`,
		"parent,id": `{"id":"c","parent":null}`,
	} {
		var names []string
		if fields != "" {
			names = strings.Split(fields, ",")
		}
		got, err := json.Marshal(table.Project(r, names))
		if err != nil || string(got) != want {
			t.Errorf("Project(%s) = %s, %v; want %s", fields, got, err, want)
		}
	}
	if !table.Has[row]("tags") || table.Has[row]("secret") {
		t.Error("Has is wrong about tags or secret")
	}
	if got := table.Value(r, "number"); got != 10 {
		t.Errorf("Value(number) = %v", got)
	}
}

// BenchmarkSelect filters 100,000 rows by a field that few rows match.
func BenchmarkSelect(b *testing.B) {
	all := table.New(func(r *row) string { return r.ID })
	for i := range 100_000 {
		all.Put(&row{base: base{ID: fmt.Sprintf("%06d", i), Tags: []string{fmt.Sprint("t", i%1000)}}, Name: fmt.Sprint("n", i%1000)})
	}
	for _, field := range []string{"name", "tags"} {
		b.Run(field, func(b *testing.B) {
			value := map[string]string{"name": "n7", "tags": "t7"}[field]
			for b.Loop() {
				rows, _, err := all.Select(table.Query{Filters: map[string][]string{field: {value}}}, nil)
				if err != nil || len(rows) != 100 {
					b.Fatal(len(rows), err)
				}
			}
		})
	}
}
