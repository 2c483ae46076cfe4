// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

type neutronPort = cluster.Port

var getOptions = metav1.GetOptions{}

// configure changes the section pods of Kuryr's configuration.
func (f *fixture) configure(t testing.TB, change func(pods map[string]any)) {
	t.Helper()
	f.change(t, func(document map[string]any) { change(document["pods"].(map[string]any)) })
}

// change changes Kuryr's configuration for the rest of the test.
func (f *fixture) change(t testing.TB, change func(document map[string]any)) {
	t.Helper()
	before, err := f.ChangeConfiguration(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f.WriteConfiguration(ctx, before); err != nil {
			t.Error(err)
		}
	})
}

// controller returns the controller's pod.
func (f *fixture) controller(t testing.TB) *corev1.Pod {
	t.Helper()
	for _, pod := range f.kuryrPods(t.Context(), t) {
		if strings.HasPrefix(pod.Name, "kuryr-controller") && pod.DeletionTimestamp == nil {
			return &pod
		}
	}
	t.Fatal("there is no pod of Kuryr's controller")
	return nil
}

// kill ends a process of Kuryr's on a node with SIGKILL.
func (f *fixture) kill(t testing.TB, node, subcommand string) {
	t.Helper()
	if _, err := f.OnNode(t.Context(), node, "pkill", "-KILL", "-f", "^/usr/local/bin/kuryr "+subcommand); err != nil {
		t.Fatal(err)
	}
	if subcommand == "controller" {
		f.killed++
	}
}

// scaleController has Kuryr's controller run so many times.
func (f *fixture) scaleController(t testing.TB, replicas int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = kuryrNamespace, "kuryr-controller"
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, replicas))
	if err := f.Client.Patch(ctx, d, patch); err != nil {
		t.Fatal(err)
	}
	err := cluster.Until(ctx, func() error {
		if err := f.Client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.ObservedGeneration < d.Generation || int(d.Status.Replicas) != replicas || int(d.Status.ReadyReplicas) != replicas {
			return fmt.Errorf("the controller has %d replicas, %d ready, want %d", d.Status.Replicas, d.Status.ReadyReplicas, replicas)
		}
		// A Deployment does not count a pod that is told to end, which may lead for some seconds more.
		pods := &corev1.PodList{}
		if err := f.Client.List(ctx, pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		if len(pods.Items) != replicas {
			return fmt.Errorf("the controller has %d pods, want %d", len(pods.Items), replicas)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inventory is all that there is for pods. At rest there is one of each for
// each pod, and nothing else.
type inventory struct {
	Pods         map[string]int // by node: with a network of their own, not finished
	NeutronPorts []string       // this cluster's
	KuryrPorts   []string
	OnNode       map[string]map[string]int // what a node has: devices, ports of the switch, journal, sandboxes' namespaces
}

// countOnNode prints what a node has, as JSON.
const countOnNode = `
	echo "{\"veth\": $(ip -o link show type veth | grep -c ' tap'),"
	echo "\"ovs\": $(ovs-vsctl --bare --columns=name find interface external_ids:iface-id!='""' | grep -c tap),"
	echo "\"journal\": $(find /var/lib/kuryr -name '*.json' | wc -l),"
	echo "\"netns\": $(ls /run/netns | grep -cv kuryr-parking)}"`

// take counts what is there.
func (f *fixture) take(ctx context.Context) (inventory, error) {
	i := inventory{Pods: map[string]int{}, OnNode: map[string]map[string]int{}}
	var pods corev1.PodList
	if err := f.Client.List(ctx, &pods); err != nil {
		return i, err
	}
	for _, pod := range pods.Items {
		finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.Spec.NodeName != "" && !pod.Spec.HostNetwork && !finished {
			i.Pods[pod.Spec.NodeName]++
		}
	}
	ports, err := f.ownPorts(ctx)
	if err != nil {
		return i, err
	}
	i.NeutronPorts = ports
	var list v1.KuryrPortList
	if err := f.Client.List(ctx, &list); err != nil {
		return i, err
	}
	for _, p := range list.Items {
		i.KuryrPorts = append(i.KuryrPorts, p.Name)
	}
	slices.Sort(i.KuryrPorts)
	for _, node := range nodes {
		out, err := f.OnNode(ctx, node, "sh", "-c", countOnNode)
		if err != nil {
			return i, err
		}
		var n map[string]int
		if err := json.Unmarshal([]byte(out), &n); err != nil {
			return i, fmt.Errorf("counting on %s: %w: %s", node, err, out)
		}
		i.OnNode[node] = n
	}
	return i, nil
}

// ownPorts returns the IDs of Neutron's ports that bear this cluster's mark.
func (f *fixture) ownPorts(ctx context.Context) ([]string, error) {
	var system corev1.Namespace
	if err := f.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return nil, err
	}
	ports, err := f.KuryrPorts(ctx)
	if err != nil {
		return nil, err
	}
	var own []string
	for _, p := range ports {
		if strings.Contains(p.Description, "kuryr.cluster="+string(system.UID)+" ") {
			own = append(own, p.ID)
		}
	}
	slices.Sort(own)
	return own, nil
}

// faults says what is missing or too much.
func (i inventory) faults() error {
	total := 0
	for _, node := range nodes {
		total += i.Pods[node]
		for what, n := range i.OnNode[node] {
			if n != i.Pods[node] {
				return fmt.Errorf("node %s has %d of %s, want %d: %+v", node, n, what, i.Pods[node], i)
			}
		}
	}
	if !slices.Equal(i.NeutronPorts, i.KuryrPorts) || len(i.KuryrPorts) != total {
		return fmt.Errorf("%d pods have %d Neutron ports and %d KuryrPorts, want one each: %+v", total, len(i.NeutronPorts), len(i.KuryrPorts), i)
	}
	return nil
}

// atRest waits until there is one of everything for each pod, and nothing that
// belongs to nobody.
func (f *fixture) atRest(t testing.TB) {
	t.Helper()
	eventually(t, func() error { return f.rests(t.Context()) })
}

// rests says what is not at rest now.
func (f *fixture) rests(ctx context.Context) error {
	now, err := f.take(ctx)
	if err != nil {
		return err
	}
	return now.faults()
}
