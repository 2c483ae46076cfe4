// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/daemon"
	"github.com/kuryr-go/kuryr/internal/nft"
	"github.com/kuryr-go/kuryr/internal/plug"
)

type daemonFlags struct {
	config, kubeconfig string
	parking, hostRoot  string
	options            daemon.Options
}

// daemonCommand is `kuryr daemon`, Kuryr's part on a node.
func daemonCommand() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Plug the pods of this node",
		Long: "Answers CNI calls that kuryr-cni hands over, plugs the ports that the controller\n" +
			"binds to this node's pods, and reports what is plugged. It runs on every node.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDaemon(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "/etc/kuryr/kuryr.yaml", "configuration file")
	flags.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&f.options.Node, "node-name", os.Getenv("NODE_NAME"), "name of this node in Kubernetes; default $NODE_NAME")
	flags.StringVar(&f.options.Socket, "socket", cni.SocketPath, "Unix socket that kuryr-cni asks on")
	flags.StringVar(&f.options.HealthAddress, "health-probe-bind-address", "127.0.0.1:8090", "address of /livez and /readyz; 0 is none")
	flags.StringVar(&f.options.MetricsAddress, "metrics-bind-address", "127.0.0.1:9655", "address of /metrics; 0 is none")
	flags.StringVar(&f.parking, "parking-netns", "/run/netns/kuryr-parking", "where the network namespace is mounted that keeps free ports (node.park)")
	flags.StringVar(&f.hostRoot, "host-root", "", "root folder of the node, which binding drivers run in; empty: the daemon's own")
	flags.StringVar(&f.options.Install.BinDir, "cni-bin-dir", "", "directory to install kuryr-cni into, as in /opt/cni/bin; empty: do not")
	flags.StringVar(&f.options.Install.ConfDir, "cni-conf-dir", "", "directory to write "+daemon.ConfFile+" into, as in /etc/cni/net.d; empty: do not")
	flags.StringVar(&f.options.Install.Version, "cni-version", daemon.ConfVersion, "version of CNI in "+daemon.ConfFile+"; 1.1.0 has the runtime ask for GC and STATUS")
	flags.StringVar(&f.options.Install.Plugin, "cni-plugin", besideMe("kuryr-cni"), "kuryr-cni executable to install")
	return cmd
}

func runDaemon(ctx context.Context, f daemonFlags) error {
	frugal()
	if f.options.Node == "" {
		return fmt.Errorf("the node's name is missing: give --node-name or NODE_NAME")
	}
	cfg, err := loadConfig(f.config)
	if err != nil {
		return err
	}
	o := f.options
	o.Settings = cfg.Node
	cluster, err := clusterConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	giveLogger(ctx)
	api, err := daemon.Connect(cluster, o.Node)
	if err != nil {
		return err
	}
	o.API, o.Services = api, api
	if !o.Settings.Park {
		f.parking = ""
	}
	set := plug.New(plug.Config{
		OVSDB: o.Settings.OVSDB, Bridge: o.Settings.Bridge, DriverDir: o.Settings.DriverDir, MTU: o.Settings.MTU,
		Parent: o.Settings.ParentInterface, Parking: f.parking, HostRoot: f.hostRoot,
	})
	defer set.Close()
	o.Drivers, o.Parking = set, set
	o.Tables = &nft.Tables{Opened: filepath.Join(o.Settings.StateDir, "loopback")}
	d, err := daemon.New(ctx, o)
	if err != nil {
		return err
	}
	d.ServeServices(settings.ServesServices(&cfg.Services)) // known before it begins, or it would take away what is there
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.Run(ctx) })
	g.Go(func() error {
		followServices(ctx, f.config, cfg, d.ServeServices)
		return nil
	})
	return g.Wait()
}

// followServices calls serve with whether the configuration has subnets for Services, now and after
// each change. All other fields are read once: a node's bridge does not change.
func followServices(ctx context.Context, path string, began *config.Config, serve func(bool)) {
	log := logr.FromContextOrDiscard(ctx)
	config.Watch(ctx, path, func(changed *config.Config, _ string, err error) {
		if err != nil {
			log.Error(err, "keeping the configuration as it was: the changed file has faults")
			return
		}
		if !reflect.DeepEqual(changed.Node, began.Node) {
			log.Info("changes under node take effect when this daemon starts again")
		}
		serve(settings.ServesServices(&changed.Services))
	})
}

// frugal keeps the daemon small on every node: it makes little garbage, and collecting it may cost
// a little more work. GOGC and GOMEMLIMIT take precedence.
func frugal() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(32 << 20)
	}
}

func besideMe(name string) string {
	me, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(me), name)
}
