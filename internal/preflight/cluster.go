// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// pageSize is how many objects one request lists.
const pageSize = 500

// each reads all objects of a kind, page by page, and calls see for each page. A page has a list of
// its own: a decoder leaves in a list that is used again what the next page omits.
func each[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, c client.Reader, see func(L),
) error {
	for more := ""; ; {
		list := L(new(T))
		if err := c.List(ctx, list, client.Limit(pageSize), client.Continue(more)); err != nil {
			kind := strings.TrimSuffix(reflect.TypeOf(list).Elem().Name(), "List")
			return fmt.Errorf("listing %ss: %w", kind, classOf(err))
		}
		see(list)
		if more = list.GetContinue(); more == "" {
			return nil
		}
	}
}

// classOf gives an error of the API server the seam's meaning.
func classOf(err error) error {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: %w", sdn.ErrForbidden, err)
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return fmt.Errorf("%w: %w", sdn.ErrNotFound, err)
	}
	return fmt.Errorf("%w: %w", sdn.ErrUnavailable, err)
}

// readCluster reads each kind once. Services and their endpoints are read only if Services get load
// balancers.
func readCluster(ctx context.Context, c client.Reader, conf *config.Config) preflight.Cluster {
	out := preflight.Cluster{Nodes: readNodes(ctx, c, conf), Pools: readPools(ctx, c, &conf.Pods), Policies: readPolicies(ctx, c)}
	if settings.ServesServices(&conf.Services) {
		out.ServiceCIDRs = readServiceCIDRs(ctx, c)
		out.Services = readServices(ctx, c)
		out.Balancers = readBalancers(ctx, c)
	}
	if rules := settings.NewRules(*conf); rules.NetworksByNamespace {
		out.Namespaces = readNamespaces(ctx, c, rules)
	}
	return out
}

func readNodes(ctx context.Context, c client.Reader, conf *config.Config) sdn.Read[[]preflight.Node] {
	rules := settings.NewRules(*conf)
	var out []preflight.Node
	err := each(ctx, c, func(list *corev1.NodeList) {
		for i := range list.Items {
			n := &list.Items[i]
			if !stays(n) {
				continue
			}
			_, control := n.Labels[labelControlPlane]
			vifType := rules.PortsOn(n.Labels).VIFType
			node := preflight.Node{
				Name: n.Name, Min: rules.Levels(n.Labels, nil, settings.OfAll).Min, VIFType: vifType, Virtual: config.Nested(vifType),
				ControlPlane: control, Away: away(n),
			}
			for _, a := range n.Status.Addresses {
				if ip, err := netip.ParseAddr(a.Address); err == nil {
					node.Addresses = append(node.Addresses, ip)
				}
			}
			out = append(out, node)
		}
	})
	return sdn.Read[[]preflight.Node]{Value: out, Err: err}
}

const labelControlPlane = "node-role.kubernetes.io/control-plane"

// stays reports whether a node runs pods of Kuryr: it is one of Linux, and not in deletion.
func stays(n *corev1.Node) bool {
	system := cmp.Or(n.Labels[corev1.LabelOSStable], n.Status.NodeInfo.OperatingSystem, string(corev1.Linux))
	return system == string(corev1.Linux) && n.DeletionTimestamp.IsZero()
}

// away reports whether a node is cordoned, or its kubelet has stopped to answer. A node that is not
// ready for another reason is there: before it has a network plugin, no node is ready.
func away(n *corev1.Node) bool {
	return n.Spec.Unschedulable || slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// prefixes returns those of the words that are prefixes.
func prefixes(words []string) []netip.Prefix {
	var out []netip.Prefix
	for _, w := range words {
		if p, err := netip.ParsePrefix(w); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

func readPools(ctx context.Context, c client.Reader, pods *config.Pods) sdn.Read[[]preflight.Pool] {
	var out []preflight.Pool
	err := each(ctx, c, func(list *v1.KuryrPortPoolList) {
		for _, p := range list.Items {
			out = append(out, preflight.Pool{
				Node: p.Spec.Key.NodeName, Namespace: p.Spec.Key.Namespace, ProjectID: p.Spec.Key.ProjectID,
				Elsewhere: p.Spec.Key.ProjectID != pods.ProjectID || !slices.ContainsFunc(p.Spec.Key.SubnetIDs, func(id string) bool { return slices.Contains(pods.AllSubnetIDs(), id) }),
				Min:       int(p.Spec.Min),
				Free:      int(p.Status.Available + p.Status.Recycling), Waiting: int(p.Status.WaitingPods),
			})
		}
	})
	if errors.Is(err, sdn.ErrNotFound) {
		err = nil // the CustomResourceDefinition is not there yet, and so no pool is
	}
	return sdn.Read[[]preflight.Pool]{Value: out, Err: err}
}

// readPolicies reads one NetworkPolicy, if there is any.
func readPolicies(ctx context.Context, c client.Reader) sdn.Read[bool] {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(networkingv1.SchemeGroupVersion.WithKind("NetworkPolicyList"))
	if err := c.List(ctx, list, client.Limit(1)); err != nil {
		return sdn.Read[bool]{Err: fmt.Errorf("listing NetworkPolicies: %w", classOf(err))}
	}
	return sdn.Read[bool]{Value: len(list.Items) > 0}
}

func readServiceCIDRs(ctx context.Context, c client.Reader) sdn.Read[[]netip.Prefix] {
	var out []netip.Prefix
	err := each(ctx, c, func(list *networkingv1.ServiceCIDRList) {
		for _, s := range list.Items {
			out = append(out, prefixes(s.Spec.CIDRs)...)
		}
	})
	return sdn.Read[[]netip.Prefix]{Value: out, Err: err}
}

// readServices also counts the members of their pools: each ready or unready endpoint is one, for
// each port.
func readServices(ctx context.Context, c client.Reader) sdn.Read[[]preflight.Service] {
	members := map[types.NamespacedName]int{}
	err := each(ctx, c, func(list *discoveryv1.EndpointSliceList) {
		for i := range list.Items {
			s := &list.Items[i]
			members[types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}] += len(s.Endpoints) * len(s.Ports)
		}
	})
	if err != nil {
		return sdn.Read[[]preflight.Service]{Err: err}
	}
	var out []preflight.Service
	err = each(ctx, c, func(list *corev1.ServiceList) {
		for i := range list.Items {
			if svc := &list.Items[i]; service.Wanted(svc) {
				out = append(out, serviceOf(svc, members[client.ObjectKeyFromObject(svc)]))
			}
		}
	})
	return sdn.Read[[]preflight.Service]{Value: out, Err: err}
}

// dnsLabel is the label of the Service that kubelet has pods ask for names.
const dnsLabel, dnsValue = "k8s-app", "kube-dns"

func serviceOf(svc *corev1.Service, members int) preflight.Service {
	s := preflight.Service{
		Namespace: svc.Namespace, Name: svc.Name, Ports: len(svc.Spec.Ports), Members: members,
		DNS: svc.Namespace == metav1.NamespaceSystem && svc.Labels[dnsLabel] == dnsValue,
	}
	for _, ip := range svc.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			s.ClusterIPs = append(s.ClusterIPs, a)
		}
	}
	return s
}

func readBalancers(ctx context.Context, c client.Reader) sdn.Read[int] {
	n := 0
	err := each(ctx, c, func(list *v1.KuryrLoadBalancerList) {
		for i := range list.Items {
			n += len(list.Items[i].Status.LoadBalancers)
		}
	})
	if errors.Is(err, sdn.ErrNotFound) {
		err = nil // as of pools
	}
	return sdn.Read[int]{Value: n, Err: err}
}

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
