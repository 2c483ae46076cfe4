// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// routerOwners are the device owners of a router's ports in subnets: of a plain, a distributed and
// a highly available router.
var routerOwners = []string{"network:router_interface", "network:router_interface_distributed", "network:ha_router_replicated_interface"}

// SurveyNetworks implements sdn.Survey. Lists are filtered by ID, so their length is that of the
// query; the list of agents is as long as the cloud has hosts.
func (b *Neutron) SurveyNetworks(ctx context.Context, q sdn.NetworkQuery) sdn.NetworkSurvey {
	var out sdn.NetworkSurvey
	var all sync.WaitGroup
	all.Go(func() { out.Extensions = b.surveyExtensions(ctx, &out) })
	all.Go(func() { out.Quotas = b.surveyQuotas(ctx, q.ProjectIDs) })
	all.Go(func() { out.Agents = b.surveyAgents(ctx) })
	all.Go(func() { out.SecurityGroups = b.surveyGroups(ctx, q.SecurityGroupIDs) })
	all.Go(func() { out.Projects = b.surveyProjects(ctx, q.KnownProjectIDs) })
	all.Go(func() {
		out.Subnets = b.surveySubnets(ctx, q.SubnetIDs)
		var own []string // networks of the subnets
		for _, s := range out.Subnets.Value {
			own = append(own, s.NetworkID)
		}
		all.Go(func() { out.Networks = b.surveyNetworks(ctx, append(own[:len(own):len(own)], q.NetworkIDs...)) })
		all.Go(func() { out.Addresses = b.surveyAddresses(ctx, own, out.Subnets.Err) })
		out.RouterInterfaces, out.BindsShown = b.surveyRouterInterfaces(ctx, own, out.Subnets.Err)
		out.Routers = b.surveyRouters(ctx, out.RouterInterfaces, q.RouterIDs)
	})
	all.Wait()
	return out
}

// distinct returns IDs sorted, without duplicates and empty ones.
func distinct(ids []string) []string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// readChosen reads the objects whose field key has one of these values.
func readChosen[T session.Listable](ctx context.Context, b *Neutron, many, key string, ids []string, query url.Values, fields ...string) ([]T, error) {
	var out []T
	for some := range slices.Chunk(distinct(ids), maxIDs) {
		match := url.Values{key: some}
		maps.Copy(match, query)
		rows, err := session.ReadAll[T](ctx, b.Client, session.Request{Path: []string{many}, Query: byID(match, fields), Subject: noSuchPath}, nil)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", many, err)
		}
		out = append(out, rows...)
	}
	return out, nil
}

// surveyExtensions also asks for the credential's project.
func (b *Neutron) surveyExtensions(ctx context.Context, out *sdn.NetworkSurvey) sdn.Read[[]string] {
	own, err := b.Project(ctx)
	if err != nil {
		return sdn.Read[[]string]{Err: err}
	}
	out.ProjectID = own
	aliases, err := b.askExtensions(ctx)
	if err != nil {
		return sdn.Read[[]string]{Err: fmt.Errorf("listing extensions: %w", err)}
	}
	slices.Sort(aliases)
	return sdn.Read[[]string]{Value: aliases}
}

func (b *Neutron) surveyQuotas(ctx context.Context, projects []string) map[string]sdn.Read[map[string]sdn.Usage] {
	out := map[string]sdn.Read[map[string]sdn.Usage]{}
	for _, project := range projects {
		if _, ok := out[project]; ok {
			continue
		}
		quotas, err := b.projectQuotas(ctx, project)
		if err != nil {
			err = fmt.Errorf("asking for the quotas of project %q: %w", project, err)
		}
		out[project] = sdn.Read[map[string]sdn.Usage]{Value: quotas, Err: err}
	}
	return out
}

// surveyAgents lists agents without a page size: Neutron with OVN takes none for agents.
func (b *Neutron) surveyAgents(ctx context.Context) sdn.Read[[]sdn.Agent] {
	var body struct {
		Agents []struct {
			Type  string `json:"agent_type"`
			Host  string
			Alive bool
			// Each type of agent reports what it likes.
			Configurations map[string]any
		}
	}
	query := url.Values{"fields": {"agent_type", "host", "alive", "configurations"}}
	err := b.Do(ctx, session.Request{Method: http.MethodGet, Path: []string{"agents"}, Query: query, Out: &body, Subject: noSuchPath})
	if err != nil {
		return sdn.Read[[]sdn.Agent]{Err: fmt.Errorf("listing agents: %w", err)}
	}
	var agents []sdn.Agent
	for _, a := range body.Agents {
		agents = append(agents, sdn.Agent{Type: a.Type, Host: a.Host, Alive: a.Alive, Hybrid: a.Configurations["ovs_hybrid_plug"] == true})
	}
	return sdn.Read[[]sdn.Agent]{Value: agents}
}

// surveyed reads objects by their IDs, and returns what of makes of each.
func surveyed[W session.Listable, T any](ctx context.Context, b *Neutron, k kind, ids []string, of func(W) (T, error), fields ...string) sdn.Read[map[string]T] {
	rows, err := readChosen[W](ctx, b, k.many, "id", ids, nil, fields...)
	out := sdn.Read[map[string]T]{Value: map[string]T{}, Err: err}
	for _, w := range rows {
		if out.Value[w.Key()], out.Err = of(w); out.Err != nil {
			delete(out.Value, w.Key())
			break
		}
	}
	return out
}

func (b *Neutron) surveySubnets(ctx context.Context, ids []string) sdn.Read[map[string]sdn.SurveyedSubnet] {
	return surveyed(ctx, b, subnetKind, ids, func(w wireSubnet) (sdn.SurveyedSubnet, error) {
		is, err := subnetOf(w)
		s := sdn.SurveyedSubnet{ID: w.ID, Name: w.Name, NetworkID: w.NetworkID, Prefix: is.Prefix, Gateway: is.Gateway, Routes: is.Routes}
		for _, p := range w.Ranges {
			s.Pools = append(s.Pools, sdn.AddressRange{First: p.Start, Last: p.End})
		}
		return s, err
	}, "id", "name", "network_id", "cidr", "gateway_ip", "host_routes", "allocation_pools")
}

func (b *Neutron) surveyNetworks(ctx context.Context, ids []string) sdn.Read[map[string]sdn.SurveyedNetwork] {
	return surveyed(ctx, b, networkKind, ids, func(w wireNetwork) (sdn.SurveyedNetwork, error) {
		return sdn.SurveyedNetwork{
			ID: w.ID, Name: w.Name, ProjectID: w.ProjectID, MTU: w.MTU, External: w.External, Down: !w.Up,
			Type: w.Type, Physical: w.Physical, Unfiltered: w.Secure != nil && !*w.Secure,
		}, nil
	}, "id", "name", "project_id", "mtu", "router:external", "admin_state_up", "port_security_enabled", "provider:network_type", "provider:physical_network")
}

// surveyAddresses returns nothing if the subnets are not known.
func (b *Neutron) surveyAddresses(ctx context.Context, networks []string, unknown error) sdn.Read[map[string]sdn.Usage] {
	if unknown != nil {
		return sdn.Read[map[string]sdn.Usage]{Err: unknown}
	}
	out, err := b.networkAddresses(ctx, distinct(networks))
	if err != nil {
		err = fmt.Errorf("asking for the free addresses of networks: %w", err)
	}
	return sdn.Read[map[string]sdn.Usage]{Value: out, Err: err}
}

// surveyRouterInterfaces also returns whether the ports show the host that they are bound to.
func (b *Neutron) surveyRouterInterfaces(ctx context.Context, networks []string, unknown error) (ifaces sdn.Read[[]sdn.RouterInterface], bindsShown *bool) {
	if unknown != nil {
		return sdn.Read[[]sdn.RouterInterface]{Err: unknown}, nil
	}
	rows, err := readChosen[wirePort](ctx, b, "ports", "network_id", networks, url.Values{"device_owner": routerOwners},
		"id", "device_id", "network_id", "fixed_ips", "binding:host_id")
	ifaces.Err = err
	for _, w := range rows {
		bindsShown = new(w.HostID != nil)
		for _, ip := range w.FixedIPs {
			address, _ := netip.ParseAddr(ip.IP)
			ifaces.Value = append(ifaces.Value, sdn.RouterInterface{RouterID: w.DeviceID, NetworkID: w.NetworkID, SubnetID: ip.SubnetID, Address: address})
		}
	}
	return ifaces, bindsShown
}

// surveyRouters reads the routers of interfaces, and further ones.
func (b *Neutron) surveyRouters(ctx context.Context, ifaces sdn.Read[[]sdn.RouterInterface], more []string) sdn.Read[map[string]sdn.Router] {
	if ifaces.Err != nil {
		return sdn.Read[map[string]sdn.Router]{Err: ifaces.Err}
	}
	ids := slices.Clone(more)
	for _, l := range ifaces.Value {
		ids = append(ids, l.RouterID)
	}
	return surveyed(ctx, b, routerKind, ids, func(w wireRouter) (sdn.Router, error) {
		r := routerOf(w)
		return sdn.Router{ID: w.ID, Name: w.Name, ExternalNetwork: r.Gateway.NetworkID, Routes: r.Routes, Down: !w.Up}, nil
	}, "id", "name", "admin_state_up", "external_gateway_info", "routes")
}
