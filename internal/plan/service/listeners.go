// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// maxListeners is how many listeners a KuryrLoadBalancer holds.
const maxListeners = 512

var nameForm = regexp.MustCompile(`^[0-9A-Za-z._-]{1,255}$`)

// placement plans the provider, the flavor and the availability zone.
func (p *planner) placement() {
	if value := p.provider(); value != "" {
		p.spec.Provider = value
		if value != p.Settings.Provider {
			p.spec.FlavorID = "" // a flavor belongs to one provider
		}
	}
	if flavor := p.flavor(); flavor != "" {
		p.spec.FlavorID = flavor
	}
	if zone := p.text(annotationZone); len(zone) <= 255 {
		p.spec.AvailabilityZone = zone
	} else {
		p.warn(ReasonInvalid, field(annotationZone), "%q is no name of an availability zone, and is ignored", clip(zone))
	}
	if subnet := p.text(annotationSubnet); subnet != "" && !slices.ContainsFunc(p.spec.VIPs, func(v v1.VIPAddress) bool { return strings.EqualFold(v.SubnetID, subnet) }) {
		p.tell(field(annotationSubnet), "the VIP is the Service's cluster IP, in its own subnet: you can remove the annotation")
	}
}

// listeners plans a listener with its members for each port.
func (p *planner) listeners() {
	common := p.common()
	for _, port := range p.Service.Spec.Ports {
		l := common
		l.Name, l.Protocol, l.Port = port.Name, string(cmp.Or(port.Protocol, corev1.ProtocolTCP)), port.Port
		if l.Protocol != string(corev1.ProtocolTCP) {
			l.ProxyProtocol = ""
		}
		if common.Monitor != nil {
			l.Monitor = new(*common.Monitor)
			l.Monitor.Type = monitorTypes[l.Protocol]
		}
		p.spec.Listeners = append(p.spec.Listeners, l)
	}
	slices.SortFunc(p.spec.Listeners, func(a, b v1.ListenerSpec) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	if n := len(p.spec.Listeners); n > maxListeners {
		p.warn(ReasonUnsupported, "spec.ports", "the Service has %d ports, and a load balancer gets at most %d listeners: the other ports are left out. Split the Service", n, maxListeners)
		p.spec.Listeners = p.spec.Listeners[:maxListeners]
	}
	p.members()
}

var monitorTypes = map[string]string{"TCP": "TCP", "UDP": "UDP-CONNECT", "SCTP": "SCTP"}

// common returns the fields that all listeners share.
func (p *planner) common() v1.ListenerSpec {
	l := v1.ListenerSpec{
		Algorithm:            p.algorithm(),
		ProxyProtocol:        p.proxyProtocol(),
		Monitor:              p.monitor(),
		TimeoutClientData:    p.timeout(annotationKuryrClientData, annotationClientData),
		TimeoutMemberData:    p.timeout(annotationKuryrMemberData, annotationMemberData),
		TimeoutMemberConnect: p.timeout(annotationMemberConnect),
		TimeoutTCPInspect:    p.timeout(annotationTCPInspect),
	}
	if limit := p.number(annotationConnectionLimit, "connections", -1, 1<<31-1); limit != nil && *limit > 0 {
		l.ConnectionLimit = new(int32(*limit))
	} else if limit != nil && *limit == 0 {
		p.warn(ReasonInvalid, field(annotationConnectionLimit), "0 would admit no connection, and is ignored: write -1 for no limit")
	}
	if spec := p.Service.Spec; spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		l.AffinitySeconds = new(corev1.DefaultClientIPServiceAffinitySeconds)
		if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			l.AffinitySeconds = new(*c.ClientIP.TimeoutSeconds)
		}
	}
	return l
}

// maxMilliseconds is a year, the longest timeout that Octavia accepts.
const maxMilliseconds = 31536000000

// timeout reads milliseconds from the first of these annotations that exists. Zero and nil mean
// Octavia's default.
func (p *planner) timeout(names ...string) *int64 {
	var found *int64
	by := ""
	for _, name := range names {
		switch n := p.number(name, "milliseconds", 0, maxMilliseconds); {
		case n == nil:
		case found == nil:
			found, by = n, name
		case *n != *found:
			p.warn(ReasonContradiction, field(name), "%s says %d and takes precedence: remove one of the two", by, *found)
		}
	}
	if found != nil && *found == 0 {
		return nil
	}
	return found
}

var algorithms = []string{"ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"}

func (p *planner) algorithm() string {
	value := p.text(annotationMethod)
	if upper := strings.ToUpper(value); value == "" || slices.Contains(algorithms, upper) {
		return upper
	}
	p.warn(ReasonInvalid, field(annotationMethod), "%q is none of %s, and is ignored", clip(value), strings.Join(algorithms, ", "))
	return ""
}

func (p *planner) proxyProtocol() string {
	var protocol string
	switch value := strings.ToLower(p.text(annotationProxyProtocol)); value {
	case "", "false", "f", "0":
		return ""
	case "true", "t", "1", "v1":
		protocol = "PROXY"
	case "v2":
		protocol = "PROXYV2"
	default:
		p.warn(ReasonInvalid, field(annotationProxyProtocol), "%q is none of true, false, v1 and v2, and counts as false", clip(value))
		return ""
	}
	if !slices.ContainsFunc(p.Service.Spec.Ports, func(s corev1.ServicePort) bool { return s.Protocol == corev1.ProtocolTCP || s.Protocol == "" }) {
		p.warn(ReasonContradiction, field(annotationProxyProtocol), "the PROXY protocol needs TCP, and the Service has no TCP port: remove the annotation")
	}
	return protocol
}

// Defaults of the cloud provider's health monitors.
const (
	monitorDelay     = 5 // seconds
	monitorTimeout   = 3 // seconds
	monitorTries     = 1
	monitorTriesDown = 3
)

// monitor returns the health monitor of members, without its type; nil if they have none.
func (p *planner) monitor() *v1.MonitorSpec {
	value := func(name, unit string, high int64, fallback int32) int32 {
		if n := p.number(name, unit, 1, high); n != nil {
			return int32(*n)
		}
		return fallback
	}
	m := &v1.MonitorSpec{
		Delay:          value(annotationMonitorDelay, "seconds", 86400, monitorDelay),
		Timeout:        value(annotationMonitorTimeout, "seconds", 86400, monitorTimeout),
		MaxRetries:     value(annotationMonitorTries, "tries", 10, monitorTries),
		MaxRetriesDown: value(annotationMonitorTriesDown, "tries", 10, monitorTriesDown),
	}
	if !p.yes(annotationMonitor, false) {
		for _, name := range []string{annotationMonitorDelay, annotationMonitorTimeout, annotationMonitorTries, annotationMonitorTriesDown} {
			if p.text(name) != "" {
				p.warn(ReasonContradiction, field(name), "the Service has no health monitor: set %s to true, or remove this annotation", annotationMonitor)
			}
		}
		return nil
	}
	if m.Timeout >= m.Delay {
		p.warn(ReasonContradiction, field(annotationMonitorTimeout), "a check takes up to %d s, but the next one begins after %d s, so Kuryr configures no health monitor: lower the timeout, or raise %s", m.Timeout, m.Delay, annotationMonitorDelay)
		return nil
	}
	return m
}
