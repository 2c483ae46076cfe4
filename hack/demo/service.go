// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

func serviceOf() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo"},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeLoadBalancer,
			Selector: labels,
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// withdraw leaves the namespace without the demo's Service, and the cloud without
// what was made for it.
func withdraw(ctx context.Context, c *cluster.Cluster) error {
	if err := c.Client.Delete(ctx, serviceOf()); client.IgnoreNotFound(err) != nil {
		return err
	}
	return cluster.Until(ctx, func() error {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(serviceOf()), &corev1.Service{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("the Service is still there"), err)
	})
}

// serve puts a Service before the pods, prints what the cloud has for it, and, where
// an SDN moves packets, proves that pods, a node and the outside reach the pods by it.
func serve(ctx context.Context, c *cluster.Cluster, started []cluster.Started) error {
	fmt.Printf("\nPutting a Service of type LoadBalancer before them.\n\n")
	svc := serviceOf()
	began := time.Now()
	if err := c.Client.Create(ctx, svc); err != nil {
		return err
	}
	public, err := realised(ctx, c, svc, len(started))
	if err != nil {
		return err
	}
	took := time.Since(began)
	klb := &v1.KuryrLoadBalancer{}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(svc), klb); err != nil {
		return err
	}
	fmt.Printf("load balancer %s at %s, port 80, %d members, floating IP %s: %.1f s\n\n",
		klb.Status.LoadBalancers[0].ID, svc.Spec.ClusterIP, len(started), public, took.Seconds())
	if os.Getenv("KURYR_BED_KIND") == "sim" {
		fmt.Println("No SDN moves packets here: with make demo they go through the load balancer.")
		return nil
	}
	return reachService(ctx, c, svc, public, started)
}

// realised waits until the cloud has what the Service asks for, and Kubernetes its
// public address, which it returns.
func realised(ctx context.Context, c *cluster.Cluster, svc *corev1.Service, members int) (public netip.Addr, err error) {
	err = cluster.Until(ctx, func() error {
		klb := &v1.KuryrLoadBalancer{}
		if err := errors.Join(c.Client.Get(ctx, client.ObjectKeyFromObject(svc), svc), c.Client.Get(ctx, client.ObjectKeyFromObject(svc), klb)); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
		switch {
		case ready == nil || ready.ObservedGeneration != klb.Generation || len(klb.Status.LoadBalancers) == 0:
			return errors.New("no load balancer yet")
		case ready.Status != metav1.ConditionTrue:
			return errors.New(ready.Message)
		case len(klb.Spec.Listeners) != 1 || len(klb.Spec.Listeners[0].Members) != members:
			return fmt.Errorf("the load balancer has not all of the %d pods yet", members)
		case len(svc.Status.LoadBalancer.Ingress) == 0:
			return errors.New("no floating IP yet")
		}
		public, err = netip.ParseAddr(svc.Status.LoadBalancer.Ingress[0].IP)
		return err
	})
	if err != nil {
		return public, fmt.Errorf("waiting for the load balancer of Service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	return public, nil
}

// reachService proves that a pod by the Service's name, a node by its cluster IP and
// the machine, which is outside of the cloud, by its floating IP reach all the pods.
func reachService(ctx context.Context, c *cluster.Cluster, svc *corev1.Service, public netip.Addr, started []cluster.Started) error {
	first := started[0].Pod
	node := first.Spec.NodeName
	for _, from := range []struct {
		who, address string
		ask          func(ctx context.Context, command ...string) (string, error)
	}{
		{"pod " + first.Name + " by its name", svc.Name + "." + svc.Namespace, func(ctx context.Context, command ...string) (string, error) {
			return c.Exec(ctx, namespace, first.Name, command...)
		}},
		{"node " + node + " by its cluster IP", svc.Spec.ClusterIP, func(ctx context.Context, command ...string) (string, error) {
			return c.OnNode(ctx, node, command...)
		}},
		{"this machine by its floating IP", public.String(), cluster.OnMachine},
	} {
		script := fmt.Sprintf("for i in $(seq %d); do curl -sS -m3 --noproxy '*' http://%s/hostname; echo; done", 10*len(started), from.address)
		if err := cluster.Until(ctx, func() error {
			out, err := from.ask(ctx, "sh", "-c", script)
			if err != nil {
				return err
			}
			return answered(strings.Fields(out), started)
		}); err != nil {
			return fmt.Errorf("%s: %w", from.who, err)
		}
		fmt.Printf("ok  %s (%s) reaches all %d pods\n", from.who, from.address, len(started))
	}
	return nil
}

// answered reports whether all pods have answered, and nobody else.
func answered(names []string, started []cluster.Started) error {
	want := make([]string, 0, len(started))
	for _, s := range started {
		want = append(want, s.Pod.Name)
	}
	slices.Sort(want)
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, want) {
		return fmt.Errorf("%q have answered, want %q", names, want)
	}
	return nil
}
