// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"strings"
)

// versions returns Neutron's answer at its root.
func (c *call) versions() any {
	return map[string]any{"versions": []any{map[string]any{
		"id": "v2.0", "status": "CURRENT",
		"links": []link{{Rel: "self", Href: c.URL + "/v2.0/"}},
	}}}
}

// resources answers /v2.0/ with the core resources. Without the slash the path does not exist
// (neutron 21.0.0: pecan_wsgi/controllers/root.py).
func (c *call) resources(path string) (int, any, *fault) {
	if c.request.Method != http.MethodGet {
		return 0, nil, notAllowed()
	}
	if !strings.HasSuffix(path, "/") {
		return 0, nil, noSuchPath()
	}
	layout := []any{}
	for _, one := range []string{"network", "subnet", "subnetpool", "port"} {
		layout = append(layout, map[string]any{
			"name": one, "collection": one + "s",
			"links": []link{{Rel: "self", Href: c.URL + "/v2.0/" + one + "s"}},
		})
	}
	return http.StatusOK, map[string]any{"resources": layout}, nil
}

// extensions answers with the extensions of the release, which api-*.json lists.
func (c *call) extensions(rest []string) (int, any, *fault) {
	if c.request.Method != http.MethodGet {
		return 0, nil, notAllowed()
	}
	if len(rest) == 0 {
		return http.StatusOK, map[string]any{"extensions": c.api.Extensions}, nil
	}
	for _, e := range c.api.Extensions {
		if e.Alias == rest[0] && len(rest) == 1 {
			return http.StatusOK, map[string]any{"extension": e}, nil
		}
	}
	return 0, nil, noExtension(rest[0])
}
