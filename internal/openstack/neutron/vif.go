// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// portOf converts Neutron's port into the seam's. An address in a subnet that is not in subnets has
// no prefix; code that makes ports omits it.
func portOf(w wirePort, subnets []subnet) sdn.Port {
	p := sdn.Port{
		ID: w.ID, Owner: w.mark().Owner, ProjectID: w.ProjectID, NetworkID: w.NetworkID,
		SecurityGroupIDs: slices.Sorted(slices.Values(w.SecurityGroups)),
		Host:             w.host(),
		Name:             w.Name, DeviceID: w.DeviceID, Active: w.Status == statusActive,
		VIF: v1.VIF{Type: typeName(w.VIFType), MACAddress: strings.ToLower(w.MACAddress)},
	}
	var seen []string
	for _, ip := range w.FixedIPs {
		i := slices.IndexFunc(subnets, func(s subnet) bool { return s.id == ip.SubnetID })
		a := v1.Address{IP: ip.IP, SubnetID: ip.SubnetID}
		if i >= 0 {
			s := subnets[i]
			a.PrefixLength, a.Gateway, p.VIF.MTU = int32(s.prefix.Bits()), s.gateway, s.mtu
			if !slices.Contains(seen, s.id) {
				p.VIF.Routes = append(p.VIF.Routes, s.routes...)
			}
		}
		seen = append(seen, ip.SubnetID)
		p.VIF.Addresses = append(p.VIF.Addresses, a)
	}
	p.VIF.Routes = p.VIF.Routes[:min(len(p.VIF.Routes), v1.MaxRoutes)]
	addDetails(&p.VIF, w.VIFDetails)
	return p
}

// onTrunk makes p a subport. It is bound where its parent is, which is not its own.
func onTrunk(p *sdn.Port, parentID string, vlan int32) {
	p.Host = ""
	p.VIF.Type, p.VIF.ParentPortID, p.VIF.VLANID = "vlan", parentID, vlan
	p.VIF.Bridge, p.VIF.Details = "", nil
}

// onParent makes p a port that passes its parent by address pairs. Neutron binds
// it nowhere and shows it DOWN; what the parent lets pass, passes.
func onParent(p *sdn.Port, parentID string) {
	p.Host, p.Active = "", true
	p.VIF.Type, p.VIF.ParentPortID = macvlan, parentID
	p.VIF.Bridge, p.VIF.Details = "", nil
}

// typeName is Neutron's vif_type as a name of a VIF type: hw_veb is hw-veb.
func typeName(vifType string) string {
	return strings.ReplaceAll(strings.ToLower(vifType), "_", "-")
}

// ofAgent reports whether Neutron has bound the port for neutron-openvswitch-agent, and not for OVN.
// bound_drivers says so, too, but only after the answer that a creating call gets. Of Neutron's own
// mechanisms the agent's alone has ovs_hybrid_plug, whatever its value (neutron 21.0.0:
// plugins/ml2/drivers/openvswitch/mech_driver/mech_openvswitch.py).
func ofAgent(all map[string]any) bool {
	if drivers, ok := all["bound_drivers"].(map[string]any); ok {
		for _, driver := range drivers {
			if driver == "openvswitch" {
				return true
			}
		}
	}
	_, is := all["ovs_hybrid_plug"]
	return is
}

// hybrid reports whether Neutron wants a Linux bridge between the port and Open
// vSwitch, without which the port has no security groups.
func hybrid(w wirePort) bool {
	var details struct {
		Hybrid bool `json:"ovs_hybrid_plug"`
	}
	_ = json.Unmarshal(w.VIFDetails, &details) // absent or of another form: no
	return details.Hybrid
}

// maxDetails and maxBridge are the KuryrPort's own bounds.
const (
	maxDetails = 32
	maxBridge  = 15
)

// addDetails takes the bridge from binding:vif_details, and the rest too if a
// binding driver will plug the port. Of type ovs it notes what wires the port.
func addDetails(vif *v1.VIF, raw json.RawMessage) {
	var all map[string]any
	if json.Unmarshal(raw, &all) != nil {
		return // absent, null or not an object: no details
	}
	if name, ok := all["bridge_name"].(string); ok && len(name) <= maxBridge {
		vif.Bridge = name
	}
	if vif.Type == "ovs" && ofAgent(all) {
		vif.Details = map[string]string{v1.DetailWiredBy: v1.WiredByAgent}
		if all["ovs_hybrid_plug"] == true {
			vif.Details[v1.DetailLinuxBridge] = "true"
		}
	}
	if vif.Type == "ovs" || vif.Type == "bridge" {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if len(vif.Details) == maxDetails {
			return
		}
		value, ok := all[key].(string)
		if !ok {
			text, err := json.Marshal(all[key])
			if err != nil {
				continue
			}
			value = string(text)
		}
		if vif.Details == nil {
			vif.Details = map[string]string{}
		}
		vif.Details[key] = value
	}
}
