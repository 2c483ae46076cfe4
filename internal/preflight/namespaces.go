// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// namespaceConfigOf returns what the configuration says of networks of namespaces and of projects.
func namespaceConfigOf(c *config.Config) preflight.NamespaceConfig {
	out := preflight.NamespaceConfig{}
	choice := func(at string, n *config.NetworkChoice) {
		if n.RouterID != "" {
			out.Routers = append(out.Routers, preflight.Named{Field: at + ".routerID", ID: n.RouterID})
		}
		if n.Router != nil {
			out.OwnRouters = append(out.OwnRouters, preflight.Named{Field: at + ".router.externalNetworkID", ID: n.Router.ExternalNetworkID})
		}
	}
	choice("networks", &c.Networks.NetworkChoice)
	for i := range c.Networks.Namespaces {
		choice(fmt.Sprintf("networks.namespaces[%d]", i), &c.Networks.Namespaces[i].NetworkChoice)
	}
	for i, g := range c.Networks.Given {
		out.Given = append(out.Given, preflight.Given{Field: fmt.Sprintf("networks.given[%d].subnetIDs", i), NetworkID: g.NetworkID, SubnetIDs: g.SubnetIDs})
	}
	for i, n := range c.Nodes {
		if len(n.SubnetIDs) > 0 {
			out.Given = append(out.Given, preflight.Given{Field: fmt.Sprintf("nodes[%d].subnetIDs", i), SubnetIDs: n.SubnetIDs})
		}
	}
	for i, p := range c.Projects {
		at := fmt.Sprintf("projects[%d]", i)
		out.Projects = append(out.Projects, preflight.Named{Field: at + ".projectID", ID: p.ProjectID})
		choice(at, &config.NetworkChoice{RouterID: p.RouterID, Router: p.Router})
		if len(p.SecurityGroupIDs) > 0 {
			out.Groups = append(out.Groups, preflight.Groups{Field: at + ".securityGroupIDs", IDs: p.SecurityGroupIDs})
		}
	}
	return out
}

// addNamespaces has a query ask for what the networks of namespaces need.
func addNamespaces(q *sdn.NetworkQuery, c *preflight.NamespaceConfig) {
	for _, r := range c.Routers {
		q.RouterIDs = append(q.RouterIDs, r.ID)
	}
	for _, r := range c.OwnRouters {
		q.NetworkIDs = append(q.NetworkIDs, r.ID)
	}
	for _, g := range c.Given {
		q.SubnetIDs, q.NetworkIDs = append(q.SubnetIDs, g.SubnetIDs...), append(q.NetworkIDs, g.NetworkID)
	}
	for _, p := range c.Projects {
		q.KnownProjectIDs = append(q.KnownProjectIDs, p.ID)
	}
}

// podless are namespaces of Kubernetes itself that have no pods.
var podless = []string{"kube-node-lease", "kube-public"}

// readNamespaces returns the namespaces whose pods are not in the common network.
func readNamespaces(ctx context.Context, c client.Reader, rules *settings.Rules) sdn.Read[[]preflight.Namespace] {
	var out []preflight.Namespace
	err := each(ctx, c, func(list *corev1.NamespaceList) {
		for i := range list.Items {
			ns := &metav1.PartialObjectMetadata{ObjectMeta: list.Items[i].ObjectMeta}
			choice := rules.Network(ns)
			if !choice.Common && !choice.Blocked && ns.DeletionTimestamp.IsZero() && !slices.Contains(podless, ns.Name) {
				out = append(out, preflight.Namespace{Name: ns.Name, Choice: choice})
			}
		}
	})
	return sdn.Read[[]preflight.Namespace]{Value: out, Err: err}
}
