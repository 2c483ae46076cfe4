// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// The types of Octavia's answers. Requests are maps: in a request, null differs from a missing
// field.

type object = map[string]any

type wireState struct {
	Provisioning string `json:"provisioning_status"`
	Operating    string `json:"operating_status"`
}

// wireSwitch is the field by which a person may disable an object. The tree of states does not
// have it.
type wireSwitch struct {
	Up *bool `json:"admin_state_up"` // nil: not shown
}

func (w wireSwitch) isOff() bool { return w.Up != nil && !*w.Up }

type wireBalancer struct {
	wireState
	wireSwitch
	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	ProjectID   string         `json:"project_id"`
	TenantID    string         `json:"tenant_id"` // the same, in an early LBaaS v2
	Provider    string         `json:"provider"`
	FlavorID    string         `json:"flavor_id"`
	Zone        string         `json:"availability_zone"`
	VIPAddress  string         `json:"vip_address"`
	VIPSubnetID string         `json:"vip_subnet_id"`
	VIPPortID   string         `json:"vip_port_id"`
	Created     string         `json:"created_at"` // UTC, without a zone
	Tags        []string       `json:"tags"`
	Listeners   []wireListener `json:"listeners"` // IDs only, but all in the answer to a POST
	Pools       []wirePool     `json:"pools"`     // likewise
}

// created returns when a load balancer was created; zero if Octavia does not tell.
func (w wireBalancer) created() time.Time {
	at, err := time.Parse(time.DateTime, strings.Replace(w.Created, "T", " ", 1))
	if err != nil {
		return time.Time{}
	}
	return at
}

// mark is in the tags. It is in the description for an Octavia without tags, and for tags that
// another user of the cloud has removed.
func (w wireBalancer) mark() session.Mark {
	tags, said := session.ParseMark(strings.Join(w.Tags, " ")), session.ParseMark(w.Description)
	switch {
	case tags.Cluster == "":
		return said
	case tags.Owner == (sdn.Owner{}) && tags.Cluster == said.Cluster:
		tags.Owner = said.Owner
	}
	return tags
}

// isTagged reports whether the tags have the whole mark.
func (w wireBalancer) isTagged() bool {
	return !slices.ContainsFunc(w.mark().Tags(), func(tag string) bool { return !slices.Contains(w.Tags, tag) })
}

type wireListener struct {
	wireState
	wireSwitch
	ID            string   `json:"id"`
	Name          string   `json:"name"`
	Protocol      string   `json:"protocol"`
	Port          int32    `json:"protocol_port"`
	AllowedCIDRs  []string `json:"allowed_cidrs"`
	Limit         *int32   `json:"connection_limit"`
	ClientData    *int64   `json:"timeout_client_data"`
	MemberData    *int64   `json:"timeout_member_data"`
	MemberConnect *int64   `json:"timeout_member_connect"`
	TCPInspect    *int64   `json:"timeout_tcp_inspect"`
	PoolID        string   `json:"default_pool_id"`
}

type wirePool struct {
	wireState
	wireSwitch
	ID          string           `json:"id"`
	Name        string           `json:"name"`
	Protocol    string           `json:"protocol"`
	Algorithm   string           `json:"lb_algorithm"`
	Persistence *wirePersistence `json:"session_persistence"`
	MonitorID   string           `json:"healthmonitor_id"`
	Members     []wireMember     `json:"members"` // likewise, to a POST of a load balancer
}

type wirePersistence struct {
	Type    string `json:"type"`
	Timeout *int32 `json:"persistence_timeout"`
}

type wireMember struct {
	wireState
	wireSwitch
	ID       string `json:"id"`
	Name     string `json:"name"`
	Address  string `json:"address"`
	Port     int32  `json:"protocol_port"`
	SubnetID string `json:"subnet_id"`
	Weight   *int32 `json:"weight"` // nil: not shown
}

type wireMonitor struct {
	Provisioning   string `json:"provisioning_status"`
	ID             string `json:"id"`
	Type           string `json:"type"`
	Delay          int32  `json:"delay"`
	Timeout        int32  `json:"timeout"`
	MaxRetries     int32  `json:"max_retries"`
	MaxRetriesDown int32  `json:"max_retries_down"`
}

// Lists are paged by the ID.

func (w wireBalancer) Key() string { return w.ID }
func (w wireListener) Key() string { return w.ID }
func (w wirePool) Key() string     { return w.ID }
func (w wireMember) Key() string   { return w.ID }

func balancerOf(w wireBalancer) sdn.LoadBalancer {
	return sdn.LoadBalancer{
		ID: w.ID, Owner: w.mark().Owner, Name: w.Name, ProjectID: cmp.Or(w.ProjectID, w.TenantID), Provider: w.Provider, FlavorID: w.FlavorID,
		AvailabilityZone: w.Zone, VIP: v1.VIPAddress{IP: w.VIPAddress, SubnetID: w.VIPSubnetID}, VIPPortID: w.VIPPortID,
		Disabled: w.isOff(), Provisioning: sdn.Provisioning(w.Provisioning), Operating: w.Operating,
	}
}

func listenerOf(w wireListener) sdn.Listener {
	slices.Sort(w.AllowedCIDRs)
	return sdn.Listener{
		ID: w.ID, Name: w.Name, Protocol: w.Protocol, Port: w.Port, SourceRanges: w.AllowedCIDRs, ConnectionLimit: w.Limit,
		TimeoutClientData: w.ClientData, TimeoutMemberData: w.MemberData, TimeoutMemberConnect: w.MemberConnect,
		TimeoutTCPInspect: w.TCPInspect, Disabled: w.isOff(), Provisioning: sdn.Provisioning(w.Provisioning), Operating: w.Operating,
	}
}

func poolOf(w wirePool) sdn.Pool {
	p := sdn.Pool{
		ID: w.ID, Name: w.Name, Protocol: w.Protocol, Algorithm: w.Algorithm,
		Disabled: w.isOff(), Provisioning: sdn.Provisioning(w.Provisioning), Operating: w.Operating,
	}
	if s := w.Persistence; s != nil && s.Type == "SOURCE_IP" {
		p.AffinitySeconds = cmp.Or(s.Timeout, new(int32))
	}
	return p
}

func memberOf(w wireMember) sdn.Member {
	return sdn.Member{
		ID: w.ID, Name: w.Name, IP: w.Address, Port: w.Port, SubnetID: w.SubnetID,
		Disabled: w.isOff() || w.Weight != nil && *w.Weight == 0, Provisioning: sdn.Provisioning(w.Provisioning), Operating: w.Operating,
	}
}

func monitorOf(w wireMonitor) *v1.MonitorSpec {
	return &v1.MonitorSpec{Type: w.Type, Delay: w.Delay, Timeout: w.Timeout, MaxRetries: w.MaxRetries, MaxRetriesDown: w.MaxRetriesDown}
}

// listenerChange returns the fields of a listener that can be changed. Timeouts that are nil
// become null: then Octavia uses its defaults.
func listenerChange(l sdn.Listener, f sdn.Features, a api) object {
	out := object{"name": l.Name, "connection_limit": a.unlimited}
	if l.ConnectionLimit != nil {
		out["connection_limit"] = *l.ConnectionLimit
	}
	if a.has(withTimeouts) {
		out["timeout_client_data"], out["timeout_member_data"] = orNull(l.TimeoutClientData), orNull(l.TimeoutMemberData)
		out["timeout_member_connect"], out["timeout_tcp_inspect"] = orNull(l.TimeoutMemberConnect), orNull(l.TimeoutTCPInspect)
	}
	if f.SourceRanges {
		out["allowed_cidrs"] = session.NotNil(l.SourceRanges)
	}
	return out
}

func newListener(l sdn.Listener, f sdn.Features, a api) object {
	out := listenerChange(l, f, a)
	out["protocol"], out["protocol_port"] = l.Protocol, l.Port
	for name, v := range out {
		if v == nil { // some releases of Octavia accept no null here
			delete(out, name)
		}
	}
	if len(l.SourceRanges) == 0 {
		delete(out, "allowed_cidrs")
	}
	return out
}

func orNull[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// poolChange returns the fields of a pool that can be changed.
func poolChange(p sdn.Pool) object {
	out := object{"name": p.Name, "lb_algorithm": p.Algorithm, "session_persistence": nil}
	if s := p.AffinitySeconds; s != nil {
		persistence := object{"type": "SOURCE_IP"}
		if *s != 0 {
			persistence["persistence_timeout"] = *s
		}
		out["session_persistence"] = persistence
	}
	return out
}

// created returns a pool as its creation requests it. Octavia before tellsAffinity stores the affinity of
// a new pool, but tells its provider of it only now and then: of 19 pools that were created with it in
// Zed, alone and in a POST of a load balancer, the provider received 8 with it. All updates reached the
// provider. So such a pool has none, until UpdatePool.
func created(p sdn.Pool, a api) sdn.Pool {
	if !a.has(tellsAffinity) {
		p.AffinitySeconds = nil
	}
	return p
}

// newPool returns all fields of a pool, whose protocol must be set.
func newPool(p sdn.Pool, f sdn.Features) object {
	p.Algorithm = cmp.Or(p.Algorithm, f.Algorithm)
	out := poolChange(p)
	if out["session_persistence"] == nil {
		delete(out, "session_persistence")
	}
	out["protocol"] = p.Protocol
	return out
}

func newMember(m sdn.Member) object {
	out := object{"name": m.Name, "address": m.IP, "protocol_port": m.Port}
	if m.SubnetID != "" {
		out["subnet_id"] = m.SubnetID
	}
	return out
}

func newMembers(all []sdn.Member) []object {
	out := make([]object, len(all))
	for i, m := range all {
		out[i] = newMember(m)
	}
	return out
}

func monitorChange(m v1.MonitorSpec) object {
	return object{"delay": m.Delay, "timeout": m.Timeout, "max_retries": m.MaxRetries, "max_retries_down": m.MaxRetriesDown}
}

func newMonitor(m v1.MonitorSpec) object {
	out := monitorChange(m)
	out["type"] = m.Type
	return out
}
