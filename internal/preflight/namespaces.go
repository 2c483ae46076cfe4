// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// namespaceConfigOf returns what the configuration says of networks of namespaces and of projects.
func namespaceConfigOf(c *config.Config) preflight.NamespaceConfig {
	out := preflight.NamespaceConfig{}
	choice := func(at string, n *config.NetworkChoice) {
		addRouter(&out, at, n.RouterID, n.Router)
		if len(n.SubnetPoolIDs) > 0 {
			out.SubnetPools = append(out.SubnetPools, preflight.Pools{
				Field: at + ".subnetPoolIDs", IDs: n.SubnetPoolIDs, PrefixLength: n.PrefixLength, PrefixLengthIPv6: n.PrefixLengthIPv6,
			})
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
		addRouter(&out, at, p.RouterID, p.Router)
		if len(p.SecurityGroupIDs) > 0 {
			out.Groups = append(out.Groups, preflight.Groups{Field: at + ".securityGroupIDs", IDs: p.SecurityGroupIDs})
		}
		if len(p.SubnetPoolIDs) > 0 {
			out.SubnetPools = append(out.SubnetPools, preflight.Pools{
				Field: at + ".subnetPoolIDs", IDs: p.SubnetPoolIDs, PrefixLength: c.Networks.PrefixLength, PrefixLengthIPv6: c.Networks.PrefixLengthIPv6,
			})
		}
	}
	return out
}

func addRouter(out *preflight.NamespaceConfig, at, id string, own *config.Router) {
	if id != "" {
		out.Routers = append(out.Routers, preflight.Named{Field: at + ".routerID", ID: id})
	}
	if own != nil {
		out.OwnRouters = append(out.OwnRouters, preflight.OwnRouter{Field: at + ".router.externalNetworkID", ExternalNetwork: own.ExternalNetworkID})
	}
}

// addNamespaces has a query ask for what the networks of namespaces need.
func addNamespaces(q *sdn.NetworkQuery, c *preflight.NamespaceConfig) {
	for _, r := range c.Routers {
		q.RouterIDs = append(q.RouterIDs, r.ID)
	}
	for _, r := range c.OwnRouters {
		q.NetworkIDs = append(q.NetworkIDs, r.ExternalNetwork)
	}
	for _, p := range c.SubnetPools {
		q.SubnetPoolIDs = append(q.SubnetPoolIDs, p.IDs...)
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

// readNamespaces returns the namespaces whose pods are not in the common network, with what there
// is of their networks.
func readNamespaces(ctx context.Context, c client.Reader, rules *settings.Rules) sdn.Read[[]preflight.Namespace] {
	made := map[string]*v1.KuryrNetwork{}
	err := each(ctx, c, func(list *v1.KuryrNetworkList) {
		for i := range list.Items {
			made[list.Items[i].Namespace] = &list.Items[i]
		}
	})
	if err != nil && !errors.Is(err, sdn.ErrNotFound) { // the CustomResourceDefinition may not be there yet
		return sdn.Read[[]preflight.Namespace]{Err: err}
	}
	var out []preflight.Namespace
	err = each(ctx, c, func(list *corev1.NamespaceList) {
		for i := range list.Items {
			ns := &metav1.PartialObjectMetadata{ObjectMeta: list.Items[i].ObjectMeta}
			choice := rules.Network(ns)
			network := made[ns.Name]
			if network == nil && (choice.Common || choice.Blocked || !ns.DeletionTimestamp.IsZero() || slices.Contains(podless, ns.Name)) {
				continue
			}
			n := preflight.Namespace{
				Name: ns.Name, Mode: choice.Mode, SubnetPoolIDs: choice.SubnetPoolIDs, Ranges: choice.Ranges, RouterID: choice.RouterID,
			}
			if choice.Router != nil {
				n.OwnRouter, n.RouterRoutes = true, choice.Router.Routes
			}
			if network != nil {
				for _, s := range network.Status.Subnets {
					n.Prefixes = append(n.Prefixes, prefixes([]string{s.CIDR})...)
				}
			}
			out = append(out, n)
		}
	})
	return sdn.Read[[]preflight.Namespace]{Value: out, Err: err}
}
