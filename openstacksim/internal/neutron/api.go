// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
)

// descriptions are what hack/neutron-api.py writes of the Neutron of each release.
//
//go:embed api-zed.json api-2025.1.json
var descriptions embed.FS

// api is Neutron's description of itself.
type api struct {
	Release    map[string]string        `json:"release"`
	Extensions []extension              `json:"extensions"`
	Resources  map[string]attributeList `json:"resources"`
	Policies   map[string]string        `json:"policies"`

	rules      map[string]check // of Policies, parsed
	converters map[string]converter
	validators map[string]validator
}

// extension is one of Neutron's extensions, as GET /v2.0/extensions shows it.
type extension struct {
	Name        string `json:"name"`
	Alias       string `json:"alias"`
	Description string `json:"description"`
	Updated     string `json:"updated"`
	Links       []any  `json:"links"`
}

// attribute is one attribute of a resource.
type attribute struct {
	Name          string     `json:"name"`
	AllowPost     bool       `json:"allow_post"`
	AllowPut      bool       `json:"allow_put"`
	Visible       *bool      `json:"is_visible"`
	Filter        bool       `json:"is_filter"`
	SortKey       bool       `json:"is_sort_key"`
	EnforcePolicy bool       `json:"enforce_policy"`
	HasDefault    bool       `json:"has_default"`
	Default       any        `json:"default"`
	ConvertTo     *convert   `json:"convert_to"`
	ConvertListTo *convert   `json:"convert_list_to"`
	Validate      []validate `json:"validate"`
}

// convert names a function of converters.
type convert struct {
	Name string `json:"name"`
}

// validate names a function of validators and its argument.
type validate struct {
	Rule string   `json:"rule"`
	Data any      `json:"data"`
	Keys []string `json:"keys"` // the keys of Data in order, if Data is a dictionary
}

// unspecified is how api-*.json writes that an attribute has no default.
const unspecified = "ATTR_NOT_SPECIFIED"

// attributeList holds the attributes of a resource in Neutron's order. The order decides which
// error comes first.
type attributeList struct {
	all    []*attribute
	byName map[string]*attribute
}

func (l *attributeList) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &l.all); err != nil {
		return err
	}
	l.byName = map[string]*attribute{}
	for _, a := range l.all {
		a.Default = plainNumbers(a.Default)
		for i := range a.Validate {
			a.Validate[i].Data = plainNumbers(a.Validate[i].Data)
		}
		l.byName[a.Name] = a
	}
	l.alias("tenant_id", "project_id")
	l.alias("project_id", "tenant_id")
	return nil
}

// alias adds a second name of an attribute. Neutron completes its maps in this way (neutron_lib
// 3.1.0: api/attributes.py, populate_project_info).
func (l *attributeList) alias(name, second string) {
	a := l.byName[name]
	if a == nil || l.byName[second] != nil {
		return
	}
	copied := *a
	copied.Name = second
	l.all, l.byName[second] = append(l.all, &copied), &copied
}

func (a *attribute) shown() bool { return a.Visible != nil && *a.Visible }

// optional reports whether a request may omit the attribute, and returns the default value, if
// any.
func (a *attribute) optional() (value any, filled, ok bool) {
	if !a.HasDefault {
		return nil, false, false
	}
	return a.Default, a.Default != unspecified, true
}

// ofZed and of2025 are the descriptions, which are read at first use.
var (
	ofZed  = sync.OnceValue(func() *api { return read("api-zed.json") })
	of2025 = sync.OnceValue(func() *api {
		a := read("api-2025.1.json")
		maps.Copy(a.converters, laterConverters)
		maps.Copy(a.validators, laterValidators)
		return a
	})
)

func read(name string) *api {
	data, err := descriptions.ReadFile(name)
	var a api
	if err = cmp.Or(err, json.Unmarshal(data, &a)); err != nil {
		panic(fmt.Sprintf("reading the embedded %s: %v", name, err))
	}
	a.rules, a.converters, a.validators = map[string]check{}, maps.Clone(converters), maps.Clone(validators)
	for name, text := range a.Policies {
		a.rules[name] = parseCheck(text)
	}
	return &a
}
