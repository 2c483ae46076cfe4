// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// port is a row of the ports. Its fields were observed on Neutron 21.0.0, and so was the absence
// of the other attributes in api-*.json.
type port struct {
	standard
	Name                string         `json:"name"`
	NetworkID           string         `json:"network_id"`
	MACAddress          string         `json:"mac_address"`
	AdminStateUp        bool           `json:"admin_state_up"`
	Status              string         `json:"status"`
	DeviceID            string         `json:"device_id"`
	DeviceOwner         string         `json:"device_owner"`
	FixedIPs            []fixedIP      `json:"fixed_ips"`
	AllowedAddressPairs []addressPair  `json:"allowed_address_pairs"`
	ExtraDHCPOpts       []dhcpOption   `json:"extra_dhcp_opts"`
	SecurityGroups      []string       `json:"security_groups"`
	PortSecurityEnabled bool           `json:"port_security_enabled"`
	VNICType            string         `json:"binding:vnic_type"`
	HostID              string         `json:"binding:host_id"`
	Profile             map[string]any `json:"binding:profile"` // never changed in place
	VIFType             string         `json:"binding:vif_type"`
	VIFDetails          map[string]any `json:"binding:vif_details"` // shared; read-only
	IPAllocation        string         `json:"ip_allocation"`
	QoSPolicyID         *string        `json:"qos_policy_id"`
	QoSNetworkPolicyID  *string        `json:"qos_network_policy_id"`
	ResourceRequest     *struct{}      `json:"resource_request"`
	DNSName             string         `json:"dns_name"`
	DNSDomain           string         `json:"dns_domain"`
	DNSAssignment       assignment     `json:"dns_assignment"`
	TrunkDetails        *trunkDetails  `json:"trunk_details,omitempty"` // if the port is the parent of a trunk

	pluggedAt string // the host that has plugged the port, "" if none
	awaits    bool   // the port has not been plugged since it was bound
	levels    bool   // the binding is committed
	hidden    int    // revisions that count after the answer is made
}

// fixedIP is an address of a port.
type fixedIP struct {
	SubnetID  string `json:"subnet_id"`
	IPAddress string `json:"ip_address"`
}

type addressPair struct {
	MACAddress string `json:"mac_address"`
	IPAddress  string `json:"ip_address"`
}

type dhcpOption struct {
	Name      string `json:"opt_name"`
	Value     string `json:"opt_value"`
	IPVersion int    `json:"ip_version"`
}

// assignment is the DNS names of a port's addresses, derived when they are read. They follow from
// the addresses if no DNS domain is configured, as by default. The port's own dns_name is dropped
// then (observed on Neutron 21.0.0).
type assignment []fixedIP

func (a assignment) MarshalJSON() ([]byte, error) {
	type name struct {
		IPAddress string `json:"ip_address"`
		Hostname  string `json:"hostname"`
		FQDN      string `json:"fqdn"`
	}
	names := make([]name, len(a))
	for i, ip := range a {
		host := "host-" + dashes.Replace(ip.IPAddress)
		names[i] = name{ip.IPAddress, host, host + ".openstacklocal."}
	}
	return json.Marshal(names)
}

var dashes = strings.NewReplacer(".", "-", ":", "-")

const (
	statusActive = "ACTIVE"
	statusDown   = "DOWN"
	statusNone   = "N/A" // for ports that no driver handles
)

// Owners of the ports that Neutron makes itself.
const (
	ownerRouter   = "network:router_interface"
	ownerGateway  = "network:router_gateway"
	ownerFloating = "network:floatingip"
	ownerDHCP     = "network:dhcp"
	ownerSubport  = "trunk:subport"
)

// trusted reports whether Neutron exempts the port from port security (neutron_lib 3.1.0:
// utils/net.py).
func (p *port) trusted() bool { return strings.HasPrefix(p.DeviceOwner, "network:") }

// ofRouter reports whether the port is a router's.
func (p *port) ofRouter() bool {
	return slices.Contains([]string{ownerRouter, "network:ha_router_replicated_interface", "network:router_interface_distributed", "network:router_centralized_snat"}, p.DeviceOwner)
}

// copied returns a copy for changing and put.
func (p *port) copied() *port {
	n := *p
	return &n
}

func portInUse(p *port) *fault {
	return conflict("PortInUse", "Unable to complete operation on port %s for network %s. Port already has an attached device %s.",
		p.ID, p.NetworkID, p.DeviceID)
}

func (s *Service) registerPort() {
	s.ports = &kind[port]{
		one: "port", many: "ports", title: "Port", lost: refusesPage,
		create: createPort, update: updatePort, remove: removePort, created: scheduleBinding, updated: scheduleBinding,
		view: viewPort, finish: finishPort, shown: seesPort,
		filters: map[string]func(*call, *port, []string) bool{
			"fixed_ips": hasAddress, "mac_address": hasMAC, "security_groups": hasGroup,
		},
	}
	register(s, s.ports)
}

// seesPort reports whether the caller sees a port: with rights in the port's project, or in the
// network's project.
func seesPort(c *call, p *port) bool {
	if c.owns(p.ProjectID) || c.who.Has("advsvc") {
		return true
	}
	n, ok := c.networks.rows.Get(p.NetworkID)
	return ok && c.owns(n.ProjectID)
}

// viewPort returns a port for an answer. Only the answer for a single port has the addresses of
// subports (observed on Neutron 21.0.0).
func viewPort(c *call, p *port) *port {
	if p.TrunkDetails == nil {
		return p
	}
	n := p.copied()
	n.TrunkDetails = p.TrunkDetails.seen(c, !c.lists("/ports"))
	return n
}

// finishPort adds the bound drivers, in answers to GET only (observed on Neutron 21.0.0). The
// binding has them from the start in Neutron 26.0.3.
func finishPort(c *call, p *port) *port {
	if c.Later || !p.levels || !c.reads() || !c.admin() {
		return p
	}
	n := p.copied()
	n.VIFDetails = boundDetails
	if hybrid, is := p.VIFDetails["ovs_hybrid_plug"].(bool); is {
		n.VIFDetails = agentDetails(hybrid, true)
	}
	return n
}

// lists reports whether the call is a GET of all resources below a path.
func (c *call) lists(path string) bool {
	return c.reads() && strings.HasSuffix(strings.TrimSuffix(c.request.URL.Path, ".json"), path)
}

// reads reports whether the call is a GET.
func (c *call) reads() bool { return c.request != nil && c.request.Method == http.MethodGet }

// hasAddress is the filter fixed_ips=KEY=VALUE. One value of each key must match, and all keys
// together. Unknown keys are ignored (neutron 21.0.0: db/db_base_plugin_v2.py and
// plugins/ml2/plugin.py, _get_ports_query).
func hasAddress(_ *call, p *port, wanted []string) bool {
	for _, t := range addressTests {
		asked, met := false, false
		for _, w := range wanted {
			value, ok := strings.CutPrefix(w, t.key)
			if !ok {
				continue
			}
			asked = true
			met = met || slices.ContainsFunc(p.FixedIPs, func(ip fixedIP) bool { return t.test(ip, value) })
		}
		if asked && !met {
			return false
		}
	}
	return true
}

var addressTests = []struct {
	key  string
	test func(ip fixedIP, value string) bool
}{
	{"ip_address=", func(ip fixedIP, value string) bool { return ip.IPAddress == value }},
	{"subnet_id=", func(ip fixedIP, value string) bool { return ip.SubnetID == value }},
	{"ip_address_substr=", func(ip fixedIP, value string) bool { return strings.Contains(ip.IPAddress, value) }},
}

// plainMACs converts MAC addresses to the form that ports have. Other texts stay unchanged and
// match no port.
func plainMACs(wanted []string) []string {
	out := slices.Clone(wanted)
	for i, w := range out {
		if mac, ok := parseMAC(w); ok {
			out[i] = mac
		}
	}
	return out
}

// hasMAC is the filter mac_address. plainMACs has converted its values.
func hasMAC(_ *call, p *port, wanted []string) bool {
	return slices.ContainsFunc(wanted, func(w string) bool { return strings.EqualFold(w, p.MACAddress) })
}

func hasGroup(_ *call, p *port, wanted []string) bool {
	return slices.ContainsFunc(wanted, func(w string) bool { return slices.Contains(p.SecurityGroups, w) })
}
