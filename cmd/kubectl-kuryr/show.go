// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// reporter is whose Events are shown: the controller's.
const reporter = "kuryr-controller"

// lastEvents is how many Events are shown at most.
const lastEvents = 10

// picture is all that is shown of a pool.
type picture struct {
	pool   *v1.KuryrPortPool
	ports  []v1.KuryrPort
	events []corev1.Event
	now    time.Time
}

func (t *tool) showCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show a pool: what it is for, what it lacks, its ports and Events",
		Example:           "  kubectl kuryr pools show worker-3-8c1f0a2b9d",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: t.complete,
		RunE: t.prints(&format, []string{"json", "yaml"}, func(cmd *cobra.Command, c client.Client, args []string) error {
			p, err := look(cmd.Context(), c, args[0], t.now())
			if err != nil {
				return err
			}
			if format != "" {
				return encode(cmd.OutOrStdout(), format, p.objects())
			}
			return p.write(cmd.OutOrStdout())
		}),
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml: the pool and its ports as one list")
	return cmd
}

func look(ctx context.Context, c client.Client, name string, now time.Time) (*picture, error) {
	p, err := pool(ctx, c, name)
	if err != nil {
		return nil, err
	}
	all, err := ports(ctx, c, p.Name)
	if err != nil {
		return nil, err
	}
	found, err := events(ctx, c, p, all)
	return &picture{pool: p, ports: all, events: found, now: now}, err
}

// events returns the controller's last Events about the pool, its ports and the pods of its node. A
// waiting pod has no port, so the node selects its pods.
func events(ctx context.Context, c client.Client, p *v1.KuryrPortPool, all []v1.KuryrPort) ([]corev1.Event, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.MatchingFields{"spec.nodeName": p.Spec.Key.NodeName}); err != nil {
		return nil, explain("listing pods of node "+p.Spec.Key.NodeName, err)
	}
	about := map[types.UID]bool{p.UID: true}
	for i := range all {
		about[all[i].UID] = true
	}
	for i := range pods.Items {
		about[pods.Items[i].UID] = true
	}
	return eventsAbout(ctx, c, "", about)
}

// eventsAbout returns the controller's last Events about objects, in a namespace or, if that is
// empty, in all.
func eventsAbout(ctx context.Context, c client.Client, namespace string, about map[types.UID]bool) ([]corev1.Event, error) {
	var list corev1.EventList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{"reportingComponent": reporter}); err != nil {
		return nil, explain("listing Events", err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return !about[e.InvolvedObject.UID] })
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return lastSeen(&a).Compare(lastSeen(&b).Time) })
	return list.Items[max(0, len(list.Items)-lastEvents):], nil
}

// lastSeen returns the time when an Event was last written. The field depends on the writer and its
// API.
func lastSeen(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.Time{Time: e.Series.LastObservedTime.Time}
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	case !e.EventTime.IsZero():
		return metav1.Time{Time: e.EventTime.Time}
	}
	return e.CreationTimestamp
}

// objects is the pool and its ports as one list that kubectl understands.
func (p *picture) objects() any {
	all := []client.Object{p.pool}
	for i := range p.ports {
		all = append(all, &p.ports[i])
	}
	return listOf(all...)
}

func (p *picture) write(w io.Writer) error {
	return cmp.Or(p.head(w), writeConditions(w, p.pool.Status.Conditions, p.now), p.list(w), writeEvents(w, p.events, p.now))
}

func (p *picture) head(w io.Writer) error {
	spec, status := &p.pool.Spec, &p.pool.Status
	t := newTable(w, "Name:", p.pool.Name)
	line := t.field
	line("Node", spec.Key.NodeName)
	line("Parent port", spec.Key.ParentPortID)
	line("Namespace", spec.Key.Namespace)
	line("Project", spec.Key.ProjectID)
	line("Network", spec.Key.NetworkID)
	line("Subnets", strings.Join(spec.Key.SubnetIDs, ", "))
	line("Security groups", cmp.Or(strings.Join(spec.Key.SecurityGroupIDs, ", "), "none: no traffic"))
	line("Plugged as", spec.Key.VIFType)
	line("Age", age(p.now, p.pool.CreationTimestamp))
	line("Levels", fmt.Sprintf("min %d, max %s, batch %d, ttl %s, cooldown %s",
		spec.Min, limit(spec.Max), spec.Batch, short(spec.TTL), short(spec.Cooldown)))
	if n := p.pool.Annotations[v1.FillAnnotation]; n != "" {
		line("Filling", "until "+n+" ports are free")
	}
	line("Ports", fmt.Sprintf("%d: %d available, %d bound, %d recycling", status.Total, status.Available, status.Bound, status.Recycling))
	line("Waiting", count(int(status.WaitingPods), "pod"))
	line("Lacks", lacks(p.pool))
	if status.LastRefill != nil {
		line("Last refill", age(p.now, *status.LastRefill)+" ago")
	}
	return t.flush()
}

// lacks returns how many ports a pool lacks, and what they are for.
func lacks(p *v1.KuryrPortPool) string {
	waiting := int(p.Status.WaitingPods)
	level, aim := int(p.Spec.Min), "to be at min"
	if n, err := strconv.Atoi(p.Annotations[v1.FillAnnotation]); err == nil && n > level {
		level, aim = n, "to be filled"
	}
	spare := max(0, level-int(p.Status.Available))
	if waiting+spare == 0 {
		return "nothing"
	}
	var why []string
	if waiting > 0 {
		why = append(why, fmt.Sprintf("%d for waiting pods", waiting))
	}
	if spare > 0 {
		why = append(why, fmt.Sprintf("%d %s", spare, aim))
	}
	return count(waiting+spare, "port") + ": " + strings.Join(why, ", ")
}

// writeConditions writes a table of conditions. Each further line of a message is a row.
func writeConditions(w io.Writer, all []metav1.Condition, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "\nConditions: none yet; is a controller running?")
		return err
	}
	fmt.Fprintln(w, "\nConditions:")
	t := newTable(w, "  TYPE", "STATUS", "REASON", "SINCE", "MESSAGE")
	for _, c := range all {
		first, more, _ := strings.Cut(c.Message, "\n")
		t.row("  "+c.Type, string(c.Status), c.Reason, age(now, c.LastTransitionTime), first)
		for text := range strings.Lines(more) {
			t.row("", "", "", "", strings.TrimSuffix(text, "\n"))
		}
	}
	return t.flush()
}

func (p *picture) list(w io.Writer) error {
	if len(p.ports) == 0 {
		_, err := fmt.Fprintln(w, "\nPorts: none")
		return err
	}
	fmt.Fprintln(w, "\nPorts:")
	active := map[bool]string{true: "yes", false: "no"}
	t := newTable(w, "  PORT", "ADDRESS", "PHASE", "ACTIVE", "POD", "AGE")
	for i := range p.ports {
		port := &p.ports[i]
		t.row("  "+port.Name, join(port.Spec.VIF.IPs()), phase(port), active[port.Status.Active], holder(port), age(p.now, port.CreationTimestamp))
	}
	return t.flush()
}

func phase(port *v1.KuryrPort) string {
	if !port.DeletionTimestamp.IsZero() {
		return string(v1.PortDeleting)
	}
	return cmp.Or(string(port.Status.Phase), "new")
}

func holder(port *v1.KuryrPort) string {
	if ref := port.Spec.PodRef; ref != nil {
		return ref.Namespace + "/" + ref.Name
	}
	return "-"
}

func writeEvents(w io.Writer, events []corev1.Event, now time.Time) error {
	if len(events) == 0 {
		_, err := fmt.Fprintln(w, "\nEvents: none")
		return err
	}
	fmt.Fprintln(w, "\nEvents:")
	t := newTable(w, "  LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
	for i := range events {
		e := &events[i]
		on := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
		if e.InvolvedObject.Namespace != "" {
			on = strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
		}
		t.row("  "+age(now, lastSeen(e)), e.Type, e.Reason, on, strings.ReplaceAll(e.Message, "\n", " "))
	}
	return t.flush()
}
