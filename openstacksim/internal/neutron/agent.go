// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"
	"slices"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

// agent is the OVN Controller of a chassis, or neutron-openvswitch-agent of a host. ML2/OVN derives
// the first from the southbound database (neutron 21.0.0:
// plugins/ml2/drivers/ovn/agent/neutron_agent.py). The second reports itself
// (plugins/ml2/drivers/openvswitch/agent/ovs_neutron_agent.py).
type agent struct {
	ID                 string         `json:"id"`
	AgentType          string         `json:"agent_type"`
	Binary             string         `json:"binary"`
	Topic              string         `json:"topic"`
	Host               string         `json:"host"`
	AdminStateUp       bool           `json:"admin_state_up"`
	HeartbeatTimestamp string         `json:"heartbeat_timestamp"`
	Alive              bool           `json:"alive"`
	AvailabilityZone   string         `json:"availability_zone"`
	Description        string         `json:"description"`
	Configurations     map[string]any `json:"configurations"`
}

// agentRows returns the agents of the service's hosts.
func (s *Service) agentRows() *table.Table[agent] {
	rows := table.New(func(a *agent) string { return a.ID })
	for i, host := range s.Hosts {
		a := &agent{
			ID: s.agentIDs[i], AgentType: "OVN Controller agent", Binary: "ovn-controller", Topic: "n/a", Host: host,
			AdminStateUp: true, Alive: !s.dead[host], Configurations: map[string]any{
				"chassis_name": s.agentIDs[i], "bridge-mappings": "",
			},
			HeartbeatTimestamp: s.agentTime(),
		}
		if hybrid, is := s.OVS[host]; is {
			a.AgentType, a.Binary, a.Topic = "Open vSwitch agent", "neutron-openvswitch-agent", "N/A"
			a.Configurations = map[string]any{
				"bridge_mappings": map[string]any{}, "tunnel_types": []string{"vxlan"}, "datapath_type": "system",
				"integration_bridge": "br-int", "ovs_hybrid_plug": hybrid, "l2_population": false, "arp_responder_enabled": false,
			}
		}
		rows.Put(a)
	}
	return rows
}

// SetAgent sets whether the agent of a host is alive. Ports are not bound to a host whose agent is
// dead; those that are bound stay so.
func (s *Service) SetAgent(host string, alive bool) error {
	return s.inside(func(c *call) *fault {
		if !slices.Contains(c.Hosts, host) {
			return refuse(http.StatusNotFound, "AgentNotFound", "Agent on host %s could not be found.", host)
		}
		c.dead[host] = !alive
		return nil
	})
}

func (s *Service) agentTime() string { return s.Now().UTC().Format(time.DateTime) }

// agents answers /v2.0/agents.
func (c *call) agents(rest []string) (int, any, *fault) {
	if c.request.Method != http.MethodGet {
		return 0, nil, notAllowed()
	}
	rows := c.agentRows()
	if len(rest) > 0 {
		a, ok := rows.Get(rest[0])
		if !ok || !c.admin() {
			return 0, nil, refuse(http.StatusNotFound, "AgentNotFound", "Agent %s could not be found.", rest[0])
		}
		return http.StatusOK, map[string]any{"agent": table.Project(a, c.fields())}, nil
	}
	out := []any{}
	if c.admin() {
		found, _, err := rows.Select(table.Query{Filters: c.query()}, nil)
		if err != nil {
			return 0, nil, badRequest("%v", err)
		}
		for _, a := range found {
			out = append(out, table.Project(a, c.fields()))
		}
	}
	return http.StatusOK, map[string]any{"agents": out}, nil
}

// availability answers /v2.0/availability_zones.
func (c *call) availability(rest []string) (int, any, *fault) {
	if c.request.Method != http.MethodGet || len(rest) > 0 {
		return 0, nil, notAllowed()
	}
	return http.StatusOK, map[string]any{"availability_zones": []any{}}, nil
}
