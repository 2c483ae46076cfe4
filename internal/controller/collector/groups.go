// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// memberGroups knows the security groups of members of load balancers.
type memberGroups interface {
	// Known reports whether the cache has all KuryrLoadBalancers.
	Known() bool
	// Lost reports whether a KuryrLoadBalancer may have a group that its status does not name.
	Lost(klb *v1.KuryrLoadBalancer) bool
}

// securityGroups compares the security groups that the cloud has for load balancers with the
// KuryrLoadBalancers. A group is left over when its KuryrLoadBalancer has no source ranges any
// more, or when something else enforces them. A group is also left over when a process was stopped
// before it could name the group in the status.
//
// A group is deleted once no port has it. Groups may also be left where Services are not served any
// more. There the API server, which may not know the kind KuryrLoadBalancer, is asked for the owner
// of each group.
type securityGroups struct {
	GroupOptions
	client client.Reader
	live   client.Reader // reads past the cache
	kind   *Kind

	there bool // there may be groups
}

// GroupOptions is what the collection of security groups needs beyond the manager.
type GroupOptions struct {
	Cloud    sdn.SecurityGroups
	Settings *settings.Live
	Shards   kube.Shards
	Members  memberGroups
	Making   *kube.Owners    // held while a group is created and named for a KuryrLoadBalancer
	Applier  balancerApplier // nil: no part checks load balancers
}

// SecurityGroups returns the inventory of security groups. It also works where Services are not
// served.
func SecurityGroups(from source, o GroupOptions) *Inventory {
	g := &securityGroups{GroupOptions: o, client: from.GetClient(), live: from.GetAPIReader(), there: true}
	wanted := func(ctx context.Context, r Resource) (bool, error) { return g.named(ctx, g.live, r) }
	remove := func(ctx context.Context, r Resource) error { return ifUsed(o.Cloud.DeleteSecurityGroup(ctx, r.ID)) }
	g.kind = &Kind{Name: "security group", From: from, Making: o.Making, Wanted: wanted, Delete: remove, WhyDelete: "no KuryrLoadBalancer names it"}
	g.kind.Deleted = balancerOrphansDeleted.WithLabelValues(g.kind.Name)
	return &Inventory{Name: "securitygroups", Settings: o.Settings, Shards: o.Shards, comparison: g}
}

func (g *securityGroups) tell(req ctrl.Request) {
	if g.Applier != nil {
		g.Applier.RequestCheck(req, false)
	}
}

// period returns a short interval, as a group that is left over may still be on a port.
func (g *securityGroups) period() time.Duration {
	s := g.Settings.Load()
	return min(period(s, 2*time.Minute), max(s.Orphans.Grace.Duration, 100*time.Millisecond))
}

// look lists the groups once at the start. After that it lists them only if there are groups, or
// may be some.
func (g *securityGroups) look(ctx context.Context) (found Findings, err error) {
	made := g.Settings.Load().Services.SourceRangesBySecurityGroups
	if !g.there && !made {
		return found, nil
	}
	all, err := g.Cloud.ListSecurityGroups(ctx)
	if err != nil && sdn.Partial(err) == nil {
		return found, fmt.Errorf("listing security groups: %w", err)
	}
	lacks := err
	from, served := g.client, g.Members.Known()
	if !served {
		from = g.live
	}
	there := map[string]bool{}
	for i := range all {
		there[all[i].ID] = true
		if all[i].Owner.Kind != sdn.KindLoadBalancer {
			continue
		}
		r := ownedBy(all[i].Owner, g.kind, all[i].ID)
		r.Name = all[i].Name
		if named, err := g.named(ctx, from, r); err != nil {
			return Findings{}, err
		} else if !named {
			found.Unnamed = append(found.Unnamed, r)
		}
	}
	if served {
		if found.Differ, err = g.missing(ctx, there, lacks); err != nil {
			return Findings{}, err
		}
	}
	g.there = len(all) > 0 || lacks != nil || made // there may be some in the next comparison
	found.Unsure = unlisted("security groups", lacks)
	return found, nil
}

// missing returns the KuryrLoadBalancers whose group is gone. Somebody has deleted the group while
// no port had it. No port can get it then.
func (g *securityGroups) missing(ctx context.Context, there map[string]bool, lacks error) (differ []ctrl.Request, err error) {
	all, err := kube.LoadBalancers(ctx, g.client)
	for req, klb := range all {
		if id := balancer.MemberGroup(klb); id != "" && !there[id] && !hidden(klb, lacks) {
			differ = append(differ, req)
		}
	}
	return differ, err
}

// named reports whether a group's KuryrLoadBalancer names the group, or may not have named it yet.
func (g *securityGroups) named(ctx context.Context, from client.Reader, r Resource) (bool, error) {
	var klb v1.KuryrLoadBalancer
	there, err := r.owner(ctx, from, &klb)
	return there && (klb.Status.SecurityGroupID == r.ID || g.Members.Lost(&klb)), err
}
