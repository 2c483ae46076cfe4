// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// remainsCloud is what the deletion of a cluster's remains needs of the SDN.
type remainsCloud interface {
	sdn.Remains
	sdn.LoadBalancers
	sdn.FloatingIPs
	sdn.SecurityGroups
	sdn.Networks
	sdn.Routers
	sdn.Ports
	sdn.Visibility
}

// remnant is a resource of the cluster, and the credential that shows it.
type remnant struct {
	sdn.Remnant
	cloud remainsCloud
}

// remnantSteps are the kinds in an order in which Octavia and Neutron accept their deletion.
var remnantSteps = []struct {
	kind   sdn.RemnantKind
	delete func(context.Context, remnant) error
}{
	{sdn.RemnantLoadBalancer, func(ctx context.Context, r remnant) error { return r.cloud.DeleteLoadBalancer(ctx, r.ID) }},
	{sdn.RemnantFloatingIP, func(ctx context.Context, r remnant) error { return r.cloud.DeleteFloatingIP(ctx, r.ID, "") }},
	{sdn.RemnantPort, func(ctx context.Context, r remnant) error { return r.cloud.DeletePort(ctx, r.ID) }},
	{sdn.RemnantNetwork, deleteNetwork},
	{sdn.RemnantSubnet, func(ctx context.Context, r remnant) error { return r.cloud.DeleteSubnet(ctx, r.ID) }}, // of other networks
	{sdn.RemnantRouter, func(ctx context.Context, r remnant) error { return r.cloud.DeleteRouter(ctx, r.ID) }},
	{sdn.RemnantSecurityGroup, func(ctx context.Context, r remnant) error { return r.cloud.DeleteSecurityGroup(ctx, r.ID) }},
}

// deleteNetwork deletes a network with its router interfaces and subnets, unless somebody has a port
// in it: the port would be cut off while it keeps the network.
func deleteNetwork(ctx context.Context, r remnant) error {
	is, err := r.cloud.Network(ctx, r.ID)
	if errors.Is(err, sdn.ErrNotFound) {
		return nil
	}
	used, inUse := r.cloud.InUse(ctx, r.ID)
	if err := errors.Join(err, inUse); err != nil {
		return err
	}
	if len(used) > 0 {
		return fmt.Errorf("port %s of %q and %d others are in it: %w", used[0].ID, used[0].DeviceOwner, len(used)-1, sdn.ErrConflict)
	}
	for _, s := range is.Subnets {
		for _, router := range s.RouterIDs {
			if err := r.cloud.RemoveRouterInterface(ctx, router, s.ID); err != nil {
				return err
			}
		}
	}
	return r.cloud.DeleteNetwork(ctx, r.ID)
}

// clusterGone is one run of kuryr gc --cluster-gone.
type clusterGone struct {
	clouds   []remainsCloud // one for each credential
	projects []string       // of the configuration; those of the credentials count, too
	in       io.Reader
	out      io.Writer
	flags    gcFlags
	patience time.Duration // how long a kind may make no progress
	pause    time.Duration // between two tries
}

func runClusterGone(ctx context.Context, in io.Reader, w io.Writer, f gcFlags) error {
	c, err := loadConfig(f.config)
	if err == nil {
		err = errors.Join(f.check(c), f.checkGone())
	}
	if err == nil {
		err = doesNotLive(ctx, f, c.ClusterID)
	}
	if err != nil {
		return exit{exitUnknown, err}
	}
	c.ClusterID = f.gone
	main, err := newBackend(ctx, nil, c, nil)
	if err != nil {
		return exit{exitUnknown, err}
	}
	run := clusterGone{
		clouds: []remainsCloud{main}, projects: []string{c.Pods.ProjectID, c.Services.ProjectID},
		in: in, out: w, flags: f, patience: 2 * time.Minute, pause: 5 * time.Second,
	}
	for _, p := range c.Projects {
		run.projects = append(run.projects, p.ProjectID)
	}
	for _, t := range controller.Tenants(c.Projects) {
		run.clouds = append(run.clouds, main.As(t.Cloud, t.ProjectID))
	}
	return run.run(ctx)
}

func (f *gcFlags) checkGone() error {
	switch {
	case f.gone == "":
		return errors.New("--yes has an effect with --cluster-gone only: add it, or remove --yes")
	case f.yes != "" && f.yes != f.gone:
		return fmt.Errorf("--yes is %q, not the ID %q of --cluster-gone", f.yes, f.gone)
	case f.deletes:
		return errors.New("--cluster-gone deletes after a confirmation: remove --delete")
	}
	return nil
}

// doesNotLive returns an error if the cluster answers: the ID is that of the configuration, or its own.
// Without access to a cluster it returns nil, and the age of the resources decides.
func doesNotLive(ctx context.Context, f gcFlags, configured string) error {
	cluster, err := clusterConfig(f.kubeconfig)
	if err != nil && f.kubeconfig == "" {
		return nil
	}
	if err != nil {
		return err
	}
	cluster.Timeout = 10 * time.Second
	reader, err := client.New(cluster, client.Options{})
	if err != nil {
		return fmt.Errorf("reaching the Kubernetes API: %w", err)
	}
	id, err := clusterID(ctx, reader, "")
	switch {
	case err == nil && (id == f.gone || configured == f.gone):
		return fmt.Errorf("cluster %s is not gone: its API server answers. `kuryr gc` deletes what a living cluster has left over", f.gone)
	case apierrors.ReasonForError(err) != "":
		return fmt.Errorf("the API server answers, and does not say whether it is of cluster %s; remove --kubeconfig, or correct it: %w", f.gone, err)
	}
	return ctx.Err()
}

func (r *clusterGone) run(ctx context.Context) error {
	all, err := r.list(ctx)
	if err != nil {
		return exit{exitUnknown, err}
	}
	r.print(all)
	if len(all) == 0 {
		return nil
	}
	if err := r.atRest(all, time.Now()); err != nil {
		return exit{exitUnknown, err}
	}
	if r.flags.yes == "" {
		fmt.Fprintf(r.out, "All of it will be deleted, and cannot be restored. Type the ID of the cluster to delete it: ")
		line, _ := bufio.NewReader(r.in).ReadString('\n')
		if strings.TrimSpace(line) != r.flags.gone {
			fmt.Fprintln(r.out, "\nThat is not the ID. Nothing was done.")
			return exit{code: exitLeftOver}
		}
	}
	return r.deleteAll(ctx, all)
}

// list returns what has the cluster's mark in the projects of the credentials and of the
// configuration, in the order of deletion. A mark is text: in another project somebody else has
// written it.
func (r *clusterGone) list(ctx context.Context) (all []remnant, err error) {
	projects, seen := r.projects, map[string]bool{}
	for _, c := range r.clouds {
		own, err := c.OwnProject(ctx)
		if err != nil {
			return nil, err
		}
		if own == "" {
			return nil, errors.New("the cloud does not tell the project of the credential, so whose a resource is cannot be determined")
		}
		projects = append(projects, own)
	}
	for _, c := range r.clouds {
		some, err := c.Marked(ctx)
		if err != nil {
			return nil, err
		}
		for _, one := range some {
			ours := slices.ContainsFunc(projects, func(id string) bool { return id != "" && sdn.SameID(id, one.ProjectID) })
			if ours && !seen[one.ID] {
				seen[one.ID] = true
				all = append(all, remnant{one, c})
			}
		}
	}
	slices.SortFunc(all, func(a, b remnant) int { return cmp.Or(stepOf(a.Kind)-stepOf(b.Kind), strings.Compare(a.ID, b.ID)) })
	return all, nil
}

func stepOf(kind sdn.RemnantKind) int {
	for i := range remnantSteps {
		if remnantSteps[i].kind == kind {
			return i
		}
	}
	return -1
}

func (r *clusterGone) print(all []remnant) {
	t := tabwriter.NewWriter(r.out, 0, 8, 3, ' ', 0)
	for i, one := range all {
		if i == 0 {
			fmt.Fprintln(t, "KIND\tID\tNAME\tOWNER\tPROJECT\tCHANGED")
		}
		changed := "-"
		if !one.Changed.IsZero() {
			changed = one.Changed.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", one.Kind, one.ID, dash(one.Name), dash(one.Owner.String()), one.ProjectID, changed)
	}
	_ = t.Flush()
	fmt.Fprintf(r.out, "\n%d resources have the mark of cluster %s.\n", len(all), r.flags.gone)
}

// atRest returns an error if a resource was created or changed a short while ago.
func (r *clusterGone) atRest(all []remnant, now time.Time) error {
	last := slices.MaxFunc(all, func(a, b remnant) int { return a.Changed.Compare(b.Changed) })
	if age := now.Sub(last.Changed); age < r.flags.grace {
		return fmt.Errorf("%s %s was changed at %s, less than %s ago: a controller of the cluster may still run. Stop it, wait, and run this again",
			last.Kind, last.ID, last.Changed.UTC().Format(time.RFC3339), r.flags.grace)
	}
	return nil
}

// deleteAll deletes the resources kind by kind, and prints what is left.
func (r *clusterGone) deleteAll(ctx context.Context, all []remnant) error {
	left, count := 0, 0
	for _, step := range remnantSteps {
		var some []remnant
		for _, one := range all {
			if one.Kind == step.kind {
				some = append(some, one)
			}
		}
		reasons := r.deleteSome(ctx, some, step.delete)
		for i, err := range reasons {
			if err != nil {
				left++
				fmt.Fprintf(r.out, "left: %s %s: %v\n", some[i].Kind, some[i].ID, err)
				continue
			}
			count++
			fmt.Fprintf(r.out, "deleted: %s %s\n", some[i].Kind, some[i].ID)
		}
	}
	fmt.Fprintf(r.out, "\nDeleted: %d, left: %d.\n", count, left)
	if left > 0 {
		return exit{code: exitLeftOver}
	}
	return nil
}

// deleteSome deletes the resources of a kind, and tries again what the cloud is at work on, or what
// something still uses, until none has gone for the time of r.patience. It returns why they are left.
func (r *clusterGone) deleteSome(ctx context.Context, some []remnant, del func(context.Context, remnant) error) []error {
	errs := make([]error, len(some))
	for i := range errs {
		errs[i] = errNotTried
	}
	retries := func(err error) bool {
		var pending *sdn.PendingError
		return errors.Is(err, errNotTried) || errors.As(err, &pending) || errors.Is(err, sdn.ErrConflict) || errors.Is(err, sdn.ErrUnavailable)
	}
	for before, progress := len(some)+1, time.Now(); slices.ContainsFunc(errs, retries) && time.Since(progress) < r.patience; {
		var at errgroup.Group
		at.SetLimit(8)
		for i := range some {
			if retries(errs[i]) {
				at.Go(func() error { errs[i] = del(ctx, some[i]); return nil })
			}
		}
		_ = at.Wait()
		left := 0
		for _, err := range errs {
			if retries(err) {
				left++
			}
		}
		if left < before {
			before, progress = left, time.Now()
		}
		if left > 0 && !kube.Pause(ctx, r.pause) {
			break
		}
	}
	return errs
}

var errNotTried = errors.New("there was no try")
