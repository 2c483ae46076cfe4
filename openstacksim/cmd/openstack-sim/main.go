// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Command openstack-sim is an OpenStack that starts in no time and fails on
// demand: Keystone, Neutron and Octavia over HTTP, in memory, as one process.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// exitStopped is the status if a dial ended the process, so that a script can
// tell it from a failure.
const exitStopped = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := rootCommand().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "openstack-sim:", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "openstack-sim",
		Short: "An OpenStack that anyone can run, and that fails on demand",
		Long: "Keystone v3, Neutron v2.0 and Octavia v2 in one process and in memory. Clients need not\n" +
			"know: gophercloud, the openstack command and Kuryr use it unchanged. What it shall do\n" +
			"badly is dialled: latency, errors, lost replies, load balancers that hang.",
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), reportCommand(), dialsCommand())
	return root
}

// buildVersion is Go's record of what this was built from: the tag, or the commit after it.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
