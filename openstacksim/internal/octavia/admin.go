// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"encoding/json"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

// admin holds what operators set up: flavors and availability zones.
type admin struct {
	flavors        *table.Table[flavor]
	flavorProfiles *table.Table[flavorProfile]
	zones          *table.Table[zone]
	zoneProfiles   *table.Table[zoneProfile]
}

type flavor struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
	ProfileID   string `json:"flavor_profile_id"`
}

type flavorProfile struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Provider string `json:"provider_name"`
	Data     string `json:"flavor_data"`
}

type zone struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
	ProfileID   string `json:"availability_zone_profile_id"`
}

type zoneProfile struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Provider string `json:"provider_name"`
	Data     string `json:"availability_zone_data"`
}

func newAdmin() admin {
	return admin{
		flavors:        table.New(func(r *flavor) string { return r.ID }),
		flavorProfiles: table.New(func(r *flavorProfile) string { return r.ID }),
		zones:          table.New(func(r *zone) string { return r.Name }),
		zoneProfiles:   table.New(func(r *zoneProfile) string { return r.ID }),
	}
}

// resource is one kind of them. Its rows are plain, and change at once.
type resource[T any] struct {
	rows             *table.Table[T]
	api              schema
	one, many, title string
	used             string // title in errors about a row that is in use or missing
	argument, object string // names of the body's argument and of the object in it
	missing          string // name of the path's argument, in the refusal of a DELETE of the collection
	read             right
	set              func(row *T, id string) // gives a new row its ID
	check            func(row, old *T) *fault
	inUse            func(row *T) bool
}

func (c *call) routeAdmin(kind string, rest []string) *controller {
	switch kind {
	case "flavors":
		return routeResource(c, c.flavorKind(), rest)
	case "flavorprofiles":
		return routeResource(c, c.flavorProfileKind(), rest)
	case "availabilityzones":
		return routeResource(c, c.zoneKind(), rest)
	case "availabilityzoneprofiles":
		return routeResource(c, c.zoneProfileKind(), rest)
	}
	return nil
}

func (c *call) flavorKind() resource[flavor] {
	return resource[flavor]{
		rows: c.flavors, one: "flavor", many: "flavors", title: "Flavor", used: "Flavor", argument: "flavor_", object: "Flavor", missing: "flavor_id", read: mayRead,
		set: func(f *flavor, id string) { f.ID = id },
		check: func(f, old *flavor) *fault {
			for other := range c.flavors.All() {
				if old == nil && other.Name == f.Name {
					return refuse(409, "A flavor of %s already exists.", f.Name)
				}
			}
			// The database refuses an unknown profile.
			if _, ok := c.flavorProfiles.Get(f.ProfileID); !ok {
				return crash("Cannot add or update a child row: a foreign key constraint fails")
			}
			return nil
		},
		inUse: func(f *flavor) bool {
			return len(where(c.loadBalancers, func(lb *loadBalancer) bool {
				return lb.ProvisioningStatus != deleted && lb.FlavorID != nil && *lb.FlavorID == f.ID
			})) > 0
		},
	}
}

func (c *call) flavorProfileKind() resource[flavorProfile] {
	return resource[flavorProfile]{
		rows: c.flavorProfiles, one: "flavorprofile", many: "flavorprofiles", title: "Flavor Profile", used: "Flavor profile",
		argument: "flavor_profile_", object: "FlavorProfile", missing: "flavor_profile_id", read: mayAdmin,
		set: func(p *flavorProfile, id string) { p.ID = id },
		check: func(p, _ *flavorProfile) *fault {
			return c.accepted(p.Provider, p.Data, "flavor_data", driver.flavors)
		},
		inUse: func(p *flavorProfile) bool {
			return len(where(c.flavors, func(f *flavor) bool { return f.ProfileID == p.ID })) > 0
		},
	}
}

func (c *call) zoneKind() resource[zone] {
	return resource[zone]{
		rows: c.zones, one: "availability_zone", many: "availability_zones", title: "Availability Zone", used: "Availability Zone",
		argument: "availability_zone_", object: "AvailabilityZone", missing: "availability_zone_name", read: mayRead,
		check: func(z, old *zone) *fault {
			if _, there := c.zones.Get(z.Name); there && old == nil {
				return refuse(409, "A availability zone of %s already exists.", z.Name)
			}
			// The database refuses an unknown profile.
			if _, ok := c.zoneProfiles.Get(z.ProfileID); !ok {
				return crash("Cannot add or update a child row: a foreign key constraint fails")
			}
			return nil
		},
		inUse: func(z *zone) bool {
			return len(where(c.loadBalancers, func(lb *loadBalancer) bool {
				return lb.ProvisioningStatus != deleted && lb.AvailabilityZone != nil && *lb.AvailabilityZone == z.Name
			})) > 0
		},
	}
}

func (c *call) zoneProfileKind() resource[zoneProfile] {
	return resource[zoneProfile]{
		rows: c.zoneProfiles, one: "availability_zone_profile", many: "availability_zone_profiles", title: "Availability Zone Profile", used: "Availability Zone Profile",
		argument: "availability_zone_profile_", object: "AvailabilityZoneProfile", missing: "availability_zone_profile_id", read: mayAdmin,
		set: func(p *zoneProfile, id string) { p.ID = id },
		check: func(p, _ *zoneProfile) *fault {
			return c.accepted(p.Provider, p.Data, "availability_zone_data", driver.zones)
		},
		inUse: func(p *zoneProfile) bool {
			return len(where(c.zones, func(z *zone) bool { return z.ProfileID == p.ID })) > 0
		},
	}
}

// accepted checks whether the provider knows the settings of a profile.
func (c *call) accepted(provider, data, name string, known func(driver) (map[string]string, *fault)) *fault {
	var settings map[string]any
	if json.Unmarshal([]byte(data), &settings) != nil {
		return notOption(data, name)
	}
	d, bad := c.driver(provider)
	if bad != nil {
		return bad
	}
	keys, bad := known(d)
	if bad != nil {
		what := "flavors"
		if name != "flavor_data" {
			what = "availability zones"
		}
		return unimplemented(d.name(), "This provider does not support validating "+what+".")
	}
	for _, key := range sorted(keysOf(settings)) {
		if _, ok := keys[key]; !ok {
			return unsupported(d.name(), "Additional properties are not allowed ('%s' was unexpected)", key)
		}
	}
	return nil
}

func routeResource[T any](c *call, k resource[T], rest []string) *controller {
	k.api = c.api
	if len(rest) == 0 {
		return &controller{
			get: func() (answer, *fault) {
				if bad := c.allow(k.read, c.who.ProjectID); bad != nil {
					return answer{}, bad
				}
				return list(c, k.rows, k.many, "", nil, k.view)
			}, extra: true, remove: lacking(k.missing),
			post: &bodied{argument: k.argument, root: k.object + "RootPOST", do: func(in values) (answer, *fault) { return k.create(c, in) }},
			put:  &bodied{argument: k.argument, root: k.object + "RootPUT", need: "id"},
		}
	}
	id := rest[0]
	return &controller{
		get: func() (answer, *fault) {
			row, bad := k.find(c, id, k.read)
			if bad != nil {
				return answer{}, bad
			}
			return c.one(k.one, k.view(row), rest)
		}, extra: true,
		post:   misplaced(k.argument, k.object+"RootPOST", id),
		put:    &bodied{argument: k.argument, root: k.object + "RootPUT", do: func(in values) (answer, *fault) { return k.update(c, id, in) }},
		remove: func() (answer, *fault) { return k.remove(c, id) },
	}
}

func (k resource[T]) view(row *T) record { return show(k.api, k.object+"Response", row) }

func (k resource[T]) find(c *call, id string, r right) (*T, *fault) {
	if bad := c.allow(r, c.who.ProjectID); bad != nil {
		return nil, bad
	}
	row, ok := k.rows.Get(id)
	if !ok {
		return nil, notFound(k.title, id)
	}
	return row, nil
}

func (k resource[T]) create(c *call, body values) (answer, *fault) {
	in, bad := below(body, k.one, "name")
	if bad != nil {
		return answer{}, bad
	}
	if bad := c.allow(mayAdmin, ""); bad != nil {
		return answer{}, bad
	}
	row := new(T)
	apply(row, in)
	if bad := k.check(row, nil); bad != nil {
		return answer{}, bad
	}
	if k.set != nil {
		k.set(row, c.o.NewID())
	}
	k.rows.Put(row)
	return answer{201, record{k.one: k.view(row)}}, nil
}

func (k resource[T]) update(c *call, id string, body values) (answer, *fault) {
	in, bad := below(body, k.one, "name")
	if bad != nil {
		return answer{}, bad
	}
	old, bad := k.find(c, id, mayAdmin)
	if bad != nil {
		return answer{}, bad
	}
	for _, name := range []string{"name", "provider_name", "flavor_data", "availability_zone_data"} {
		if in.null(name) && in.given(name) {
			return answer{}, notOption("None", name)
		}
	}
	if (in.given("provider_name") || in.given("flavor_data") || in.given("availability_zone_data")) && k.inUse(old) {
		return answer{}, refuse(409, "%s %s is in use and cannot be modified.", k.used, id)
	}
	row := *old
	apply(&row, in)
	if bad := k.check(&row, old); bad != nil {
		return answer{}, bad
	}
	k.rows.Put(&row)
	return answer{200, record{k.one: k.view(&row)}}, nil
}

func (k resource[T]) remove(c *call, id string) (answer, *fault) {
	row, bad := k.find(c, id, mayAdmin)
	if bad != nil {
		return answer{}, bad
	}
	if k.inUse(row) {
		return answer{}, refuse(409, "%s %s is in use and cannot be modified.", k.used, id)
	}
	k.rows.Delete(id)
	return answer{status: 204}, nil
}
