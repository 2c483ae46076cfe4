// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// servicePicture is all that is shown of a Service.
type servicePicture struct {
	*served
	events []corev1.Event
	now    time.Time
}

func (t *tool) showServiceCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "show NAME | NAMESPACE/NAME",
		Short: "Show a Service: its load balancers, listeners and members, and what differs",
		Example: "  kubectl kuryr services show web -n shop\n" +
			"  kubectl kuryr services show shop/web",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: t.completeService,
		RunE: t.prints(&format, []string{"json", "yaml"}, func(cmd *cobra.Command, c client.Client, args []string) error {
			key, err := t.serviceKey(args[0])
			if err != nil {
				return err
			}
			p, err := lookAtService(cmd.Context(), c, key, t.now())
			if err != nil {
				return err
			}
			if format != "" {
				return encode(cmd.OutOrStdout(), format, objects([]served{*p.served}))
			}
			return p.write(cmd.OutOrStdout())
		}),
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml: the Service and its KuryrLoadBalancer as one list")
	return cmd
}

func lookAtService(ctx context.Context, c client.Client, key types.NamespacedName, now time.Time) (*servicePicture, error) {
	s, err := service(ctx, c, key)
	if err != nil {
		return nil, err
	}
	about := map[types.UID]bool{}
	if s.svc != nil {
		about[s.svc.UID] = true
	}
	if s.klb != nil {
		about[s.klb.UID] = true
	}
	events, err := eventsAbout(ctx, c, key.Namespace, about)
	return &servicePicture{served: s, events: events, now: now}, err
}

func (p *servicePicture) write(w io.Writer) error {
	c := compare(p.klb)
	return cmp.Or(p.head(w, c), p.conditions(w), p.balancers(w), writeListeners(w, c), writeMembers(w, c), writeDifferences(w, c),
		p.commands(w), writeEvents(w, p.events, p.now))
}

func (p *servicePicture) head(w io.Writer, c *comparison) error {
	t := newTable(w, "Service:", p.key().String())
	line := t.field
	line("Type", p.kind())
	line("VIPs", strings.Join(p.vips(), ", "))
	line("Public address", p.floating())
	line("Status", strings.Join(p.standing(), ", "))
	if p.klb == nil {
		_, why := p.lacking()
		line("Load balancer", "none: "+strings.ReplaceAll(why, "\n", "; "))
		line("Age", age(p.now, p.since()))
		return t.flush()
	}
	if ready := meta.FindStatusCondition(p.klb.Status.Conditions, v1.ConditionReady); ready != nil && ready.ObservedGeneration != p.klb.Generation {
		line("Generation", fmt.Sprintf("%d; the state of the cloud is of %d", p.klb.Generation, ready.ObservedGeneration))
	}
	if c != nil {
		listeners, members := c.counts()
		line("Listeners", listeners+" in sync")
		line("Members", members+" in sync")
	}
	line("Clients", strings.Join(p.klb.Spec.SourceRanges, ", "))
	line("Security group", p.klb.Status.SecurityGroupID)
	line("Age", age(p.now, p.since()))
	return t.flush()
}

// floating tells of the floating IP.
func (p *servicePicture) floating() string {
	if p.klb == nil || p.klb.Status.PublicIP == nil {
		return p.public()
	}
	ip := p.klb.Status.PublicIP
	how := "existed before the Service, and stays"
	if ip.Made {
		how = "is deleted with the Service"
	}
	return fmt.Sprintf("%s (floating IP %s, %s)", ip.IP, ip.ID, how)
}

// conditions prints the conditions of both objects, by planner and applier.
func (p *servicePicture) conditions(w io.Writer) error {
	var all []metav1.Condition
	if c := p.planned(); c != nil {
		said := *c
		said.Type = "Planned"
		all = append(all, said)
	}
	if p.klb != nil {
		for _, kind := range []string{v1.ConditionSupported, v1.ConditionInSync, v1.ConditionReady, v1.ConditionProgressing} {
			if c := meta.FindStatusCondition(p.klb.Status.Conditions, kind); c != nil {
				all = append(all, *c)
			}
		}
	}
	if len(all) == 0 && p.klb == nil {
		return nil
	}
	return writeConditions(w, all, p.now)
}

func (p *servicePicture) balancers(w io.Writer) error {
	if p.klb == nil {
		return nil
	}
	if len(p.klb.Status.LoadBalancers) == 0 {
		_, err := fmt.Fprintln(w, "\nLoad balancers: none yet")
		return err
	}
	fmt.Fprintln(w, "\nLoad balancers:")
	t := newTable(w, "  VIP", "PROVIDER", "PROVISIONING", "OPERATING", "ID", "VIP PORT", "SUBNET")
	for _, lb := range p.klb.Status.LoadBalancers {
		t.row("  "+lb.IP, lb.Provider, lb.ProvisioningStatus, cmp.Or(lb.OperatingStatus, "-"), lb.ID, cmp.Or(lb.PortID, "-"), lb.SubnetID)
	}
	return t.flush()
}

func writeListeners(w io.Writer, c *comparison) error {
	if c == nil || len(c.listeners) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nListeners:")
	t := newTable(w, "  VIP", "PORT", "NAME", "STATE", "ID", "POOL")
	for _, l := range c.listeners {
		t.row("  "+l.vip, l.port, cmp.Or(l.name, "-"), l.state, cmp.Or(l.id, "-"), cmp.Or(l.poolID, "-"))
	}
	return t.flush()
}

func writeMembers(w io.Writer, c *comparison) error {
	if c == nil || !slices.ContainsFunc(c.listeners, func(l listenerRow) bool { return len(l.members) > 0 }) {
		return nil
	}
	fmt.Fprintln(w, "\nMembers:")
	t := newTable(w, "  VIP", "PORT", "MEMBER", "ADDRESS", "STATE", "ID", "SUBNET")
	for _, l := range c.listeners {
		for _, m := range l.members {
			t.row("  "+l.vip, l.port, cmp.Or(m.name, "-"), m.address, m.state, cmp.Or(m.id, "-"), cmp.Or(m.subnet, "-"))
		}
	}
	return t.flush()
}

func writeDifferences(w io.Writer, c *comparison) error {
	if c == nil || len(c.differences) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, "\nDifferences between the spec and what the controller last saw in the cloud:\n  "+strings.Join(c.differences, "\n  "))
	return err
}

// commands says how to look at it in the cloud.
func (p *servicePicture) commands(w io.Writer) error {
	if p.klb == nil || len(p.klb.Status.LoadBalancers) == 0 {
		return nil
	}
	var lines []string
	for _, lb := range p.klb.Status.LoadBalancers {
		lines = append(lines, "openstack loadbalancer status show "+lb.ID)
		if lb.PortID != "" {
			lines = append(lines, "openstack port show "+lb.PortID)
		}
	}
	if ip := p.klb.Status.PublicIP; ip != nil {
		lines = append(lines, "openstack floating ip show "+ip.ID)
	}
	if id := p.klb.Status.SecurityGroupID; id != "" {
		lines = append(lines, "openstack security group show "+id)
	}
	_, err := fmt.Fprintln(w, "\nIn the cloud:\n  "+strings.Join(lines, "\n  "))
	return err
}
