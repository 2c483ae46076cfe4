// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"slices"
	"strconv"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

// addressGroup is a list of addresses that rules may name.
type addressGroup struct {
	standard
	Name      string   `json:"name"`
	Shared    bool     `json:"shared"`
	Addresses []string `json:"addresses"` // in the database's order; never changed in place

	AttributesID int `json:"standard_attr_id"`
}

func (s *Service) registerAddressGroups() {
	s.addressGroups = &kind[addressGroup]{
		one: "address_group", many: "address_groups", title: "AddressGroup",
		create: createAddressGroup, remove: removeAddressGroup,
		update: func(*call, *addressGroup, *addressGroup, values) *fault { return nil },
		missing: func(id string) *fault {
			return refuse(404, "AddressGroupNotFound", "Address group %s could not be found.", id)
		},
	}
	register(s, s.addressGroups)
	s.action("PUT", "/address-groups/{id}/add_addresses", addAddresses)
	s.action("PUT", "/address-groups/{id}/remove_addresses", removeAddresses)
}

func createAddressGroup(c *call, g *addressGroup, in values) *fault {
	wanted := in.list("addresses")
	g.Addresses = []string{}
	present, absent, f := g.sorted(wanted)
	if f != nil {
		return f
	}
	g.Addresses = sortedAddresses(present, absent)
	g.AttributesID = c.attributesID()
	g.RevisionNumber = len(g.Addresses) // one for each address stored (observed)
	return nil
}

// sorted returns addresses in the database's form, without duplicates, split by whether the group
// has them.
func (g *addressGroup) sorted(wanted []any) (present, absent []string, f *fault) {
	for _, w := range wanted {
		address, bits, ok := parseNetwork(show(w))
		if !ok {
			// This is netaddr's own error, for a plain address (observed).
			return nil, nil, refuse(400, "AddrFormatError", "invalid IPNetwork %s", show(w))
		}
		s := masked(address, bits).Masked().Addr().String() + "/" + strconv.Itoa(bits)
		switch {
		case slices.Contains(present, s) || slices.Contains(absent, s):
		case slices.Contains(g.Addresses, s):
			present = append(present, s)
		default:
			absent = append(absent, s)
		}
	}
	return present, absent, nil
}

func sortedAddresses(a, b []string) []string {
	out := append(append([]string{}, a...), b...)
	slices.Sort(out)
	return out
}

func addAddresses(c *call, id string, body map[string]any) (any, *fault) {
	return changeAddressGroup(c, id, body, func(g *addressGroup, present, absent []string) *fault {
		if len(present) > 0 {
			return refuse(400, "AddressesAlreadyExist", "Addresses %s already exist in the address group %s.", repr(present), id)
		}
		g.Addresses = sortedAddresses(g.Addresses, absent)
		return nil
	})
}

func removeAddresses(c *call, id string, body map[string]any) (any, *fault) {
	return changeAddressGroup(c, id, body, func(g *addressGroup, present, absent []string) *fault {
		if len(absent) > 0 {
			return refuse(404, "AddressesNotFound", "Addresses %s not found in the address group %s.", repr(absent), id)
		}
		g.Addresses = slices.DeleteFunc(slices.Clone(g.Addresses), func(a string) bool { return slices.Contains(present, a) })
		return nil
	})
}

func changeAddressGroup(c *call, id string, body map[string]any, change func(g *addressGroup, present, absent []string) *fault) (any, *fault) {
	old, f := c.addressGroups.find(c, id)
	if f != nil {
		return nil, f
	}
	if !c.owns(old.ProjectID) {
		return nil, noSuchPath()
	}
	// Neutron 21 answers 500 to a body without the list.
	wanted, ok := body["addresses"].([]any)
	if text, isText := body["addresses"].(string); isText && text != "" {
		wanted, ok = letters(text), true
	}
	if !ok {
		return nil, badRequest("Invalid input for addresses. Reason: '%s' is not a list.", show(body["addresses"]))
	}
	g := *old
	present, absent, f := g.sorted(wanted)
	if f == nil {
		f = change(&g, present, absent)
	}
	if f != nil {
		return nil, f
	}
	g.touch(c)
	c.addressGroups.put(c, &g)
	// The answer shows more fields than other answers, but no tags (observed).
	fields := []string{
		"id", "project_id", "tenant_id", "name", "description", "shared", "addresses", "revision_number", "created_at", "updated_at",
	}
	if c.Later {
		fields = append(fields, "standard_attr_id")
	}
	return map[string]any{"address_group": table.Project(&g, fields)}, nil
}

// letters returns the letters of a text, because Python iterates over a text by letter.
func letters(text string) []any {
	var out []any
	for _, r := range text {
		out = append(out, string(r))
	}
	return out
}

func removeAddressGroup(c *call, g *addressGroup) *fault {
	for r := range c.rules.rows.All() {
		if r.RemoteAddress != nil && *r.RemoteAddress == g.ID {
			return conflict("AddressGroupInUse", "Address group %s is in use on one or more security group rules.", g.ID)
		}
	}
	return nil
}
