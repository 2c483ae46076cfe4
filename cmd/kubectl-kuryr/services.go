// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

func (t *tool) servicesCommand() *cobra.Command {
	services := &cobra.Command{
		Use:     "services",
		Aliases: []string{"service", "svc", "klb"},
		Short:   "The load balancers of Services",
		Long: "What the cloud has for Services: a load balancer for each cluster IP, with a listener\n" +
			"for each port and a member for each endpoint. The state of the cloud is what the\n" +
			"controller saw there last.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	services.AddCommand(t.listServicesCommand(), t.showServiceCommand())
	return services
}

// served is a Service and its KuryrLoadBalancer, as far as they are there: one of
// them at least is.
type served struct {
	svc *corev1.Service
	klb *v1.KuryrLoadBalancer
}

func (s *served) key() types.NamespacedName {
	if s.svc != nil {
		return client.ObjectKeyFromObject(s.svc)
	}
	return client.ObjectKeyFromObject(s.klb)
}

// services returns all of a namespace, or of all if that is empty, by name.
func services(ctx context.Context, c client.Client, namespace string) ([]served, error) {
	var list corev1.ServiceList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, explain("listing Services", err)
	}
	var balancers v1.KuryrLoadBalancerList
	if err := c.List(ctx, &balancers, client.InNamespace(namespace)); err != nil {
		return nil, explain("listing KuryrLoadBalancers", err)
	}
	of := map[types.NamespacedName]*v1.KuryrLoadBalancer{}
	for i := range balancers.Items {
		of[client.ObjectKeyFromObject(&balancers.Items[i])] = &balancers.Items[i]
	}
	var all []served
	for i := range list.Items {
		svc := &list.Items[i]
		all = append(all, served{svc: svc, klb: of[client.ObjectKeyFromObject(svc)]})
		delete(of, client.ObjectKeyFromObject(svc))
	}
	for _, klb := range of {
		all = append(all, served{klb: klb})
	}
	slices.SortFunc(all, func(a, b served) int {
		return cmp.Or(strings.Compare(a.key().Namespace, b.key().Namespace), strings.Compare(a.key().Name, b.key().Name))
	})
	return all, nil
}

// serviceKinds is how the name of a Service may begin: as -o name and kubectl
// write it.
var serviceKinds = []string{
	"service", "services", "svc", "klb", "kuryrloadbalancer", "kuryrloadbalancers",
	"kuryrloadbalancer.openstack.org", "kuryrloadbalancers.openstack.org",
}

// serviceKey reads NAME, NAMESPACE/NAME or KIND/NAME.
func (t *tool) serviceKey(name string) (types.NamespacedName, error) {
	before, rest, found := strings.Cut(name, "/")
	if found && !slices.Contains(serviceKinds, before) {
		if rest == "" || before == "" || strings.Contains(rest, "/") {
			return types.NamespacedName{}, fmt.Errorf("%q names no Service: write NAME or NAMESPACE/NAME", name)
		}
		return types.NamespacedName{Namespace: before, Name: rest}, nil
	}
	if !found {
		rest = name
	}
	namespace, err := t.namespace()
	return types.NamespacedName{Namespace: namespace, Name: rest}, err
}

// service returns one Service.
func service(ctx context.Context, c client.Client, key types.NamespacedName) (*served, error) {
	s := &served{svc: &corev1.Service{}, klb: &v1.KuryrLoadBalancer{}}
	if err := c.Get(ctx, key, s.svc); apierrors.IsNotFound(err) {
		s.svc = nil
	} else if err != nil {
		return nil, explain("reading Service "+key.String(), err)
	}
	if err := c.Get(ctx, key, s.klb); apierrors.IsNotFound(err) {
		s.klb = nil
	} else if err != nil {
		return nil, explain("reading KuryrLoadBalancer "+key.String(), err)
	}
	if s.svc == nil && s.klb == nil {
		return nil, fmt.Errorf("there is no Service %s; 'kubectl kuryr services list -A' lists the existing ones", key)
	}
	return s, nil
}
