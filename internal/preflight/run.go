// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package preflight reads from the cloud and from the cluster what the checks of
// internal/plan/preflight need, and makes the checks, which change nothing. A Maker makes what a
// first start needs, if a person asks for that.
package preflight

import (
	"context"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Sources is where a run reads. All fields must be set.
type Sources struct {
	Cloud sdn.Survey
	// Kubernetes reads the API server. It must not be a cache: a run reads kinds that nothing else
	// watches, and page by page.
	Kubernetes client.Reader
	Config     *config.Config
}

// Run makes all checks. It always returns a report: a check without its facts has severity Unknown.
// A run costs at most twelve requests to the cloud beside the login, eleven if pods and Services are
// of one project. Each project costs one more. To the API server a run costs one request for each of at most eight kinds, and one more for each further five hundred objects of a kind. The parts are read at the same time.
func Run(ctx context.Context, s Sources) preflight.Report {
	f := preflight.Facts{Config: configOf(s.Config)}
	var all sync.WaitGroup
	all.Go(func() { f.Networks = s.Cloud.SurveyNetworks(ctx, queryOf(f.Config)) })
	all.Go(func() { f.Cluster = readCluster(ctx, s.Kubernetes, s.Config) })
	if settings.ServesServices(&s.Config.Services) {
		all.Go(func() { f.Balancing = s.Cloud.SurveyBalancing(ctx, f.Config.ServiceProjectID) })
	}
	all.Wait()
	return preflight.Check(f)
}

func configOf(c *config.Config) preflight.Config {
	s := &c.Services
	out := preflight.Config{
		ProjectID: c.Pods.ProjectID, SecurityGroupIDs: c.Pods.SecurityGroupIDs, NodeMTU: c.Node.MTU,
		WarmUp:           c.Pools.WarmUp,
		ServiceProjectID: s.ProjectID, ServiceSubnetIDs: s.SubnetIDs, Provider: s.Provider,
		ExternalNetworkID: s.ExternalNetworkID, ExternalSubnetID: s.ExternalSubnetID,
	}
	for _, id := range c.Pods.SubnetIDs {
		out.PodSubnets = append(out.PodSubnets, append([]string{id}, c.Pods.MoreSubnetIDs[id]...))
	}
	for _, rule := range c.Pods.SecurityGroups {
		out.MoreGroupIDs = append(out.MoreGroupIDs, rule.SecurityGroupIDs...)
	}
	out.NamespaceConfig = namespaceConfigOf(c)
	for _, t := range append([]config.NodePorts{{VIFType: c.Pods.VIFType}}, c.Nodes...) {
		out.Trunks = out.Trunks || t.VIFType == config.VIFTypeVLAN
		out.Pairs = out.Pairs || t.VIFType == config.VIFTypeMACVLAN
	}
	return out
}

func queryOf(c preflight.Config) sdn.NetworkQuery {
	q := sdn.NetworkQuery{
		ProjectIDs: []string{c.ProjectID}, SubnetIDs: c.PodSubnetIDs(),
		SecurityGroupIDs: slices.Concat(c.SecurityGroupIDs, c.MoreGroupIDs),
	}
	for _, g := range c.Groups {
		q.SecurityGroupIDs = append(q.SecurityGroupIDs, g.IDs...)
	}
	if len(c.ServiceSubnetIDs) > 0 {
		q.ProjectIDs = append(q.ProjectIDs, c.ServiceProjectID)
		q.SubnetIDs = slices.Concat(q.SubnetIDs, c.ServiceSubnetIDs, []string{c.ExternalSubnetID})
		q.NetworkIDs = append(q.NetworkIDs, c.ExternalNetworkID)
	}
	addNamespaces(&q, &c.NamespaceConfig)
	return q
}
