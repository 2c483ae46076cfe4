// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// deleters is how many ports are deleted at once, and tries how often one is
// whose object changes meanwhile without being given to a pod.
const (
	deleters = 8
	tries    = 5
)

func (t *tool) freeCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "free NAME... | --all",
		Short: "Delete the free ports of pools",
		Long: "Deletes the ports of the pools that no pod has, and with them their addresses in the\n" +
			"SDN. Ports of pods stay. A pool then fills up to its min again, unless that is 0.",
		Example: "  kubectl kuryr pools free worker-3-8c1f0a2b9d\n" +
			"  kubectl kuryr pools free --all",
		ValidArgsFunction: t.complete,
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("name the pools to free, or give --all and no name")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := t.client()
			if err != nil {
				return err
			}
			chosen, err := choose(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			return freeAll(cmd.Context(), c, cmd.OutOrStdout(), chosen)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "free all pools")
	return cmd
}

// choose returns the pools of these names, or all without a name. Nothing is
// done if one is missing.
func choose(ctx context.Context, c client.Client, names []string) ([]v1.KuryrPortPool, error) {
	if len(names) == 0 {
		return pools(ctx, c, "")
	}
	var chosen []v1.KuryrPortPool
	for _, name := range names {
		p, err := pool(ctx, c, name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, *p)
	}
	return chosen, nil
}

func freeAll(ctx context.Context, c client.Client, w io.Writer, chosen []v1.KuryrPortPool) error {
	var all []error
	for i := range chosen {
		if err := free(ctx, c, w, &chosen[i]); err != nil {
			all = append(all, err)
		}
	}
	if len(chosen) == 0 {
		fmt.Fprintln(w, "There are no pools.")
	}
	return errors.Join(all...)
}

// free deletes the free ports of a pool. An order to fill it is taken back: it
// would have them made again.
func free(ctx context.Context, c client.Client, w io.Writer, p *v1.KuryrPortPool) error {
	if p.Annotations[v1.FillAnnotation] != "" {
		if err := ask(ctx, c, p, ""); err != nil {
			return err
		}
	}
	all, err := ports(ctx, c, p.Name)
	if err != nil {
		return err
	}
	tally, err := deleteFree(ctx, c, all)
	fmt.Fprintln(w, freed(p, tally))
	return err
}

// tally is what became of a pool's ports.
type tally struct{ deleted, taken int }

func deleteFree(ctx context.Context, c client.Client, all []v1.KuryrPort) (tally, error) {
	var g errgroup.Group
	g.SetLimit(deleters)
	var mu sync.Mutex
	var sum tally
	var faults []error
	for i := range all {
		if !isFree(&all[i]) {
			continue
		}
		g.Go(func() error {
			deleted, taken, err := deleteOne(ctx, c, &all[i])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				faults = append(faults, explain("deleting port "+all[i].Name, err))
			}
			sum.deleted += deleted
			sum.taken += taken
			return nil
		})
	}
	_ = g.Wait()
	return sum, errors.Join(faults...)
}

// deleteOne deletes a port in the state that was seen, so that it never deletes a port that a pod
// gets at this moment. It tries again if a port has changed and is still free.
func deleteOne(ctx context.Context, c client.Client, port *v1.KuryrPort) (deleted, taken int, err error) {
	for try := 1; ; try++ {
		err := c.Delete(ctx, port, client.Preconditions{UID: &port.UID, ResourceVersion: &port.ResourceVersion})
		if err == nil {
			return 1, 0, nil
		}
		if !apierrors.IsConflict(err) || try == tries {
			return 0, 0, client.IgnoreNotFound(err)
		}
		uid := port.UID
		if err := c.Get(ctx, client.ObjectKeyFromObject(port), port); err != nil {
			return 0, 0, client.IgnoreNotFound(err)
		}
		if port.UID != uid || !port.DeletionTimestamp.IsZero() {
			return 0, 0, nil // another client was faster
		}
		if !isFree(port) {
			return 0, 1, nil
		}
	}
}

func isFree(port *v1.KuryrPort) bool {
	return port.Spec.PodRef == nil && port.DeletionTimestamp.IsZero()
}

func freed(p *v1.KuryrPortPool, t tally) string {
	text := fmt.Sprintf("pool %s: deleted %s", p.Name, count(t.deleted, "free port"))
	if t.taken > 0 {
		text += fmt.Sprintf(", left %d that pods got meanwhile", t.taken)
	}
	if p.Spec.Min > 0 {
		return text + fmt.Sprintf("; it fills up to %d again (its min)", p.Spec.Min)
	}
	return text + "; it stays empty until a pod needs a port"
}
