// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Router is the router of a network's subnets.
type Router struct {
	ID      string       // empty: there is none, or none yet
	Outside []netip.Addr // its addresses in its external network
}

// RouterWork is what is to be done to the router that Kuryr makes for a network. After Create the
// work is to be planned again: a new router has no routes.
type RouterWork struct {
	Create *sdn.RouterSpec   // nil: it is there, or none is wanted
	Update *sdn.RouterUpdate // nil: it is as wanted
}

// Routed reports whether the subnets of a network are to have interfaces of a router.
func Routed(spec *v1.KuryrNetworkSpec) bool { return spec.RouterID != "" || spec.Router != nil }

// MissingRouter compares the spec of a namespace's network with the router that the cloud has for
// it; without an ID it has none. Without a wish for SNAT, the router keeps what it has.
func MissingRouter(namespace string, spec *v1.KuryrNetworkSpec, is sdn.OwnRouter) RouterWork {
	want := spec.Router
	if want == nil {
		return RouterWork{}
	}
	gateway := sdn.Gateway{NetworkID: want.ExternalNetworkID, SNAT: want.SNAT}
	if is.ID == "" {
		return RouterWork{Create: &sdn.RouterSpec{Name: sdn.NetworkName(spec.NamespaceUID, namespace), ProjectID: spec.ProjectID, Gateway: gateway}}
	}
	var u sdn.RouterUpdate
	moved := is.Gateway.NetworkID != gateway.NetworkID
	translated := gateway.SNAT != nil && (is.Gateway.SNAT == nil || *is.Gateway.SNAT != *gateway.SNAT)
	if moved || translated {
		u.Gateway = &gateway
	}
	if moved || !slices.Equal(sorted(is.Routes), sorted(want.Routes)) {
		u.Routes = new(slices.Clone(want.Routes))
	}
	if u == (sdn.RouterUpdate{}) {
		return RouterWork{}
	}
	return RouterWork{Update: &u}
}
