// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

func TestPodRoutes(t *testing.T) {
	const other4, other6 = "198.51.100.0/24", "2001:db8:1::/64"
	route := func(to, by string) v1.Route { return v1.Route{Destination: to, Gateway: by} }
	for _, test := range []struct {
		name   string
		routes []v1.Route
		want   []v1.Route
		says   []string // of each route that is left out
	}{
		{"none", nil, nil, nil},
		{"by a router", []v1.Route{route(other4, "10.0.0.1"), route(other6, "fd00::1")}, []v1.Route{route(other4, "10.0.0.1"), route(other6, "fd00::1")}, nil},
		{"by a router outside", []v1.Route{route(other4, "192.0.2.1"), route(other6, "fe80::1")}, []v1.Route{route(other4, "192.0.2.1"), route(other6, "fe80::1")}, nil},
		{"on the link", []v1.Route{route(other4, "0.0.0.0"), route(other6, "::")}, []v1.Route{route(other4, ""), route(other6, "")}, nil},
		{"default routes", []v1.Route{route("0.0.0.0/0", "10.0.0.2"), route("::/0", "::")}, []v1.Route{route("0.0.0.0/0", "10.0.0.2"), route("::/0", "")}, nil},
		{"host bits", []v1.Route{route("198.51.100.7/24", "10.0.0.1")}, []v1.Route{route(other4, "10.0.0.1")}, nil},
		{"by the pod itself", []v1.Route{route(other4, "10.0.0.5"), route(other6, "fd00::5")}, nil, nil},
		{"twice", []v1.Route{route(other4, "10.0.0.1"), route("198.51.100.1/24", "10.0.0.1")}, []v1.Route{route(other4, "10.0.0.1")}, nil},
		{"by two routers", []v1.Route{route(other4, "10.0.0.1"), route(other4, "10.0.0.2")}, []v1.Route{route(other4, "10.0.0.1")}, []string{"another route"}},
		{"by the pod itself or another", []v1.Route{route(other4, "10.0.0.5"), route(other4, "10.0.0.2")}, []v1.Route{route(other4, "10.0.0.2")}, nil},
		{"the subnet on the link", []v1.Route{route("10.0.0.0/24", "0.0.0.0"), route("fd00::/64", "::")}, nil, nil},
		{"the subnet by a router", []v1.Route{route("10.0.0.0/24", "10.0.0.1"), route("fd00::/64", "fd00::1")}, nil, []string{"the subnet itself", "the subnet itself"}},
		{"a part of the subnet by a router", []v1.Route{route("10.0.0.0/25", "10.0.0.1")}, []v1.Route{route("10.0.0.0/25", "10.0.0.1")}, nil},
		{"by all neighbours", []v1.Route{route(other4, "10.0.0.255"), route(other4, "10.0.0.0"), route(other4, "255.255.255.255")}, nil, []string{"broadcast", "network", "not the address of a router"}},
		{"by a multicast address", []v1.Route{route(other4, "224.0.0.1"), route(other6, "ff02::1")}, nil, []string{"router", "router"}},
		{"by the loopback address", []v1.Route{route(other4, "127.0.0.1"), route(other6, "::1")}, nil, []string{"router", "router"}},
		{"of two families", []v1.Route{route(other4, "fd00::1"), route(other6, "10.0.0.1")}, nil, []string{"family", "family"}},
		{"one of several", []v1.Route{route(other4, "224.0.0.1"), route("203.0.113.0/24", "10.0.0.1")}, []v1.Route{route("203.0.113.0/24", "10.0.0.1")}, []string{"router"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			vif := v1.VIF{Routes: test.routes, Addresses: []v1.Address{
				{IP: "10.0.0.5", PrefixLength: 24, Gateway: "10.0.0.1"}, {IP: "fd00::5", PrefixLength: 64, Gateway: "fd00::1"},
			}}
			got, leftOut := vif.PodRoutes()
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("PodRoutes() of %v (-want +got):\n%s", test.routes, diff)
			}
			if len(leftOut) != len(test.says) {
				t.Fatalf("PodRoutes() of %v left out %q, want %d", test.routes, leftOut, len(test.says))
			}
			for i, says := range test.says {
				if !strings.Contains(leftOut[i], says) {
					t.Errorf("PodRoutes() of %v left out %q, want a text with %q", test.routes, leftOut[i], says)
				}
			}
		})
	}
}
