// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// HostPort is a port of the node that leads to the pod's, as its containers ask for
// by hostPort. Its JSON is in the journal of package daemon.
type HostPort struct {
	Address  netip.Addr `json:"address,omitzero"` // of the node; the zero value: all
	Protocol string     `json:"protocol"`         // TCP, UDP or SCTP
	Port     uint16     `json:"port"`
	Target   uint16     `json:"target"` // of the pod
}

func (p HostPort) String() string {
	at := "all its addresses"
	if p.Address.IsValid() {
		at = p.Address.String()
	}
	return fmt.Sprintf("%s port %d of %s", p.Protocol, p.Port, at)
}

// portMapping is one of runtimeConfig.portMappings, by which runtimes say it where
// the configuration has that capability (CNI's CONVENTIONS.md).
type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// HostPorts returns the host ports that the runtime has sent. It omits entries without a port of
// the node. The error is always a *types.Error.
func (c Config) HostPorts() ([]HostPort, error) {
	if absent(c.raw.RuntimeConfig.PortMappings) {
		return nil, nil
	}
	var mappings []portMapping
	if err := json.Unmarshal(c.raw.RuntimeConfig.PortMappings, &mappings); err != nil {
		return nil, types.NewError(CodeDecoding, "reading runtimeConfig.portMappings", err.Error())
	}
	var ports []HostPort
	for _, m := range mappings {
		if m.HostPort == 0 {
			continue
		}
		p, err := m.parse()
		if err != nil {
			return nil, types.NewError(CodeInvalidConfig, "runtimeConfig.portMappings is invalid", err.Error())
		}
		ports = append(ports, p)
	}
	return ports, nil
}

func (m portMapping) parse() (HostPort, error) {
	p := HostPort{Protocol: strings.ToUpper(m.Protocol), Port: uint16(m.HostPort), Target: uint16(m.ContainerPort)}
	if p.Protocol == "" {
		p.Protocol = "TCP"
	}
	if m.HostPort < 1 || m.HostPort > 0xffff || m.ContainerPort < 1 || m.ContainerPort > 0xffff {
		return p, fmt.Errorf("host port %d to port %d of the pod: both have to be 1 to 65535", m.HostPort, m.ContainerPort)
	}
	if p.Protocol != "TCP" && p.Protocol != "UDP" && p.Protocol != "SCTP" {
		return p, fmt.Errorf("host port %d has protocol %q: TCP, UDP and SCTP are known", m.HostPort, m.Protocol)
	}
	if m.HostIP == "" {
		return p, nil
	}
	ip, err := netip.ParseAddr(m.HostIP)
	if err != nil {
		return p, fmt.Errorf("host port %d: hostIP: %w", m.HostPort, err)
	}
	p.Address = ip.Unmap().WithZone("")
	return p, nil
}
