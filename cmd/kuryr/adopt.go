// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/adopt"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

type adoptFlags struct {
	config, kubeconfig    string
	leaderNamespace       string
	yes, force, elsewhere bool
}

// adoptCommand is `kuryr adopt`, which takes over free ports that an earlier
// Kuryr has left, before a controller runs for the first time.
func adoptCommand() *cobra.Command {
	var f adoptFlags
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Take over the free ports that an earlier Kuryr has left",
		Long: "Looks for free ports of a Kuryr that kept no objects, known by their device owner and\n" +
			"name. Adopts those on nodes of this cluster into the pools of the nodes, and deletes\n" +
			"those on no node. Without --yes it only prints what it would do.\n\n" +
			"Run it with the configuration and the credential of the controller, while none runs.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAdopt(cmd.Context(), cmd.OutOrStdout(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "/etc/kuryr/kuryr.yaml", "configuration file")
	flags.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; empty: the service account of the pod")
	flags.BoolVar(&f.yes, "yes", false, "do it, do not only print it")
	flags.BoolVar(&f.elsewhere, "elsewhere", false, "also delete ports on hosts and trunks that are no nodes of this cluster: no other cluster may have free ports in the project")
	flags.BoolVar(&f.force, "force", false, "do it although a controller runs, or the Leases cannot be had")
	flags.StringVar(&f.leaderNamespace, "leader-elect-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "kuryr-system"), "namespace of the controllers' Leases; default $POD_NAMESPACE")
	return cmd
}

// cloud is what adopt needs of the SDN.
type cloud interface {
	sdn.Adoption
	sdn.Hosts
}

func runAdopt(ctx context.Context, w io.Writer, f adoptFlags) error {
	to, err := connect(ctx, f.config, f.kubeconfig, loadConfig)
	if err != nil {
		return err
	}
	run := adoption{client: to.client, cloud: to.backend, rules: settings.NewRules(*to.config), out: w, flags: f}
	if !f.yes || f.force {
		return run.run(ctx)
	}
	return holding(ctx, to.cluster, f.leaderNamespace, run.run)
}

// holding runs do while this process owns all keys, so that no controller begins to work meanwhile. It refuses if
// there is a controller.
func holding(outer context.Context, cluster *rest.Config, namespace string, do func(context.Context) error) error {
	name, err := shards.Living(outer, cluster, namespace)
	if err != nil {
		return fmt.Errorf("%w (--force does without)", err)
	}
	if name != "" {
		return fmt.Errorf("a controller runs (%s, by the Leases in namespace %s): stop the controllers first, as with 'kubectl -n %s scale deployment kuryr-controller --replicas 0', or give --force",
			name, namespace, namespace)
	}
	replica, err := newReplica(outer, cluster, namespace, "adopt-", 1)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(outer)
	var ended error
	var group sync.WaitGroup
	group.Go(func() {
		ended = replica.Start(ctx)
		stop()
	})
	defer func() { // it gives the keys back
		stop()
		group.Wait()
	}()
	for late := time.Now().Add(holdPatience); !replica.Holding(); {
		if time.Now().After(late) {
			return fmt.Errorf("taking the Leases of the controllers in namespace %s: no success in %s: the log says why (--force does without)", namespace, holdPatience)
		}
		if !kube.Pause(ctx, 100*time.Millisecond) {
			group.Wait()
			return errors.Join(outer.Err(), ended)
		}
	}
	if err = do(ctx); err != nil && ctx.Err() != nil && outer.Err() == nil {
		err = fmt.Errorf("the Lease of this process was lost on the way, run it again: %w", err)
	}
	return err
}

// holdPatience is how long the Leases are tried to be had. A leader of an earlier version that was killed is waited
// for.
const holdPatience = time.Minute

// adoption is one run of the command.
type adoption struct {
	client client.Client
	cloud  cloud
	rules  *settings.Rules
	out    io.Writer
	flags  adoptFlags
}

func (r *adoption) run(ctx context.Context) error {
	state, err := r.look(ctx)
	if err != nil {
		return err
	}
	actions := adopt.Plan(state)
	if err := printPlan(r.out, actions); err != nil {
		return err
	}
	if !r.flags.yes {
		fmt.Fprintln(r.out, "\nNothing was done: run it again with --yes to do it.")
		return nil
	}
	a := adopt.Adopter{Cloud: r.cloud, Client: r.client, Now: time.Now}
	did, err := a.Do(ctx, actions)
	fmt.Fprintf(r.out, "\nAdopted %d ports, deleted %d", did.Adopted, did.Deleted)
	if did.Skipped > 0 {
		fmt.Fprintf(r.out, ", left %d that changed meanwhile", did.Skipped)
	}
	fmt.Fprintln(r.out, ".")
	return err
}

// look reads all that the plan depends on. The strays come first: a pod that
// gets its address after that is seen.
func (r *adoption) look(ctx context.Context) (adopt.State, error) {
	state := adopt.State{Objects: map[string]bool{}, Pods: map[string]string{}, Elsewhere: r.flags.elsewhere}
	strays, err := r.cloud.Strays(ctx, r.rules.Pods.ProjectID)
	if err != nil {
		return state, err
	}
	state.Strays = strays
	var ports v1.KuryrPortList
	if err := r.client.List(ctx, &ports); err != nil {
		return state, fmt.Errorf("listing KuryrPorts: %w", err)
	}
	for i := range ports.Items {
		state.Objects[ports.Items[i].Name] = true
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods); err != nil {
		return state, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.HostNetwork || pool.Finished(pod) {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			state.Pods[ip.IP] = pod.Namespace + "/" + pod.Name
		}
	}
	state.Nodes, err = r.nodes(ctx)
	return state, err
}

// nodes returns the nodes with the keys of their pools. A node whose machine the SDN does not show
// has no key, and its ports stay; the output says why.
func (r *adoption) nodes(ctx context.Context) ([]adopt.Node, error) {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var out []adopt.Node
	for i := range list.Items {
		node := &list.Items[i]
		key, err := r.keyOf(ctx, node)
		if errors.Is(err, sdn.ErrNotFound) || errors.Is(err, sdn.ErrInvalid) {
			fmt.Fprintf(r.out, "Node %s is left out: %v\n", node.Name, err)
		} else if err != nil {
			return nil, err
		}
		out = append(out, adopt.Node{Name: node.Name, Key: key, MoreSubnetIDs: r.rules.Pods.MoreSubnetIDs})
	}
	return out, nil
}

// keyOf returns the key of a node's pool, that which pods of any namespace get their ports from.
func (r *adoption) keyOf(ctx context.Context, node *corev1.Node) (v1.PoolKey, error) {
	ports, parent := r.rules.PortsOn(node.Labels), ""
	if config.Nested(ports.VIFType) {
		m := sdn.Machine{
			ServerID: kube.NodeServer(node), SubnetIDs: ports.ParentSubnetIDs, ProjectID: ports.ParentProjectID, Trunk: ports.VIFType == config.VIFTypeVLAN,
		}
		var err error
		if parent, err = sdn.ParentPortOfAny(ctx, r.cloud, m, kube.NodeAddresses(node)); err != nil {
			return v1.PoolKey{}, fmt.Errorf("looking for the machine of node %s: %w", node.Name, err)
		}
	}
	return pool.KeyOn(node.Name, r.rules.Key(ports, parent, "")), nil
}

func printPlan(w io.Writer, actions []adopt.Action) error {
	if len(actions) == 0 {
		_, err := fmt.Fprintln(w, "There are no free ports of an earlier Kuryr.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	count := map[adopt.Verb]int{}
	fmt.Fprintln(t, "ACTION\tPORT\tADDRESS\tPOOL\tWHY")
	for i := range actions {
		a := &actions[i]
		count[a.Verb]++
		name := "-"
		if a.Verb == adopt.Take {
			name = a.Pool()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", a.Verb, a.Port.ID, strings.Join(a.Port.VIF.IPs(), ","), name, a.Why)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d ports: %d to adopt, %d to delete, %d to leave.\n",
		len(actions), count[adopt.Take], count[adopt.Delete], count[adopt.Leave])
	return err
}
