// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// bindingVersion is the version of the description for binding drivers. Fields may be added; any
// other change needs a new version.
const bindingVersion = "binding.kuryr.openstack.org/v1"

// description is what a binding driver reads from its standard input.
type description struct {
	APIVersion   string             `json:"apiVersion"`
	Verb         string             `json:"verb"`
	Type         string             `json:"type"`
	PortID       string             `json:"portID"`
	HostDevice   string             `json:"hostDevice"`
	ContainerID  string             `json:"containerID"`
	Netns        string             `json:"netns,omitempty"`
	Interface    string             `json:"interface,omitempty"`
	MAC          string             `json:"mac,omitempty"`
	MTU          int                `json:"mtu,omitempty"`
	Addresses    []describedAddress `json:"addresses,omitempty"`
	Routes       []describedRoute   `json:"routes,omitempty"`
	Default      bool               `json:"default,omitempty"`
	Bridge       string             `json:"bridge,omitempty"`
	VLANID       int                `json:"vlanID,omitempty"`
	ParentPortID string             `json:"parentPortID,omitempty"`
	Pod          string             `json:"pod,omitempty"`
	Details      map[string]string  `json:"details,omitempty"`
}

type describedAddress struct {
	Prefix  netip.Prefix `json:"address"` // the address with the prefix length of the subnet
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

type describedRoute struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
}

// describe returns i in the form that a binding driver reads.
func describe(verb string, i Interface) ([]byte, error) {
	d := description{
		APIVersion: bindingVersion, Verb: verb, Type: i.Type, PortID: i.PortID, HostDevice: HostDevice(i.PortID),
		ContainerID: i.ContainerID, Netns: i.Netns, Interface: i.Name, MAC: i.HardwareAddr().String(), MTU: i.MTU,
		Default: i.Default, Bridge: i.Bridge, VLANID: i.VLANID, ParentPortID: i.ParentPortID, Pod: i.Pod, Details: i.Details,
	}
	for _, a := range i.Addresses {
		d.Addresses = append(d.Addresses, describedAddress(a))
	}
	for _, r := range i.Routes {
		d.Routes = append(d.Routes, describedRoute(r))
	}
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("describing port %s: %w", i.PortID, err)
	}
	return append(b, '\n'), nil
}

// environment returns the same in short form, for scripts. It is the driver's whole environment:
// the daemon's own does not concern it.
func environment(verb string, i Interface) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = bindingPath
	}
	var addresses []string
	for _, a := range i.Addresses {
		addresses = append(addresses, a.Prefix.String())
	}
	return []string{
		"PATH=" + path,
		"LC_ALL=C",
		"KURYR_VERSION=" + bindingVersion,
		"KURYR_VERB=" + verb,
		"KURYR_TYPE=" + i.Type,
		"KURYR_PORT_ID=" + i.PortID,
		"KURYR_HOST_IFNAME=" + HostDevice(i.PortID),
		"KURYR_CONTAINER_ID=" + i.ContainerID,
		"KURYR_NETNS=" + i.Netns,
		"KURYR_IFNAME=" + i.Name,
		"KURYR_MAC=" + i.HardwareAddr().String(),
		"KURYR_MTU=" + number(i.MTU),
		"KURYR_ADDRESSES=" + strings.Join(addresses, " "),
		"KURYR_BRIDGE=" + i.Bridge,
		"KURYR_VLAN_ID=" + number(i.VLANID),
		"KURYR_PARENT_PORT_ID=" + i.ParentPortID,
		"KURYR_POD=" + i.Pod,
	}
}

// number formats n; 0 is the empty string.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
