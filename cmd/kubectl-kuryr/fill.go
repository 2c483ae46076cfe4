// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// mostPorts is how many free ports a pool may be asked for: the API's bound of min.
const mostPorts = 10000

// order is a fill order of the command line.
type order struct {
	ports   int
	wait    bool
	timeout time.Duration
}

func (t *tool) fillCommand() *cobra.Command {
	var o order
	cmd := &cobra.Command{
		Use:   "fill NAME --ports N",
		Short: "Have a pool keep N free ports ready, before the pods come",
		Long: "Asks the controller to make ports until N of the pool are free, once. What is above\n" +
			"min afterwards is kept for ttl, as any free port.",
		Example: "  kubectl kuryr pools fill worker-3-8c1f0a2b9d --ports 50 --wait",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: t.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.ports < 1 || o.ports > mostPorts {
				return fmt.Errorf("--ports is %d: write how many ports are to be free, 1 to %d", o.ports, mostPorts)
			}
			c, err := t.client()
			if err != nil {
				return err
			}
			return t.fill(cmd.Context(), c, cmd.OutOrStdout(), args[0], o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.ports, "ports", 0, "how many ports are to be free")
	flags.BoolVar(&o.wait, "wait", false, "wait until they are")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "with --wait: for how long at most; 0s: for as long as it takes")
	return cmd
}

func (t *tool) fill(ctx context.Context, c client.Client, w io.Writer, name string, o order) error {
	p, err := pool(ctx, c, name)
	if err != nil {
		return err
	}
	if most := int(p.Spec.Max); most > 0 && o.ports > most {
		return fmt.Errorf("pool %s keeps at most %d free ports: ask for no more, or raise pools.max in Kuryr's configuration", name, most)
	}
	if free := int(p.Status.Available); free >= o.ports {
		_, err := fmt.Fprintf(w, "pool %s has %d free already\n", name, free)
		return err
	}
	if err := ask(ctx, c, p, strconv.Itoa(o.ports)); err != nil {
		return err
	}
	fmt.Fprintf(w, "pool %s: asked for %d free ports, %d are free\n", name, o.ports, p.Status.Available)
	if !o.wait {
		return nil
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	return t.await(ctx, c, w, p, o)
}

// ask writes the annotation that fills a pool, or takes it away if n is empty.
func ask(ctx context.Context, c client.Client, p *v1.KuryrPortPool, n string) error {
	var value any // null takes it away
	if n != "" {
		value = n
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1.FillAnnotation: value}}})
	if err != nil {
		return fmt.Errorf("writing the annotation: %w", err)
	}
	target := &v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}
	return explain("annotating pool "+p.Name, c.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)))
}

// countsLate is how long the pool's counts may be late: the controller writes
// them once a second at most.
const countsLate = 5 * time.Second

// await shows the progress until the order is done. The controller removes the order when the ports
// exist. Smaller counts after that are late, or pods have taken ports since.
func (t *tool) await(ctx context.Context, c client.Client, w io.Writer, p *v1.KuryrPortPool, o order) error {
	var said string
	before := p
	var gone time.Time // when a look first did not find the order
	for {
		now, err := pool(ctx, c, p.Name)
		if err == nil {
			p = now
			if gone.IsZero() && p.Annotations[v1.FillAnnotation] != strconv.Itoa(o.ports) {
				gone = t.now()
			}
			if int(p.Status.Available) >= o.ports || !gone.IsZero() && t.now().Sub(gone) > countsLate {
				return orderGone(w, before, p, o)
			}
			if line := progress(p, o.ports); line != said {
				fmt.Fprintln(w, line)
				said = line
			}
		}
		select {
		case <-ctx.Done():
			return gaveUp(ctx, p, o)
		case <-time.After(t.pause):
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// orderGone returns the result of an order that is gone. A completed order and an order that
// somebody removed leave the same object; the ports that pods have got since the order distinguish
// them.
func orderGone(w io.Writer, before, p *v1.KuryrPortPool, o order) error {
	free := int(p.Status.Available)
	if free+max(0, int(p.Status.Bound-before.Status.Bound)) >= o.ports {
		_, err := fmt.Fprintf(w, "pool %s: filled, %d are free\n", p.Name, free)
		return err
	}
	if other := p.Annotations[v1.FillAnnotation]; other != "" {
		return fmt.Errorf("pool %s has %d of %d free, and another user has replaced the order by one for %s", p.Name, free, o.ports, other)
	}
	return fmt.Errorf("pool %s has %d of %d free, and the order is gone: another user removed it, or took the ports", p.Name, free, o.ports)
}

func progress(p *v1.KuryrPortPool, n int) string {
	line := fmt.Sprintf("pool %s: %d of %d are free", p.Name, p.Status.Available, n)
	if why := obstacle(p); why != "" {
		line += "; " + why
	}
	return line
}

// obstacle is the cause of the delay, in the controller's words; empty is none.
func obstacle(p *v1.KuryrPortPool) string {
	for _, kind := range []string{v1.ConditionOverQuota, v1.ConditionSubnetExhausted} {
		if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return kind + ": " + c.Message
		}
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, v1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason + ": " + c.Message
	}
	return ""
}

func gaveUp(ctx context.Context, p *v1.KuryrPortPool, o order) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	why := "is a controller running? 'kubectl kuryr pools show " + p.Name + "' has the Events"
	if o := obstacle(p); o != "" {
		why = o + "; the controller continues"
	}
	return fmt.Errorf("pool %s has %d of %d free after %s: %s", p.Name, p.Status.Available, o.ports, o.timeout, why)
}
