// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Command kuryr is all of Kuryr that runs for long: the controller, once or a
// few times for a cluster, and the daemon, once a node.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/openstack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := rootCommand().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		os.Exit(report(os.Stderr, err))
	}
}

// report prints why a command failed, and returns the exit code of the process.
func report(w io.Writer, err error) (code int) {
	e := exit{1, err}
	errors.As(err, &e)
	if e.err != nil {
		fmt.Fprintln(w, "kuryr:", e.err)
	}
	return e.code
}

func rootCommand() *cobra.Command {
	var l logging
	root := &cobra.Command{
		Use:   "kuryr",
		Short: "Ports of an SDN for the pods of Kubernetes",
		Long: "Kuryr gives every Kubernetes pod a port of an SDN, OpenStack Neutron first,\n" +
			"and keeps all of it as Kubernetes objects.",
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := l.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			cmd.SetContext(logr.NewContext(cmd.Context(), logger))
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.IntVar(&l.level, "log-level", 1, "what is logged: 0 the state of the service, 1 also what is done, 2 also each reconcile, 3 everything")
	flags.StringVar(&l.format, "log-format", "text", "how it is logged: text or json")
	root.AddCommand(controllerCommand(), daemonCommand(), adoptCommand(), preflightCommand(), gcCommand())
	return root
}

// loggerGiven makes giveLogger's first call the only one.
var loggerGiven sync.Once

// giveLogger gives the libraries the command's logger. It is theirs for the whole
// process: klog's may not be set while anything reads it (the doc comment of
// klog.SetLogger), so only the first call does it, from a command that is about
// to start them.
func giveLogger(ctx context.Context) {
	loggerGiven.Do(func() {
		logger := logr.FromContextOrDiscard(ctx)
		ctrl.SetLogger(logger)
		klog.SetLogger(logger)
	})
}

// logging is what the flags say of it.
type logging struct {
	level  int
	format string
}

func (l logging) logger(w io.Writer) (logr.Logger, error) {
	if l.level < 0 || l.level > 10 {
		return logr.Logger{}, fmt.Errorf("--log-level is %d: write 0 to 3", l.level)
	}
	// logr's V(n) is slog's level -n, which has no name of its own.
	options := &slog.HandlerOptions{Level: slog.Level(-l.level), ReplaceAttr: nameLevels}
	switch l.format {
	case "text":
		return logr.FromSlogHandler(slog.NewTextHandler(w, options)), nil
	case "json":
		return logr.FromSlogHandler(slog.NewJSONHandler(w, options)), nil
	}
	return logr.Logger{}, fmt.Errorf("--log-format is %q: write text or json", l.format)
}

// nameLevels writes the levels below INFO as V1, V2 and so on, as --log-level
// counts them.
func nameLevels(groups []string, a slog.Attr) slog.Attr {
	if level, ok := a.Value.Any().(slog.Level); ok && len(groups) == 0 && a.Key == slog.LevelKey && level < slog.LevelInfo {
		a.Value = slog.StringValue(fmt.Sprintf("V%d", -level))
	}
	return a
}

// loadConfig is config.Load of what --config names.
func loadConfig(path string) (*config.Config, error) {
	c, err := config.Load(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return c, err
}

// connection is what a command that runs once needs: the configuration, the cluster and the cloud.
type connection struct {
	config  *config.Config
	cluster *rest.Config
	client  client.Client
	backend *openstack.Backend
}

// connect loads the configuration, and prepares to reach cluster and cloud.
func connect(ctx context.Context, file, kubeconfig string, load func(string) (*config.Config, error)) (to connection, err error) {
	if to.config, err = load(file); err != nil {
		return to, err
	}
	if to.cluster, err = clusterConfig(kubeconfig); err != nil {
		return to, err
	}
	giveLogger(ctx)
	to.cluster.QPS = -1
	scheme, err := controller.Scheme()
	if err != nil {
		return to, err
	}
	if to.client, err = client.New(to.cluster, client.Options{Scheme: scheme}); err != nil {
		return to, fmt.Errorf("reaching the Kubernetes API: %w", err)
	}
	to.backend, err = newBackend(ctx, to.client, to.config, nil)
	return to, err
}

// clusterConfig says how to reach the Kubernetes API: by a kubeconfig file, or
// if path is empty by the service account of the pod.
func clusterConfig(path string) (*rest.Config, error) {
	if path == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("reaching the Kubernetes API: %w (outside of a pod, give --kubeconfig)", err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig (or KUBECONFIG) %s: reaching the Kubernetes API: %w", path, err)
	}
	return c, nil
}

// buildVersion is Go's record of what this was built from: the tag, or the commit after it.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// trouble is what an Event on the controller's own pod is about.
type trouble struct{ reason, action, what string }

var (
	configurationRefused = trouble{"ConfigurationRefused", "ReadConfiguration", "The changed configuration has faults, the one before stays in use: "}
	servicesNotServed    = trouble{"ServicesNotServed", "ServeServices", ""}
)

// tellPod writes an Event on the controller's own pod, for example why its changed configuration is
// refused. Outside of a pod there is only the log. It writes the Event directly: a recorder would
// treat the next fault as the same Event and keep the text of the first.
func tellPod(ctx context.Context, c client.Client, about trouble, fault error) {
	key := client.ObjectKey{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")}
	if key.Namespace == "" || key.Name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var pod corev1.Pod // kubectl describe looks for Events by UID
	err := c.Get(ctx, key, &pod)
	if err == nil {
		name := fmt.Sprintf("%s-%x", key.Name, time.Now().UnixNano())
		err = kube.Announce(ctx, c, name, kube.Reference(&pod, "Pod"), about.reason, about.action, outcome.Cut(about.what+fault.Error()))
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "writing an Event about a problem", "reason", about.reason)
	}
}
