// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"net/netip"
	"slices"
	"time"

	"github.com/kuryr-go/kuryr/openstacksim/internal/table"
)

// Provisioning and operating statuses.
const (
	active        = "ACTIVE"
	pendingCreate = "PENDING_CREATE"
	pendingUpdate = "PENDING_UPDATE"
	pendingDelete = "PENDING_DELETE"
	deleted       = "DELETED"
	failed        = "ERROR"
	online        = "ONLINE"
	offline       = "OFFLINE"
	noMonitor     = "NO_MONITOR"
	draining      = "DRAINING"
	degraded      = "DEGRADED"
)

// base holds the fields that all objects of a load balancer share.
type base struct {
	ID                 string   `json:"id"`
	ProjectID          string   `json:"project_id"`
	Name               string   `json:"name"`
	Description        string   `json:"description"`
	ProvisioningStatus string   `json:"provisioning_status"`
	OperatingStatus    string   `json:"operating_status"`
	AdminStateUp       bool     `json:"admin_state_up"`
	CreatedAt          string   `json:"created_at"`
	UpdatedAt          *string  `json:"updated_at"`
	Tags               []string `json:"tags"`
}

type loadBalancer struct {
	base
	Provider         string          `json:"provider"`
	VIPAddress       string          `json:"vip_address"`
	VIPPortID        string          `json:"vip_port_id"`
	VIPSubnetID      string          `json:"vip_subnet_id"`
	VIPNetworkID     string          `json:"vip_network_id"`
	VIPQoSPolicyID   *string         `json:"vip_qos_policy_id"`
	AdditionalVIPs   []additionalVIP `json:"additional_vips"`
	FlavorID         *string         `json:"flavor_id"`
	AvailabilityZone *string         `json:"availability_zone"`
	VIPGroups        []string        `json:"vip_sg_ids"`    // since 16.0.0
	VIPVNICType      string          `json:"vip_vnic_type"` // since 16.0.0
	ownsPort         bool            // the VIP's port is deleted with the load balancer
	morePorts        []string        // of AdditionalVIPs, in their order; deleted, too
	torn             bool            // a deletion has failed: see tear
}

type additionalVIP struct {
	SubnetID  string `json:"subnet_id"`
	IPAddress string `json:"ip_address"`
}

type listener struct {
	base
	LoadBalancerID       string            `json:"load_balancer_id"`
	Protocol             string            `json:"protocol"`
	ProtocolPort         int               `json:"protocol_port"`
	ConnectionLimit      int               `json:"connection_limit"`
	DefaultTLSRef        *string           `json:"default_tls_container_ref"`
	SNIRefs              []string          `json:"sni_container_refs"`
	DefaultPoolID        *string           `json:"default_pool_id"`
	InsertHeaders        map[string]string `json:"insert_headers"`
	TimeoutClientData    int               `json:"timeout_client_data"`
	TimeoutMemberConnect int               `json:"timeout_member_connect"`
	TimeoutMemberData    int               `json:"timeout_member_data"`
	TimeoutTCPInspect    int               `json:"timeout_tcp_inspect"`
	ClientCARef          *string           `json:"client_ca_tls_container_ref"`
	ClientAuthentication string            `json:"client_authentication"`
	ClientCRLRef         *string           `json:"client_crl_container_ref"`
	AllowedCIDRs         []string          `json:"allowed_cidrs"`
	TLSCiphers           *string           `json:"tls_ciphers"`
	TLSVersions          []string          `json:"tls_versions"`
	ALPNProtocols        []string          `json:"alpn_protocols"`
	// Since 16.0.0.
	HSTSMaxAge     *int `json:"hsts_max_age"`
	HSTSSubdomains bool `json:"hsts_include_subdomains"`
	HSTSPreload    bool `json:"hsts_preload"`
}

type pool struct {
	base
	LoadBalancerID  string       `json:"load_balancer_id"`
	Protocol        string       `json:"protocol"`
	Algorithm       string       `json:"lb_algorithm"`
	Persistence     *persistence `json:"session_persistence"`
	HealthMonitorID *string      `json:"healthmonitor_id"`
	TLSRef          *string      `json:"tls_container_ref"`
	CARef           *string      `json:"ca_tls_container_ref"`
	CRLRef          *string      `json:"crl_container_ref"`
	TLSEnabled      bool         `json:"tls_enabled"`
	TLSCiphers      *string      `json:"tls_ciphers"`
	TLSVersions     []string     `json:"tls_versions"`
	ALPNProtocols   []string     `json:"alpn_protocols"`
}

type persistence struct {
	Type        string  `json:"type"`
	CookieName  *string `json:"cookie_name"`
	Timeout     *int    `json:"persistence_timeout"`
	Granularity *string `json:"persistence_granularity"`
}

type member struct {
	base
	PoolID         string  `json:"pool_id"`
	Address        string  `json:"address"`
	ProtocolPort   int     `json:"protocol_port"`
	Weight         int     `json:"weight"`
	Backup         bool    `json:"backup"`
	SubnetID       *string `json:"subnet_id"`
	MonitorAddress *string `json:"monitor_address"`
	MonitorPort    *int    `json:"monitor_port"`
	VNICType       string  `json:"vnic_type"` // since 16.0.0
	lost           bool    // the provider does not know the member
}

type monitor struct {
	base
	PoolID         string   `json:"pool_id"`
	Type           string   `json:"type"`
	Delay          int      `json:"delay"`
	Timeout        int      `json:"timeout"`
	MaxRetries     int      `json:"max_retries"`
	MaxRetriesDown int      `json:"max_retries_down"`
	HTTPMethod     *string  `json:"http_method"`
	URLPath        *string  `json:"url_path"`
	ExpectedCodes  *string  `json:"expected_codes"`
	HTTPVersion    *float64 `json:"http_version"`
	DomainName     *string  `json:"domain_name"`
}

type policy struct {
	base
	ListenerID       string  `json:"listener_id"`
	Action           string  `json:"action"`
	RedirectPoolID   *string `json:"redirect_pool_id"`
	RedirectURL      *string `json:"redirect_url"`
	RedirectPrefix   *string `json:"redirect_prefix"`
	RedirectHTTPCode *int    `json:"redirect_http_code"`
	Position         int     `json:"position"`
}

type rule struct {
	base
	PolicyID    string  `json:"l7policy_id"`
	Type        string  `json:"type"`
	CompareType string  `json:"compare_type"`
	Key         *string `json:"key"`
	Value       string  `json:"value"`
	Invert      bool    `json:"invert"`
}

// rows holds all objects. Deleted load balancers stay, as they do in Octavia's database for a
// week. A new listener for one of them is then refused with 409.
type rows struct {
	loadBalancers *table.Table[loadBalancer]
	listeners     *table.Table[listener]
	pools         *table.Table[pool]
	members       *table.Table[member]
	monitors      *table.Table[monitor]
	policies      *table.Table[policy]
	rules         *table.Table[rule]
	quotas        *table.Table[quota]
	admin
}

func newRows() rows {
	return rows{
		loadBalancers: table.New(func(r *loadBalancer) string { return r.ID }),
		listeners:     table.New(func(r *listener) string { return r.ID }),
		pools:         table.New(func(r *pool) string { return r.ID }),
		members:       table.New(func(r *member) string { return r.ID }),
		monitors:      table.New(func(r *monitor) string { return r.ID }),
		policies:      table.New(func(r *policy) string { return r.ID }),
		rules:         table.New(func(r *rule) string { return r.ID }),
		quotas:        table.New(func(r *quota) string { return r.ProjectID }),
		admin:         newAdmin(),
	}
}

// where returns the rows that match, in the order of their creation.
func where[T any](t *table.Table[T], match func(*T) bool) []*T {
	out := []*T{}
	for r := range t.All() {
		if match(r) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b *T) int { return compareText(table.Value(a, "created_at"), table.Value(b, "created_at")) })
	return out
}

func compareText(a, b any) int {
	x, _ := a.(string)
	y, _ := b.(string)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func (s *Service) listenersOf(lb string) []*listener {
	return where(s.listeners, func(l *listener) bool { return l.LoadBalancerID == lb })
}

func (s *Service) poolsOf(lb string) []*pool {
	return where(s.pools, func(p *pool) bool { return p.LoadBalancerID == lb })
}

func (s *Service) membersOf(pool string) []*member {
	return where(s.members, func(m *member) bool { return m.PoolID == pool })
}

// policiesOf returns policies in the order of their positions.
func (s *Service) policiesOf(listener string) []*policy {
	out := where(s.policies, func(p *policy) bool { return p.ListenerID == listener })
	slices.SortStableFunc(out, func(a, b *policy) int { return a.Position - b.Position })
	return out
}

func (s *Service) rulesOf(policy string) []*rule {
	return where(s.rules, func(r *rule) bool { return r.PolicyID == policy })
}

// usersOf returns the listeners that may send traffic to a pool: octavia 11.0.0, db/models.py,
// Pool.listeners.
func (s *Service) usersOf(pool string) []*listener {
	out := where(s.listeners, func(l *listener) bool { return l.DefaultPoolID != nil && *l.DefaultPoolID == pool })
	for _, p := range s.redirectsTo(pool) {
		l, ok := s.listeners.Get(p.ListenerID)
		if ok && s.redirects(p) && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// redirects reports whether a policy has any effect.
func (s *Service) redirects(p *policy) bool { return p.AdminStateUp && len(s.rulesOf(p.ID)) > 0 }

func (s *Service) redirectsTo(pool string) []*policy {
	return where(s.policies, func(p *policy) bool { return p.RedirectPoolID != nil && *p.RedirectPoolID == pool })
}

// now returns the time in the form of rows. Octavia's columns have whole seconds.
func (s *Service) now() string {
	return s.o.Now().UTC().Format(time.RFC3339)[:len("2006-01-02T15:04:05")]
}

func (s *Service) touch(b *base) {
	t := s.now()
	b.UpdatedAt = &t
}

// fresh returns the common fields of a new object.
func (s *Service) fresh(project string) base {
	return base{
		ID: s.o.NewID(), ProjectID: project, ProvisioningStatus: pendingCreate, OperatingStatus: offline,
		AdminStateUp: true, CreatedAt: s.now(), Tags: []string{},
	}
}

func isIPv6(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.Is6()
}
