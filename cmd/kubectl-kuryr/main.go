// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-kuryr is Kuryr's kubectl plugin: on the PATH it is `kubectl kuryr`. It shows the
// pools of ports, fills and frees them, and shows the load balancers of Services. It talks to the
// Kubernetes API only, with the user's permissions. The controller makes all changes in the SDN.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := rootCommand(&tool{now: time.Now, pause: time.Second}).ExecuteContext(ctx); err != nil {
		if !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "error:", err)
		}
		os.Exit(1)
	}
}

// tool is what all commands share.
type tool struct {
	connection
	now   func() time.Time
	pause time.Duration // between two looks at what is waited for
}

func rootCommand(t *tool) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-kuryr",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl kuryr"},
		Short:         "See and steer Kuryr, which gives pods their ports and Services their load balancers",
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	t.connection.bind(root)
	root.AddCommand(t.poolsCommand(), t.servicesCommand())
	return root
}

func (t *tool) poolsCommand() *cobra.Command {
	pools := &cobra.Command{
		Use:     "pools",
		Aliases: []string{"pool", "kpp"},
		Short:   "The pools of warm ports",
		Long: "The pools of ports that are kept ready for pods to come. A pool is of one node,\n" +
			"network and set of security groups; Kuryr makes it with the first pod that needs it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	pools.AddCommand(t.listCommand(), t.showCommand(), t.fillCommand(), t.freeCommand())
	return pools
}

// buildVersion is Go's record of what this was built from: the tag, or the commit after it.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
