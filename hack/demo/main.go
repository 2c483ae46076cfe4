// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Demo shows Kuryr at work on a running test bed: it waits until the nodes' pools hold
// their free ports, starts a Deployment over the nodes, prints which Neutron port each pod
// got from there and how long the pod took to start, proves that the pods reach each other,
// and puts a Service before them. See demo.sh.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/test/cluster"
)

const (
	namespace = "kuryr-demo"
	replicas  = 4
)

var labels = map[string]string{"app": "demo"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	c, err := cluster.Connect(ctx)
	if err != nil {
		return err
	}
	if err := clean(ctx, c); err != nil {
		return fmt.Errorf("removing an earlier demo: %w", err)
	}
	if err := fill(ctx, c); err != nil {
		return err
	}
	fmt.Printf("\nStarting a Deployment of %d pods over the nodes.\n\n", replicas)
	if err := c.Client.Create(ctx, deployment()); err != nil {
		return err
	}
	started, err := c.Follow(ctx, namespace, labels, replicas)
	if err != nil {
		return err
	}
	if err := table(ctx, c, started); err != nil {
		return err
	}
	if err := traffic(ctx, c, started); err != nil {
		return err
	}
	return serve(ctx, c, started)
}

// clean leaves the demo's namespace without pods and Services, so that a second run
// shows how they start, too.
func clean(ctx context.Context, c *cluster.Cluster) error {
	if err := c.EnsureNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := withdraw(ctx, c); err != nil {
		return err
	}
	err := c.Client.Delete(ctx, deployment(), client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return cluster.Until(ctx, func() error {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return errors.New("pods are still there")
		}
		return nil
	})
}

func deployment() *appsv1.Deployment {
	n := int32(replicas)
	template := cluster.Template(labels, "")
	template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
	}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: template,
		},
	}
}

func table(ctx context.Context, c *cluster.Cluster, started []cluster.Started) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POD\tNODE\tIP\tNEUTRON PORT\tSTATE\tPORT WAS MADE\tSCHEDULED TO RUNNING")
	for _, s := range started {
		kp, err := c.KuryrPortOf(ctx, s.Pod)
		if err != nil {
			return err
		}
		port, err := c.Port(ctx, kp.Name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.1f s\n", s.Pod.Name, s.Pod.Spec.NodeName, s.Pod.Status.PodIP,
			port.ID, port.Status, origin(s.Pod, kp), s.Running.Sub(s.Scheduled).Seconds())
	}
	return w.Flush()
}

// traffic proves that pods reach each other, by ping and by HTTP: the first pod
// and every other one, in both directions.
func traffic(ctx context.Context, c *cluster.Cluster, started []cluster.Started) error {
	fmt.Println()
	first := started[0].Pod
	for _, s := range started[1:] {
		where := "on one node"
		if s.Pod.Spec.NodeName != first.Spec.NodeName {
			where = "across nodes"
		}
		for _, pair := range [][2]*corev1.Pod{{first, s.Pod}, {s.Pod, first}} {
			if err := reach(ctx, c, pair[0], pair[1]); err != nil {
				return err
			}
			fmt.Printf("ok  %s: %s (%s) reaches %s (%s) by ping and HTTP\n", where,
				pair[0].Name, pair[0].Spec.NodeName, pair[1].Name, pair[1].Spec.NodeName)
		}
	}
	return nil
}

func reach(ctx context.Context, c *cluster.Cluster, from, to *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return cluster.Until(ctx, func() error {
		if _, err := c.Exec(ctx, namespace, from.Name, "ping", "-c1", "-W1", to.Status.PodIP); err != nil {
			return err
		}
		name, err := c.Exec(ctx, namespace, from.Name, "curl", "-sS", "-m3", "http://"+to.Status.PodIP+":8080/hostname")
		if err == nil && name != to.Name {
			err = fmt.Errorf("%s answers as %q, want %q", to.Status.PodIP, name, to.Name)
		}
		return err
	})
}
