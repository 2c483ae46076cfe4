// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"slices"
	"strconv"
)

// providers returns the enabled providers, with the descriptions of an operator's configuration.
func (s *Service) providers() []record {
	out := []record{{"name": ovnName, "description": "Octavia OVN driver"}}
	if s.o.Amphora {
		out = append(out, record{"name": amphoraName, "description": "The Octavia Amphora driver."})
	}
	return out
}

func (c *call) routeProviders(rest []string) *controller {
	if len(rest) == 0 {
		return &controller{get: func() (answer, *fault) {
			out := c.providers()
			for i := range out {
				out[i] = c.pick(out[i])
			}
			return answer{200, record{"providers": out}}, c.allow(mayRead, c.who.ProjectID)
		}, extra: true}
	}
	if len(rest) < 2 || rest[1] != "flavor_capabilities" && rest[1] != "availability_zone_capabilities" {
		return nil
	}
	known := driver.flavors
	if rest[1] == "availability_zone_capabilities" {
		known = driver.zones
	}
	return &controller{get: func() (answer, *fault) { return c.capabilities(rest[0], rest[1], known) }, extra: true}
}

func (c *call) capabilities(provider, name string, known func(driver) (map[string]string, *fault)) (answer, *fault) {
	if bad := c.allow(mayAdmin, ""); bad != nil {
		return answer{}, bad
	}
	d, bad := c.driver(provider)
	if bad != nil {
		return answer{}, bad
	}
	keys, bad := known(d)
	if bad != nil {
		return answer{}, bad
	}
	out := []record{}
	for _, key := range sorted(keysOf(keys)) {
		if want := c.page.query.Get("name"); want == "" || want == key {
			out = append(out, c.pick(record{"name": key, "description": keys[key]}))
		}
	}
	return answer{200, record{name: out}}, nil
}

// routeAmphorae shows none, because amphorae are not simulated.
func (c *call) routeAmphorae(rest []string) *controller {
	return &controller{get: func() (answer, *fault) {
		if bad := c.allow(mayAdmin, ""); bad != nil {
			return answer{}, bad
		}
		if len(rest) > 0 {
			return answer{}, notFound("Amphora", rest[0])
		}
		return answer{200, record{"amphorae": []record{}, "amphorae_links": []record{}}}, nil
	}, extra: true}
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func keysOf[V any](m map[string]V) []string {
	out := []string{}
	for k := range m {
		out = append(out, k)
	}
	return out
}

func itoa(i int) string { return strconv.Itoa(i) }
