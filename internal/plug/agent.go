// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// In a switch of neutron-openvswitch-agent, networks are VLANs of the switch, whose numbers the
// agent chooses. A port without a tag is a trunk of all of them. So Kuryr adds a port with the VLAN
// that the agent gives to no network, as a trunk of that VLAN only: its packets have no VLAN header,
// and are dropped. The agent does the same with its own devices. For one port it then
//
//  1. has Neutron set the port's status to DOWN, if the port has left the switch since the last time,
//  2. sets tag, and removes vlan_mode and trunks,
//  3. sets the flows of the security groups,
//  4. has Neutron set the port's status to ACTIVE
//
// (neutron 21.0.0: plugins/ml2/drivers/openvswitch/agent/ovs_neutron_agent.py, agent/common/ovs_lib.py).
// The database shows the second step. The end of the third shows in Neutron alone: a status of ACTIVE
// that was read after the second step. An agent that was away while the port left the switch and came
// back leaves out the first step, so that the status may be of the time before.
const (
	deadTag   = 4095
	modeTrunk = "trunk"
)

// errHybrid: without the agent's Linux bridge no rule of a security group is enforced.
var errHybrid = fmt.Errorf("the port's security groups would not be enforced: neutron-openvswitch-agent has firewall_driver = iptables_hybrid, "+
	"which filters in a Linux bridge that Kuryr does not make. Set firewall_driver = openvswitch in the section [securitygroup] "+
	"of the agent's configuration on this node, restart the agent, and delete the KuryrPort: ports keep the way in which they were bound: %w", ErrInvalid)

// errSharedZone: connections of one port cannot be told from those of others.
var errSharedZone = errors.New("neutron-openvswitch-agent tracks the connections of all ports of a network together, so the port is plugged anew for the next pod")

// errNobodys: nothing would put ports into their networks.
var errNobodys = fmt.Errorf("neither OVN nor neutron-openvswitch-agent controls Open vSwitch on this node: external_ids of its table Open_vSwitch have no ovn-remote, "+
	"and no bridge has an OpenFlow controller. Start ovn-controller or neutron-openvswitch-agent: %w", ErrDataPath)

// errNotAgents: neutron-openvswitch-agent would never take the port into its network. A cloud that
// has moved from the agent to OVN leaves vif_details as they are (neutron 21.0.0:
// plugins/ml2/drivers/ovn/db_migration.py).
var errNotAgents = fmt.Errorf("the port was bound for neutron-openvswitch-agent, but OVN controls Open vSwitch on this node (external_ids of its table Open_vSwitch have ovn-remote). "+
	"Delete the KuryrPort: Kuryr makes another port, which Neutron binds for OVN: %w", ErrDataPath)

// refuses returns why nothing would wire i on this switch; nil if it is one that i was bound for. An
// agent's port is isolated until the agent has seen it, so it may be plugged while the agent is away.
func (v view) refuses(i Interface) error {
	switch {
	case i.Agent && v.ovn:
		return errNotAgents
	case !i.Agent && !v.ovn:
		return errNotOVN
	}
	return nil
}

// astray returns an error if the row was added without isolation, for OVN, and i is the agent's.
func (r *ovsRow) astray(i Interface) error {
	if i.Agent && r.tag == 0 {
		return fmt.Errorf("port %s of Open vSwitch has no tag, and would be in all networks of neutron-openvswitch-agent", r.name)
	}
	return nil
}

// untagged returns what neutron-openvswitch-agent has not done yet.
func (r *ovsRow) untagged() string {
	switch {
	case r.tag == 0 || r.tag == deadTag:
		return "neutron-openvswitch-agent has not put it into its network"
	case r.mode == modeTrunk:
		return fmt.Sprintf("neutron-openvswitch-agent has set tag %d and left vlan_mode %s, by which all packets are dropped. Update the agent: "+
			"that of Neutron 21 clears vlan_mode", r.tag, r.mode)
	}
	return ""
}

// explain adds to what is missing of an agent's port what a person can do.
func (o ovs) explain(ctx context.Context, i Interface, missing string) string {
	if !i.Agent {
		return missing
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	bridge := o.set.bridge(i)
	state := "is connected to bridge " + bridge + ", so see its log"
	if connected, err := o.set.db.controllers(ctx); err != nil || !slices.Contains(connected, true) {
		state = "is not connected to bridge " + bridge + ": start it"
	}
	return fmt.Sprintf("%s. The agent %s; 'openstack port show %s' has the binding, which must be of this node", missing, state, i.PortID)
}

// controllers returns for each OpenFlow controller of the switch whether it is connected.
// neutron-openvswitch-agent sets one for each bridge, itself, which stays while the agent is away.
func (d *database) controllers(ctx context.Context) ([]bool, error) {
	res, err := d.transact(ctx, selectOp("Controller", nil, "is_connected"))
	if err != nil {
		return nil, err
	}
	var connected []bool
	for _, r := range res[0].Rows {
		is, _ := r["is_connected"].(bool)
		connected = append(connected, is)
	}
	return connected, nil
}
