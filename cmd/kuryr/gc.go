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
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.gone != "" || f.yes != "" {
				return runClusterGone(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), f)
			}
			return runGC(cmd.Context(), cmd.OutOrStdout(), f)
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

func runGC(ctx context.Context, w io.Writer, f gcFlags) error {
	to, err := connect(ctx, f.config, f.kubeconfig, loadConfig)
	if err == nil {
		err = f.check(to.config)
	}
	if err != nil {
		return exit{exitUnknown, err}
	}
	live := settings.NewLive(*to.config)
	cloud := withTenants(to.backend, func() []config.Project { return to.config.Projects }, nil)
	run := gc{to.client, controller.Inventories(to.client, controller.Options{Settings: live}.With(cloud)), w, f}
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
	client client.Client
	all    []*collector.Inventory
	out    io.Writer
	flags  gcFlags
}

func (r *gc) run(ctx context.Context) error {
	wait := func(ctx context.Context) error {
		fmt.Fprintf(r.out, "Compared once; comparing again in %s.\n", r.flags.grace)
		kube.Pause(ctx, r.flags.grace)
		return ctx.Err()
	}
	judged, unsure := collector.Audit(ctx, r.client, r.all, wait, r.flags.deletes)
	if ctx.Err() != nil {
		return exit{exitUnknown, errors.Join(ctx.Err(), unsure)}
	}
	left := r.print(judged, time.Now())
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

// print prints what was judged, and returns how much is to be deleted and was not.
func (r *gc) print(judged []collector.Judged, now time.Time) (left int) {
	count := map[string]int{}
	t := tabwriter.NewWriter(r.out, 0, 8, 3, ' ', 0)
	for i := range judged {
		j := &judged[i]
		if i == 0 {
			fmt.Fprintln(t, "ACTION\tKIND\tID\tNAME\tOWNER\tAGE\tWHY")
		}
		does, why := map[collector.Verdict]string{
			collector.Adopts: "would be adopted", collector.Deletes: "would be deleted", collector.Leaves: "left",
		}[j.Verdict], j.Why
		switch {
		case j.Deleted:
			does = "deleted"
		case j.Err != nil:
			does, why = "left", j.Err.Error()
		}
		if !j.Deleted && (j.Verdict == collector.Deletes || j.Err != nil) {
			left++
		}
		count[does]++
		age := "-"
		if !j.Created.IsZero() {
			age = duration.HumanDuration(now.Sub(j.Created))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", does, j.Kind.Name, j.ID, dash(j.Name), dash(j.Owner.String()), age, why)
	}
	_ = t.Flush()
	fmt.Fprintf(r.out, "\nLeft over: %d. Would be deleted: %d, deleted: %d, would be adopted by the controllers: %d, left: %d.\n",
		len(judged), count["would be deleted"], count["deleted"], count["would be adopted"], count["left"])
	switch {
	case count["would be deleted"] > 0:
		fmt.Fprintln(r.out, "Nothing was done: run it again with --delete to delete it.")
	case count["deleted"] > 0:
		fmt.Fprintln(r.out, "Run it again when load balancers are gone: what they use is found after them.")
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
