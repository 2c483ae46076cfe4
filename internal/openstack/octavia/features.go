// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// The providers that are known by name. Octavia does not show what a provider can do: see
// capability for other providers.
const (
	providerOVN     = "ovn" // ovn-octavia-provider 3.0.0 and 8.0.0
	providerAmphora = "amphora"
	providerOctavia = "octavia" // an old name of amphora, which many clouds list as well
)

func isAmphora(provider string) bool {
	return provider == providerAmphora || provider == providerOctavia
}

// populates reports whether one request may create a load balancer of a provider with its children.
//
// The worker of Zed's Octavia 11.0.0 is not told of the children of an amphora's load balancer. They
// stay PENDING_CREATE below an ACTIVE load balancer, and Octavia then refuses to change and to delete
// them. Octavia shows v2.26 with Zed and with 2023.1. Other providers may not support it.
func (a api) populates(provider string) bool {
	return provider == providerOVN && !a.single || isAmphora(provider) && !a.single && (!a.has(withMoreVIPs) || a.has(afterOVNAffinity))
}

// How long a provider works at each member of a request before Octavia answers. OVN's driver of Zed
// changes OVN meanwhile; that was measured on two cores under other load. With other providers, Octavia
// asks Neutron for the member's subnet, which takes a few hundredths of a second.
const (
	memberTimeOVN = 450 * time.Millisecond
	memberTime    = 100 * time.Millisecond
)

// members returns how many members one request may have, so that the answer comes within three
// quarters of the request timeout. These are ten at least, however short that is, and a thousand at
// most, because of the size of the body.
func (b *Octavia) members(provider string) int {
	each := memberTime
	if provider == providerOVN {
		each = memberTimeOVN
	}
	return min(max(int(b.Config.RequestTimeout*3/4/each), 10), 1000)
}

// Features implements sdn.LoadBalancers. A provider that is not known by name has all features
// of the API, until it has refused one.
func (b *Octavia) Features(ctx context.Context, provider string) (sdn.Features, error) {
	return b.features(ctx, provider, "")
}

// features returns the features of a provider. Without a provider, they are those of the
// provider that a load balancer of this flavor gets.
func (b *Octavia) features(ctx context.Context, provider, flavor string) (sdn.Features, error) {
	a, err := b.balancerAPI(ctx)
	if err != nil {
		return sdn.Features{}, err
	}
	names, err := b.providerNames(ctx)
	if err != nil {
		return sdn.Features{}, err
	}
	name, sure := provider, true
	if name == "" {
		name, sure = b.balancers.usualOf(names, flavor)
	} else if !slices.Contains(names, name) {
		err := fmt.Errorf("Octavia has no provider %q, but %s: %w", name, strings.Join(names, ", "), sdn.ErrInvalid)
		return sdn.Features{}, &sdn.InvalidError{Field: sdn.FieldProvider, Value: name, Err: err}
	}
	f := featuresOf(name, a)
	f.Unsure = !sure
	b.balancers.restrict(&f)
	return f, nil
}

// featuresOf returns what is known of a provider from the start. LBaaS v2 has no fields for the PROXY
// protocol, and no failover.
func featuresOf(name string, a api) sdn.Features {
	f := sdn.Features{
		Provider: name, Protocols: []string{"TCP"}, Monitors: []string{"TCP", "HTTP"},
		Algorithms: []string{"ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP"}, // of the first API version; the first one is the default
		Affinity:   true, AffinityTimeout: a.has(withUDP), SourceRanges: a.has(withSourceRanges), Timeouts: a.has(withTimeouts),
		ConnectionLimit: true, ProxyProtocol: a.versioned, ManyProtocols: a.has(withSourceIPPort), FailOver: a.versioned, FarMembers: true,
	}
	if a.has(withUDP) {
		f.Protocols, f.Monitors = append(f.Protocols, "UDP"), append(f.Monitors, "UDP-CONNECT")
	}
	if a.has(withSCTP) {
		f.Protocols, f.Monitors = append(f.Protocols, "SCTP"), append(f.Monitors, "SCTP")
	}
	if !isAmphora(name) && a.has(withSourceIPPort) {
		f.Algorithms = append(f.Algorithms, sourceIPPort)
	}
	if name == providerOVN {
		later := a.has(afterOVNAffinity)
		f.AffinityUnsure, f.AffinityTimeout, f.AffinityShared, f.DisabledBlocks = true, later, later, later
		f.Algorithms, f.KeepsClientAddress, f.KeepsUDPClients, f.ChildrenLater = []string{sourceIPPort}, true, true, true
		f.SourceRanges, f.Timeouts, f.ConnectionLimit, f.ProxyProtocol, f.FailOver = false, false, false, false, false
		f.Monitors = []string{"TCP", "UDP-CONNECT"}
	}
	return f
}

const sourceIPPort = "SOURCE_IP_PORT" // OVN's own

// usualOf returns the provider of load balancers that name none: the one that such a load
// balancer got, or the only one of the cloud. Else it is a guess, which is Octavia's own
// default. A flavor belongs to one provider.
func (l *balancers) usualOf(names []string, flavor string) (name string, sure bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.usual[flavor] != "":
		return l.usual[flavor], true
	case len(names) == 1:
		return names[0], true
	case slices.ContainsFunc(names, isAmphora), len(names) == 0:
		others := slices.ContainsFunc(names, func(name string) bool { return !isAmphora(name) })
		return providerAmphora, !others
	}
	return names[0], false
}

func (b *Octavia) providerNames(ctx context.Context) ([]string, error) {
	names, err := b.providers.Get(ctx, struct{}{}, b.Config.CacheAge, b.askProviders)
	if err != nil {
		return nil, fmt.Errorf("cannot list Octavia's providers: %w", err)
	}
	return names, nil
}

// askProviders lists the providers, sorted. It notes the default one if the service names it.
func (b *Octavia) askProviders(ctx context.Context) (names []string, err error) {
	var body map[string][]struct {
		Name    string
		Default bool
	}
	r := b.dialect.providers
	r.Method, r.Out = http.MethodGet, &body
	if err := b.Do(ctx, r); err != nil {
		return nil, err
	}
	l := b.balancers
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range body {
		for _, p := range all {
			names = append(names, p.Name)
			if p.Default {
				l.usual[""] = p.Name
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
