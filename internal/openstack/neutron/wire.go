// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Neutron's objects, with the fields that Kuryr uses.

// object is a body in which null is not the same as nothing.
type object = map[string]any

const (
	deviceOwner        = "compute:kuryr"
	subportDeviceOwner = "trunk:subport"

	vifUnbound = "unbound"
	vifFailed  = "binding_failed"

	statusActive = "ACTIVE"
	// macvlan is no word of Neutron's: ports of that type it does not bind.
	macvlan = "macvlan"
)

type wirePort struct {
	resource
	Status         string          `json:"status"`
	NetworkID      string          `json:"network_id"`
	MACAddress     string          `json:"mac_address"`
	FixedIPs       []wireIP        `json:"fixed_ips"`
	SecurityGroups []string        `json:"security_groups"`
	DeviceOwner    string          `json:"device_owner"`
	DeviceID       string          `json:"device_id"`
	HostID         *string         `json:"binding:host_id"` // nil: it is not shown
	VIFType        string          `json:"binding:vif_type"`
	VIFDetails     json.RawMessage `json:"binding:vif_details"`
	Created        time.Time       `json:"created_at"`
	Trunk          *wireTrunk      `json:"trunk_details"`
	Revision       int             `json:"revision_number"`
	Pairs          []wirePair      `json:"allowed_address_pairs"`
	Secure         *bool           `json:"port_security_enabled"` // nil: this Neutron has no such switch
	Tags           []string        `json:"tags"`
}

// host returns the host that a port is bound to; empty if none, or if it is not shown.
func (w wirePort) host() string {
	if w.HostID == nil {
		return ""
	}
	return *w.HostID
}

// wirePair is an allowed address pair of a port.
type wirePair struct {
	IP  string `json:"ip_address"`
	MAC string `json:"mac_address"`
}

// portFields are the fields of wirePort except the trunk's, which not every Neutron has.
var portFields = []string{
	"id", "name", "description", "status", "project_id", "network_id", "mac_address", "fixed_ips", "security_groups",
	"device_owner", "device_id", "binding:host_id", "binding:vif_type", "binding:vif_details",
}

type wireIP struct {
	SubnetID string `json:"subnet_id"`
	IP       string `json:"ip_address,omitempty"`
}

type wireTrunk struct {
	resource
	TrunkID  string        `json:"trunk_id"` // in a port's trunk_details
	PortID   string        `json:"port_id"`
	Subports []wireSubport `json:"sub_ports"`
	active   bool          // the parent port is
}

type wireSubport struct {
	PortID           string `json:"port_id"`
	SegmentationType string `json:"segmentation_type,omitempty"`
	SegmentationID   int32  `json:"segmentation_id,omitempty"`
}

// newPort is the body of a creating call. SecurityGroups is never left out:
// without it Neutron gives the project's default group.
type newPort struct {
	ProjectID      string   `json:"project_id,omitempty"`
	NetworkID      string   `json:"network_id"`
	Name           string   `json:"name"`
	Description    string   `json:"description"`
	AdminStateUp   bool     `json:"admin_state_up"`
	DeviceOwner    string   `json:"device_owner"`
	FixedIPs       []wireIP `json:"fixed_ips"`
	SecurityGroups []string `json:"security_groups"`
	HostID         string   `json:"binding:host_id,omitempty"`
	Tags           []string `json:"tags,omitempty"`
}

type portsBody struct {
	Ports []wirePort `json:"ports"`
}

type wireRoute struct {
	Destination string `json:"destination"`
	NextHop     string `json:"nexthop"`
}

func routesOf(all []wireRoute) (routes []v1.Route) {
	for _, r := range all {
		routes = append(routes, v1.Route{Destination: r.Destination, Gateway: r.NextHop})
	}
	return routes
}

// wireRoutes is never nil.
func wireRoutes(all []v1.Route) []wireRoute {
	routes := make([]wireRoute, len(all))
	for i, r := range all {
		routes[i] = wireRoute{r.Destination, r.Gateway}
	}
	return routes
}
