// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// fill waits until each node's pool has its free ports and, where there is an SDN, these
// are wired, and shows them: it is what the pods are going to find.
func fill(ctx context.Context, c *cluster.Cluster) error {
	began := time.Now()
	var pools []v1.KuryrPortPool
	if err := cluster.Until(ctx, func() (err error) {
		pools, err = filled(ctx, c)
		return err
	}); err != nil {
		return fmt.Errorf("waiting for the pools of the nodes to be filled: %w", err)
	}
	if os.Getenv("KURYR_BED_KIND") == "real" {
		if err := cluster.Until(ctx, func() error { return wired(ctx, c) }); err != nil {
			return fmt.Errorf("waiting for free ports to be wired: %w", err)
		}
	}
	fmt.Printf("\nEach node has free ports, plugged before there is a pod (waited %.1f s).\n\n", time.Since(began).Seconds())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POOL\tNODE\tFREE\tMIN")
	for i := range pools {
		p := &pools[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", p.Name, p.Spec.Key.NodeName, p.Status.Available, p.Spec.Min)
	}
	return w.Flush()
}

// filled returns the pools of all nodes, unless one has not all of its ports.
func filled(ctx context.Context, c *cluster.Cluster) ([]v1.KuryrPortPool, error) {
	var nodes corev1.NodeList
	if err := c.Client.List(ctx, &nodes); err != nil {
		return nil, err
	}
	var pools v1.KuryrPortPoolList
	if err := c.Client.List(ctx, &pools); err != nil {
		return nil, err
	}
	var current []v1.KuryrPortPool
	for i := range nodes.Items {
		name, full := nodes.Items[i].Name, false
		for _, p := range pools.Items {
			if p.Spec.Key.NodeName == name && p.Spec.Min > 0 && p.Status.Available >= p.Spec.Min {
				current, full = append(current, p), true
			}
		}
		if !full {
			return nil, fmt.Errorf("node %s has no pool with all of its free ports", name)
		}
	}
	return current, nil
}

// wired returns an error while there is a free port that is not ACTIVE in Neutron.
func wired(ctx context.Context, c *cluster.Cluster) error {
	var ports v1.KuryrPortList
	if err := c.Client.List(ctx, &ports); err != nil {
		return err
	}
	for i := range ports.Items {
		p := &ports.Items[i]
		if p.Spec.PodRef != nil || p.Status.Phase != v1.PortAvailable {
			continue
		}
		port, err := c.Port(ctx, p.Name)
		if err != nil {
			return err
		}
		if port.Status != "ACTIVE" {
			return fmt.Errorf("port %s on node %s is %s", p.Name, p.Spec.NodeName, port.Status)
		}
	}
	return nil
}

// origin says how long before its pod a port was made; a pod's own port is younger.
func origin(pod *corev1.Pod, port *v1.KuryrPort) string {
	before := pod.CreationTimestamp.Sub(port.CreationTimestamp.Time)
	if before <= 0 {
		return "made for it"
	}
	return fmt.Sprintf("%.0f s before it", before.Seconds())
}
