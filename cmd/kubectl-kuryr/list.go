// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

func (t *tool) listCommand() *cobra.Command {
	var format, node string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the pools with their levels",
		Example: "  kubectl kuryr pools list\n" +
			"  kubectl kuryr pools list --node worker-3 -o wide",
		Args: cobra.NoArgs,
		RunE: t.prints(&format, []string{"wide", "json", "yaml", "name"}, func(cmd *cobra.Command, c client.Client, _ []string) error {
			tellFirstStart(cmd, c)
			all, err := pools(cmd.Context(), c, node)
			if err != nil {
				return err
			}
			if len(all) == 0 && (format == "" || format == "wide") {
				fmt.Fprintln(cmd.ErrOrStderr(), "There are no pools: Kuryr makes one with the first pod of a node.")
				return nil
			}
			return writePools(cmd.OutOrStdout(), all, format, t.now())
		}),
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "wide, json, yaml or name")
	cmd.Flags().StringVar(&node, "node", "", "only pools of this node")
	return cmd
}

// writePools writes pools as a table, or in another format.
func writePools(w io.Writer, all []v1.KuryrPortPool, format string, now time.Time) error {
	switch format {
	case "json", "yaml":
		return encode(w, format, poolList(all))
	case "name":
		for i := range all {
			if _, err := fmt.Fprintln(w, "kuryrportpool.openstack.org/"+all[i].Name); err != nil {
				return err
			}
		}
		return nil
	}
	table := newTable(w, "NAME", "NODE", "AVAILABLE", "BOUND", "RECYCLING", "WAITING", "MIN", "MAX", "STATUS", "AGE")
	if format == "wide" {
		table = newTable(w, "NAME", "NODE", "AVAILABLE", "BOUND", "RECYCLING", "WAITING", "MIN", "MAX", "STATUS", "AGE",
			"FILL", "BATCH", "TTL", "COOLDOWN", "REFILLED", "PLUGGED", "NAMESPACE", "SUBNETS", "GROUPS")
	}
	for i := range all {
		table.row(cells(&all[i], format == "wide", now)...)
	}
	return table.flush()
}

func cells(p *v1.KuryrPortPool, wide bool, now time.Time) []string {
	s := p.Status
	out := []string{
		p.Name, p.Spec.Key.NodeName, number(s.Available), number(s.Bound), number(s.Recycling), number(s.WaitingPods),
		number(p.Spec.Min), limit(p.Spec.Max), standing(p), age(now, p.CreationTimestamp),
	}
	if !wide {
		return out
	}
	refilled := "-"
	if s.LastRefill != nil {
		refilled = age(now, *s.LastRefill)
	}
	return append(out, cmp.Or(p.Annotations[v1.FillAnnotation], "-"), number(p.Spec.Batch), short(p.Spec.TTL), short(p.Spec.Cooldown),
		refilled, cmp.Or(p.Spec.Key.VIFType, "-"), cmp.Or(p.Spec.Key.Namespace, "-"), join(p.Spec.Key.SubnetIDs), join(p.Spec.Key.SecurityGroupIDs))
}

// standing sums up a pool's conditions: Ready, or why it is not, and which
// others hold.
func standing(p *v1.KuryrPortPool) string {
	ready := meta.FindStatusCondition(p.Status.Conditions, v1.ConditionReady)
	if ready == nil {
		return "Unknown"
	}
	out := []string{v1.ConditionReady}
	if ready.Status != metav1.ConditionTrue {
		out[0] = cmp.Or(ready.Reason, "NotReady")
	}
	for _, c := range p.Status.Conditions {
		if c.Type != v1.ConditionReady && c.Status == metav1.ConditionTrue && !slices.Contains(out, c.Type) {
			out = append(out, c.Type)
		}
	}
	slices.Sort(out[1:])
	return strings.Join(out, ",")
}

// poolList is pools as the API server would answer them.
func poolList(all []v1.KuryrPortPool) *v1.KuryrPortPoolList {
	list := &v1.KuryrPortPoolList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "KuryrPortPoolList"}, Items: all,
	}
	for i := range all {
		named(&all[i])
	}
	return list
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// limit writes a max: 0 is none.
func limit(n int32) string {
	if n == 0 {
		return "none"
	}
	return number(n)
}

func join(list []string) string { return cmp.Or(strings.Join(list, ","), "-") }
