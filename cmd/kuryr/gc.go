// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/collector"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

type gcFlags struct {
	config, kubeconfig string
	deletes            bool
	grace              time.Duration
	gone, yes          string
}

// Exit codes of kuryr gc, besides 0.
const (
	exitLeftOver = 1 // something is left over that was not deleted
	exitUnknown  = 2 // nothing of the kind, and not all could be compared; or nothing could
)

// gcCommand is `kuryr gc`, which shows or deletes what is left over in the cloud.
func gcCommand() *cobra.Command {
	var f gcFlags
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Show or delete what Kuryr has left over in the cloud",
		Long: "Compares the cloud's resources that have this cluster's mark with the cluster's objects,\n" +
			"twice, a grace period apart. Prints what the controllers would collect: what no object\n" +
			"names in both comparisons. It deletes nothing without --delete. Controllers may run\n" +
			"meanwhile; what they can adopt is left to them.\n\n" +
			"With --cluster-gone it deletes all that has the mark of a cluster that does not exist any\n" +
			"more. It prints what that is, and asks for the cluster's ID.\n\n" +
			"Run it with the configuration and the credential of the controller. Exit codes:\n" +
			"0: nothing is left over, or all of it was deleted. 1: something is left over.\n" +
			"2: neither, and not all could be compared; or nothing could.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runGC(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "/etc/kuryr/kuryr.yaml", "configuration file")
	flags.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; empty: the service account of the pod")
	flags.BoolVar(&f.deletes, "delete", false, "delete it, do not only print it")
	flags.DurationVar(&f.grace, "grace", 0, "time between the two comparisons; 0: orphans.grace of the configuration")
	flags.StringVar(&f.gone, "cluster-gone", "", "delete all of the cluster with this ID, which does not exist any more")
	flags.StringVar(&f.yes, "yes", "", "with --cluster-gone: the cluster's ID again, in place of typing it")
	return cmd
}

func runGC(ctx context.Context, in io.Reader, w io.Writer, f gcFlags) error {
	connects := connect
	if f.gone != "" || f.yes != "" {
		connects = f.connectGone
	}
	to, err := connects(ctx, f.config, f.kubeconfig, loadConfig)
	if err == nil {
		err = f.check(to.config)
	}
	if err != nil {
		return exit{exitUnknown, err}
	}
	cloud := withTenants(to.backend, func() []config.Project { return to.config.Projects }, nil)
	all := controller.Inventories(to.client, controller.Options{Settings: settings.NewLive(*to.config)}.With(cloud))
	run := gc{client: to.client, all: all, in: in, out: w, flags: f, patience: 2 * time.Minute, pause: 5 * time.Second}
	return run.run(ctx)
}

// check checks --grace, and has the configuration take it.
func (f *gcFlags) check(c *config.Config) error {
	if f.grace < 0 || f.grace > 0 && f.grace < time.Second {
		return fmt.Errorf("--grace is %s: write 1s or more", f.grace)
	}
	if f.grace == 0 {
		f.grace = c.Orphans.Grace.Duration
	}
	c.Orphans.Grace = metav1.Duration{Duration: f.grace}
	return nil
}

// gc is one run of the command.
type gc struct {
	client   client.Client
	all      []*collector.Inventory
	in       io.Reader
	out      io.Writer
	flags    gcFlags
	patience time.Duration // how long deletions may make no progress
	pause    time.Duration // between two tries
}

func (r *gc) run(ctx context.Context) error {
	wait := func(ctx context.Context) error {
		fmt.Fprintf(r.out, "Compared once; comparing again in %s.\n", r.flags.grace)
		kube.Pause(ctx, r.flags.grace)
		return ctx.Err()
	}
	judged, fresh, unsure := collector.Audit(ctx, r.client, r.all, wait)
	if ctx.Err() != nil {
		return exit{exitUnknown, errors.Join(ctx.Err(), unsure)}
	}
	deletes := r.flags.deletes
	if r.flags.gone != "" {
		var err error
		if deletes, err = r.confirmed(judged, fresh, unsure); err != nil {
			return exit{exitUnknown, err}
		}
	}
	if deletes {
		r.delete(ctx, judged)
	}
	left := r.print(judged)
	if unsure != nil {
		fmt.Fprintf(r.out, "Not all could be compared: %v\n", unsure)
	}
	switch {
	case left > 0:
		return exit{code: exitLeftOver}
	case unsure != nil:
		return exit{code: exitUnknown}
	}
	return nil
}

// delete deletes what is to be deleted. It tries again what something still uses, as a load balancer
// that Octavia is deleting, until nothing has gone for the time of r.patience.
func (r *gc) delete(ctx context.Context, judged []collector.Judged) {
	before, progress := len(judged)+1, time.Now()
	for time.Since(progress) <= r.patience {
		collector.Delete(ctx, r.client, judged)
		left := 0
		for i := range judged {
			if judged[i].Verdict == collector.Deletes && !judged[i].Deleted {
				left++
			}
		}
		if left < before {
			before, progress = left, time.Now()
		}
		if left == 0 || !kube.Pause(ctx, r.pause) {
			return
		}
	}
}

// print prints what was judged, and returns how much is to be deleted and was not.
func (r *gc) print(judged []collector.Judged) (left int) {
	count := map[string]int{}
	t := tabwriter.NewWriter(r.out, 0, 8, 3, ' ', 0)
	for i := range judged {
		j := &judged[i]
		if i == 0 {
			fmt.Fprintln(t, "ACTION\tKIND\tID\tNAME\tOWNER\tAGE\tWHY")
		}
		does, why := "left", j.Why
		switch {
		case j.Deleted:
			does = "deleted"
		case j.Err != nil:
			why = j.Err.Error()
		case j.Verdict == collector.Adopts:
			does = "would be adopted"
		case j.Verdict == collector.Deletes:
			does = "would be deleted"
		}
		if !j.Deleted && (j.Verdict == collector.Deletes || j.Err != nil) {
			left++
		}
		count[does]++
		age := "-"
		if !j.Created.IsZero() {
			age = duration.HumanDuration(time.Since(j.Created))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", does, j.Kind.Name, j.ID, dash(j.Name), dash(j.Owner.String()), age, why)
	}
	_ = t.Flush()
	fmt.Fprintf(r.out, "\nLeft over: %d. Would be deleted: %d, deleted: %d, would be adopted by the controllers: %d, left: %d.\n",
		len(judged), count["would be deleted"], count["deleted"], count["would be adopted"], count["left"])
	if count["would be deleted"] > 0 && r.flags.gone == "" {
		fmt.Fprintln(r.out, "Nothing was done: run it again with --delete to delete it.")
	}
	return left
}

// dash returns a text, or a dash for none; the owner of nothing is "/".
func dash(s string) string {
	if s == "" || s == "/" {
		return "-"
	}
	return s
}
