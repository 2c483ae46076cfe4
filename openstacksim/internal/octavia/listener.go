// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"slices"
	"strings"
)

func (c *call) routeListeners(rest []string) *controller {
	if len(rest) == 0 {
		return &controller{
			get: func() (answer, *fault) {
				project, bad := c.scope(mayRead, mayReadAll)
				if bad != nil {
					return answer{}, bad
				}
				return list(c, c.listeners, "listeners", project, nil, c.viewListener)
			}, extra: true, remove: lacking("id"),
			post: &bodied{argument: "listener_", root: "ListenerRootPOST", do: c.createListener},
			put:  &bodied{argument: "listener_", root: "ListenerRootPUT", need: "id"},
		}
	}
	id := rest[0]
	if len(rest) > 1 && rest[1] == "stats" {
		return &controller{get: func() (answer, *fault) {
			_, bad := c.listener(id, mayRead)
			return answer{200, stats}, bad
		}}
	}
	return &controller{
		get: func() (answer, *fault) {
			l, bad := c.listener(id, mayRead)
			if bad != nil {
				return answer{}, bad
			}
			return c.one("listener", c.viewListener(l), rest)
		}, extra: true,
		post:   misplaced("listener_", "ListenerRootPOST", id),
		put:    &bodied{argument: "listener_", root: "ListenerRootPUT", do: func(in values) (answer, *fault) { return c.updateListener(id, in) }},
		remove: func() (answer, *fault) { return c.deleteListener(id) },
	}
}

func (c *call) listener(id string, r right) (*listener, *fault) {
	l, ok := c.listeners.Get(id)
	if !ok {
		return nil, notFound("Listener", id)
	}
	return l, c.allow(r, l.ProjectID)
}

func (c *call) createListener(body values) (answer, *fault) {
	in, bad := below(body, "listener", "loadbalancer_id")
	if bad != nil {
		return answer{}, bad
	}
	lb, bad := c.parent(in, "loadbalancer_id")
	if bad != nil {
		return answer{}, bad
	}
	d, bad := c.driver(lb.Provider)
	if bad != nil {
		return answer{}, bad
	}
	if c.overQuota("listener", lb.ProjectID, 1) {
		return answer{}, quotaMet("Listener")
	}
	if bad := c.poolFits(in.text("default_pool_id"), in.text("protocol"), lb.ID); bad != nil {
		return answer{}, bad
	}
	if bad := (lock{lb: lb}).free(); bad != nil {
		return answer{}, bad
	}
	// The API's type knows the attributes, but its handler does not.
	if in["default_pool"] != nil || len(in.list("l7policies")) > 0 {
		return answer{}, crash("'dict' object has no attribute '_sa_instance_state'")
	}
	l, bad := c.newListener(lb, in)
	if bad == nil {
		bad = d.createListener(l)
	}
	if bad != nil {
		return answer{}, bad
	}
	c.listeners.Put(l)
	c.work("listener", "create", &l.base, lock{lb: lb}, func() { l.OperatingStatus = upDown(l.AdminStateUp) })
	return answer{201, record{"listener": c.viewListener(l)}}, nil
}

// poolFits refuses a default pool of another load balancer, or with another protocol.
func (c *call) poolFits(id, protocol, lb string) *fault {
	if id == "" {
		return nil
	}
	if protocol == "PROMETHEUS" {
		return childless
	}
	p, ok := c.pools.Get(id)
	if !ok || p.LoadBalancerID != lb {
		return notFound("Pool", id)
	}
	return compatible(protocol, p.Protocol)
}

var childless = refuse(400, "Protocol PROMETHEUS listeners cannot have child objects.")

// poolProtocols are the valid protocols of a listener's pools: octavia 11.0.0,
// common/constants.py, VALID_LISTENER_POOL_PROTOCOL_MAP.
var poolProtocols = map[string][]string{
	"TCP":              {"HTTP", "HTTPS", "PROXY", "PROXYV2", "TCP"},
	"HTTP":             {"HTTP", "PROXY", "PROXYV2"},
	"HTTPS":            {"HTTPS", "PROXY", "PROXYV2", "TCP"},
	"TERMINATED_HTTPS": {"HTTP", "PROXY", "PROXYV2"},
	"UDP":              {"UDP"},
	"SCTP":             {"SCTP"},
}

func compatible(listener, pool string) *fault {
	if slices.Contains(poolProtocols[listener], pool) {
		return nil
	}
	return invalid("The pool protocol '%s' is invalid while the listener protocol is '%s'.", pool, listener)
}

// newListener checks and makes a listener of lb without storing it.
func (c *call) newListener(lb *loadBalancer, in values) (*listener, *fault) {
	if bad := c.poolFits(in.text("default_pool_id"), in.text("protocol"), lb.ID); bad != nil {
		return nil, bad
	}
	if bad := c.checkListener(lb, in); bad != nil {
		return nil, bad
	}
	l := &listener{
		LoadBalancerID: lb.ID, SNIRefs: []string{},
		// These are the defaults of Octavia's configuration.
		TimeoutClientData: 50000, TimeoutMemberConnect: 5000, TimeoutMemberData: 50000,
	}
	l.base = c.fresh(lb.ProjectID)
	apply(l, defaulted(in).without("project_id", "tenant_id"))
	l.tidy()
	if l.Protocol == "TERMINATED_HTTPS" {
		l.secure()
	}
	return l, nil
}

// listenerDefaults are the values that null stands for.
var listenerDefaults = values{
	"connection_limit": int64(-1), "timeout_client_data": int64(50000), "timeout_member_connect": int64(5000),
	"timeout_member_data": int64(50000), "timeout_tcp_inspect": int64(0), "client_authentication": "NONE",
}

func defaulted(in values) values {
	out := in.clone()
	for name, value := range listenerDefaults {
		if out.null(name) {
			out[name] = value
		}
	}
	return out
}

func (l *listener) tidy() {
	if l.Tags == nil {
		l.Tags = []string{}
	}
	if l.SNIRefs == nil {
		l.SNIRefs = []string{}
	}
	if len(l.AllowedCIDRs) == 0 {
		l.AllowedCIDRs = nil
	}
	l.AllowedCIDRs = slices.Compact(l.AllowedCIDRs)
	if l.DefaultPoolID != nil && *l.DefaultPoolID == "" {
		l.DefaultPoolID = nil
	}
}

// checkListener is octavia 11.0.0, api/v2/controllers/listener.py,
// _validate_create_listener.
func (c *call) checkListener(lb *loadBalancer, in values) *fault {
	protocol := in.text("protocol")
	certificate := in.text("default_tls_container_ref") != "" || len(in.list("sni_container_refs")) > 0
	offload := protocol == "TERMINATED_HTTPS" || protocol == "PROMETHEUS" && certificate
	if headers, ok := in["insert_headers"].(map[string]any); ok && len(headers) > 0 {
		if bad := headersFit(headers, protocol); bad != nil {
			return bad
		}
	}
	if bad := tlsFits(in, protocol, certificate, offload); bad != nil {
		return bad
	}
	refs := append(in.texts("sni_container_refs"), nonEmpty(in.text("default_tls_container_ref"))...)
	client := in.text("client_ca_tls_container_ref")
	if bad := c.checkTLS(in, refs, nonEmpty(client, in.text("client_crl_container_ref")), offload); bad != nil {
		return bad
	}
	if bad := hstsFits(in, nil, protocol); bad != nil {
		return bad
	}
	return c.portFree(lb, in, protocol)
}

// hstsFits is octavia 16.0.0: common/validate.py, check_hsts_options and check_hsts_options_put. old
// is the listener that is changed, if any. Earlier bodies have no such attributes.
func hstsFits(in values, old *listener, protocol string) *fault {
	_, aged := in["hsts_max_age"].(int64)
	switch more := in.flag("hsts_include_subdomains") || in.flag("hsts_preload"); {
	case more && !aged && old == nil:
		return invalid("HSTS configuration options hsts_include_subdomains and hsts_preload only make sense if hsts_max_age is set as well.")
	case more && !aged && old.HSTSMaxAge == nil:
		return invalid("Cannot enable hsts_include_subdomains or hsts_preload if hsts_max_age was not set as well.")
	case aged && protocol != "TERMINATED_HTTPS":
		return invalid("The HSTS feature can only be used for listeners using the TERMINATED_HTTPS protocol.")
	}
	return nil
}

// tlsFits is the part of it about certificates.
func tlsFits(in values, protocol string, certificate, offload bool) *fault {
	client := in.text("client_ca_tls_container_ref")
	authentication := in.text("client_authentication")
	switch {
	case (protocol == "UDP" || protocol == "SCTP") && certificate:
		return invalid("%s protocol listener does not support TLS.", protocol)
	case !offload && certificate:
		return invalid("Certificate container references are not allowed on %s protocol listeners.", protocol)
	case client != "" && !certificate:
		return invalid("An SNI or default certificate container reference must be provided with a client CA container reference.")
	case offload && !certificate:
		return invalid("An SNI or default certificate container reference must be provided for %s protocol listeners.", protocol)
	case authentication != "NONE" && authentication != "" && client == "":
		return invalid("Client authentication setting %s requires a client CA container reference.", authentication)
	case in.text("client_crl_container_ref") != "" && client == "":
		return invalid("A client authentication CA reference is required to specify a client authentication revocation list.")
	}
	return nil
}

// portFree refuses a port that is in use for the same transport protocol. It also refuses CIDRs
// of another IP family than the VIP's.
func (c *call) portFree(lb *loadBalancer, in values, protocol string) *fault {
	port, ok := in["protocol_port"].(int64)
	if !ok || protocol == "" { // null: the database refuses it
		return notOption(str(in["protocol"]), "protocol")
	}
	// The database refuses this, too.
	if limit, ok := in["connection_limit"].(int64); ok && limit > 1<<31-1 {
		return notOption(protocol, "protocol")
	}
	for _, other := range c.listenersOf(lb.ID) {
		if int64(other.ProtocolPort) == port && transport(other.Protocol) == transport(protocol) {
			return refuse(409, "Another Listener on this Load Balancer is already using protocol %s and protocol_port %d", other.Protocol, port)
		}
	}
	return c.cidrsFit(lb, in)
}

func (c *call) cidrsFit(lb *loadBalancer, in values) *fault {
	all, words := []any{lb.VIPAddress}, "VIP "+lb.VIPAddress
	if c.o.Later { // octavia 16.0.0: _validate_cidr_compatible_with_vip
		for _, v := range lb.AdditionalVIPs {
			all = append(all, v.IPAddress)
		}
		words = "all VIPs " + repr(all)
	}
	for _, cidr := range in.texts("allowed_cidrs") {
		if len(lb.VIPGroups) > 0 {
			return invalid("Allowed CIDRs are not allowed when using custom VIP Security Groups.")
		}
		if !slices.ContainsFunc(all, func(vip any) bool { return strings.Contains(cidr, ":") == isIPv6(vip.(string)) }) {
			return invalid("CIDR %s IP version incompatible with %s IP version.", cidr, words)
		}
	}
	return nil
}

// transport returns the transport protocol of a listener's protocol.
func transport(protocol string) string {
	if protocol == "UDP" || protocol == "SCTP" {
		return protocol
	}
	return "TCP"
}

func (c *call) updateListener(id string, body values) (answer, *fault) {
	l, bad := c.listener(id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	in, bad := below(body, "listener", "to_dict")
	if bad != nil {
		return answer{}, bad
	}
	lb, _ := c.loadBalancers.Get(l.LoadBalancerID)
	d, bad := c.driver(lb.Provider)
	if bad == nil {
		bad = c.checkListenerUpdate(l, lb, in)
	}
	if bad != nil {
		return answer{}, bad
	}
	if bad := (lock{lb: lb}).free(); bad != nil {
		return answer{}, bad
	}
	if bad := d.updateListener(in); bad != nil {
		return answer{}, bad
	}
	apply(l, defaulted(in))
	l.tidy()
	c.work("listener", "update", &l.base, lock{lb: lb}, func() {
		if in.given("admin_state_up") {
			l.OperatingStatus = upDown(l.AdminStateUp)
		}
	})
	return answer{200, record{"listener": c.viewListener(l)}}, nil
}

// checkListenerUpdate is _validate_listener_PUT.
func (c *call) checkListenerUpdate(l *listener, lb *loadBalancer, in values) *fault {
	certificate := in.text("default_tls_container_ref") != "" || len(in.list("sni_container_refs")) > 0
	headers, _ := in["insert_headers"].(map[string]any)
	client := in.text("client_ca_tls_container_ref") != "" || l.ClientCARef != nil
	authentication := in.text("client_authentication")
	switch {
	case (l.Protocol == "UDP" || l.Protocol == "SCTP") && (certificate || len(headers) > 0):
		return invalid("%s protocol listener does not support TLS or header insertion.", l.Protocol)
	case certificate && l.Protocol != "TERMINATED_HTTPS" && l.Protocol != "PROMETHEUS":
		return invalid("Certificate container references are not allowed on %s protocol listeners.", l.Protocol)
	case authentication != "" && authentication != "NONE" && !client:
		return invalid("Client authentication setting %s requires a client CA container reference.", authentication)
	}
	if len(headers) > 0 {
		if bad := headersFit(headers, l.Protocol); bad != nil {
			return bad
		}
	}
	refs := append(in.texts("sni_container_refs"), nonEmpty(in.text("default_tls_container_ref"))...)
	authorities := nonEmpty(in.text("client_ca_tls_container_ref"), in.text("client_crl_container_ref"))
	if in.text("client_crl_container_ref") != "" && !client {
		return invalid("A client authentication CA reference is required to specify a client authentication revocation list.")
	}
	if bad := c.checkTLS(in, refs, authorities, true); bad != nil {
		return bad
	}
	if bad := c.cidrsFit(lb, in); bad != nil {
		return bad
	}
	if bad := hstsFits(in, l, l.Protocol); bad != nil {
		return bad
	}
	return c.poolFits(in.text("default_pool_id"), l.Protocol, lb.ID)
}

func (c *call) deleteListener(id string) (answer, *fault) {
	l, bad := c.listener(id, mayWrite)
	if bad != nil {
		return answer{}, bad
	}
	lb, _ := c.loadBalancers.Get(l.LoadBalancerID)
	if bad := (lock{lb: lb}).free(); bad != nil {
		return answer{}, bad
	}
	s := c.Service
	c.work("listener", "delete", &l.base, lock{lb: lb}, func() { s.dropListener(l) })
	return answer{status: 204}, nil
}

// dropListener removes a listener and everything below it.
func (s *Service) dropListener(l *listener) {
	for _, p := range s.policiesOf(l.ID) {
		s.dropPolicy(p)
	}
	s.listeners.Delete(l.ID)
}
