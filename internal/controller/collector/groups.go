// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/plan/orphan"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// memberGroups knows what groups members of load balancers have.
type memberGroups interface {
	Known() bool                         // the cache has all KuryrLoadBalancers
	Lost(klb *v1.KuryrLoadBalancer) bool // it may have a group that its status does not name
}

// Groups deletes security groups of load balancers that no KuryrLoadBalancer names:
// its source ranges went, or are kept otherwise, or a process was stopped before it
// could name one. A group is deleted once no port has it. Where Services are not served
// any more groups may be left, too; there it asks the API server, which may not know the
// kind, of each. And it has those looked at whose group is gone.
type Groups struct {
	client   client.Reader
	live     client.Reader // past the cache
	cloud    sdn.SecurityGroups
	settings *settings.Live
	now      func() time.Time
	members  memberGroups
	making   *kube.Owners       // as for who makes groups
	suspect  func(ctrl.Request) // has the group of a load balancer looked at

	nobodys orphan.Collector
	there   bool // there may be groups
}

// GroupOptions is what Groups needs beyond the manager.
type GroupOptions struct {
	Cloud    sdn.SecurityGroups
	Settings *settings.Live
	Now      func() time.Time
	Members  memberGroups
	Making   *kube.Owners       // held by who makes a group, and names it, for a KuryrLoadBalancer
	Suspect  func(ctrl.Request) // has the cloud looked at for a KuryrLoadBalancer
}

// NewGroups returns what looks at nothing before Setup.
func NewGroups(mgr ctrl.Manager, o GroupOptions) *Groups {
	return &Groups{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), cloud: o.Cloud, settings: o.Settings, now: o.Now,
		members: o.Members, making: o.Making, suspect: o.Suspect, there: true,
	}
}

// Setup adds the check to mgr. It works also where Services are not served.
func (g *Groups) Setup(mgr ctrl.Manager) error { return mgr.Add(kube.Leading(g.run)) }

// run looks at what there is until ctx ends: one list at the start, and then only where
// there are groups or may be some.
func (g *Groups) run(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("securitygroups")
	for {
		o := g.settings.Load().Orphans
		wait := o.Interval.Duration
		if wait <= 0 {
			wait = 2 * time.Minute
		}
		if !kube.Pause(ctx, min(wait, max(o.Grace.Duration, 100*time.Millisecond))) {
			return nil
		}
		made := g.settings.Load().Services.SourceRangesBySecurityGroups
		if !g.there && !made {
			continue
		}
		if err := g.look(ctrl.LoggerInto(ctx, log)); err != nil && ctx.Err() == nil {
			log.Info("could not compare the cloud's security groups with the KuryrLoadBalancers", "error", err.Error())
		}
		g.there = g.there || made // by the next look there may be some
	}
}

// look deletes what nobody has named in looks a grace period apart.
func (g *Groups) look(ctx context.Context) error {
	all, err := g.cloud.ListSecurityGroups(ctx)
	if err != nil {
		return fmt.Errorf("listing security groups: %w", err)
	}
	g.there = len(all) > 0
	from, served := g.client, g.members.Known()
	if !served {
		from = g.live
	}
	owners, there := map[string]ctrl.Request{}, map[string]bool{}
	var ids []string
	for i := range all {
		there[all[i].ID] = true
		if all[i].Owner.Kind != sdn.KindLoadBalancer {
			continue
		}
		req := kube.OwnerRequest(all[i].Owner)
		if named, err := g.named(ctx, from, req, all[i].ID); err != nil {
			return err
		} else if !named {
			ids, owners[all[i].ID] = append(ids, all[i].ID), req
		}
	}
	for _, id := range g.nobodys.Observe(ids, g.now(), g.settings.Load().Orphans.Grace.Duration) {
		g.delete(ctx, id, owners[id])
	}
	if !served {
		return nil
	}
	return g.missing(ctx, there)
}

// missing has those KuryrLoadBalancers looked at whose group is gone: somebody has
// deleted it while no port had it, and none could get it.
func (g *Groups) missing(ctx context.Context, there map[string]bool) error {
	var list v1.KuryrLoadBalancerList
	if err := g.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return fmt.Errorf("listing KuryrLoadBalancers: %w", err)
	}
	for i := range list.Items {
		if id := balancer.Granted(&list.Items[i]); id != "" && !there[id] {
			g.suspect(kube.RequestOf(&list.Items[i]))
		}
	}
	return nil
}

// named reports whether the KuryrLoadBalancer that a group is for names it, or may not
// have come to that.
func (g *Groups) named(ctx context.Context, from client.Reader, req ctrl.Request, id string) (bool, error) {
	var klb v1.KuryrLoadBalancer
	err := from.Get(ctx, req.NamespacedName, &klb)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading KuryrLoadBalancer %s: %w", req, err)
	}
	return klb.Status.SecurityGroupID == id || g.members.Lost(&klb), nil
}

func (g *Groups) delete(ctx context.Context, id string, owner ctrl.Request) {
	log := ctrl.LoggerFrom(ctx).WithValues("group", id, "owner", owner.String())
	release, _ := g.making.Try(owner)
	if release == nil { // one that is taken meanwhile has a name by the next look
		return
	}
	defer release()
	if named, err := g.named(ctx, g.live, owner, id); named || err != nil {
		return
	}
	err := g.cloud.DeleteSecurityGroup(ctx, id)
	var pending *sdn.PendingError
	switch {
	case err == nil:
		log.Info("deleted a security group that belonged to nobody")
		balancerOrphansDeleted.WithLabelValues("security group").Inc()
	case !errors.As(err, &pending): // else a port has it yet
		log.Info("could not delete a security group that belongs to nobody", "error", err.Error())
	}
}
