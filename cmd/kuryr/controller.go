// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn/tenants"
)

type controllerFlags struct {
	config, kubeconfig            string
	metricsAddress, healthAddress string
	leaderAddress                 string
	leaderElect                   bool
	leaderNamespace               string
}

// controllerCommand is `kuryr controller`, which plans ports and load balancers and
// has the SDN make them.
func controllerCommand() *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Give the cluster's pods their ports, and Services their load balancers",
		Long:  "Plans which port each pod gets and which load balancer each Service, has Neutron and\nOctavia make them, and keeps all of it as Kubernetes objects. Several replicas share\nthe work, or stand by: see controllers.active in the configuration.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runController(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "/etc/kuryr/kuryr.yaml", "configuration file; read again when it changes")
	flags.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&f.metricsAddress, "metrics-bind-address", "127.0.0.1:9654", "address of /metrics; 0 is none")
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", "127.0.0.1:8082", "address of /livez and /readyz; 0 is none")
	flags.StringVar(&f.leaderAddress, "leader-api-bind-address", "127.0.0.1:"+cmp.Or(os.Getenv("KURYR_CONTROLLER_HA_PORT"), "16401"),
		"address that answers GET / with the leader's name; 0 is none")
	flags.BoolVar(&f.leaderElect, "leader-elect", true, "let several replicas share the work, by Leases; false: this is the only one")
	flags.StringVar(&f.leaderNamespace, "leader-elect-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "kuryr-system"), "namespace of the Leases; default $POD_NAMESPACE")
	return cmd
}

func runController(ctx context.Context, f controllerFlags) error {
	cfg, err := loadConfig(f.config)
	if err != nil {
		return err
	}
	mgr, replica, err := newManager(ctx, f, cfg.Controllers.Active)
	if err != nil {
		return err
	}
	owned, fence := owner(replica)
	backend, err := newBackend(ctx, mgr.GetAPIReader(), cfg, fence)
	if err != nil {
		return err
	}
	live := settings.NewLive(*cfg)
	projects := controller.NewProjects(mgr.GetClient())
	cloud := withTenants(backend, func() []config.Project { return live.Load().Projects }, projects.Named)
	if err := controller.Setup(ctx, mgr, controller.Options{
		Settings: live, Projects: projects, Shards: owned, Namespace: f.leaderNamespace,
		Preflight: liveChecks{preflight.Sources{Cloud: cloud, Kubernetes: mgr.GetAPIReader()}, live},
		Tell:      func(ctx context.Context, fault error) { tellPod(ctx, mgr.GetClient(), servicesNotServed, fault) },
	}.With(cloud)); err != nil {
		return err
	}
	following := kube.Everywhere(func(ctx context.Context) error { return follow(ctx, f.config, live, mgr.GetClient()) })
	if err := mgr.Add(following); err != nil {
		return fmt.Errorf("following the configuration: %w", err)
	}
	if replica != nil {
		if err := takePart(mgr, replica, f, live, backend); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// owner returns what the parts of the controller ask before they work on something, and what requests ask.
// Without a replica this is the only process.
func owner(replica *shards.Replica) (kube.Shards, openstack.Fence) {
	if replica == nil {
		return kube.Alone{}, nil
	}
	return replica, replica
}

// takePart has this process be one of several.
func takePart(mgr ctrl.Manager, replica *shards.Replica, f controllerFlags, live *settings.Live, backend *openstack.Backend) error {
	share := func() { backend.SetShare(replica.Share()) }
	share()
	replica.Follow(func(context.Context, kube.Keys, bool) { share() }, func(kube.Keys) { share() })
	return errors.Join(
		replica.Setup(mgr),
		mgr.Add(kube.Everywhere(live.Follow(func(ctx context.Context) error {
			replica.SetActive(ctx, live.Load().Controllers.Active)
			return nil
		}))),
		mgr.Add(shards.LeaderServer(f.leaderAddress, replica)),
	)
}

// follow takes up what changes in the configuration file while ctx lasts.
func follow(ctx context.Context, path string, live *settings.Live, c client.Client) error {
	log := ctrl.LoggerFrom(ctx)
	config.Watch(ctrl.LoggerInto(ctx, log), path, func(changed *config.Config, hash string, err error) {
		if err != nil {
			live.Refuse()
			tellPod(ctx, c, configurationRefused, err)
			log.Error(err, "keeping the configuration as it was: the changed file has faults")
			return
		}
		if !reflect.DeepEqual(changed, live.Load()) {
			log.Info("taking up the changed configuration", "hash", hash)
			live.Set(*changed)
		}
		live.Accept(hash)
	})
	return nil
}

// newManager returns the manager of the process, and what makes it one of several; nil if it is the only one.
func newManager(ctx context.Context, f controllerFlags, active int) (ctrl.Manager, *shards.Replica, error) {
	cluster, err := clusterConfig(f.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	giveLogger(ctx)
	// The client's own limit would be all that a hundred pods at once wait for.
	// The controller bounds what it writes at once, and the API server has its
	// own fairness.
	cluster.QPS = -1
	scheme, err := controller.Scheme()
	if err != nil {
		return nil, nil, err
	}
	var replica *shards.Replica
	if f.leaderElect {
		if replica, err = newReplica(ctx, cluster, f.leaderNamespace, "", active); err != nil {
			return nil, nil, err
		}
		cluster.Wrap(replica.Fence)
	}
	options := ctrl.Options{
		Scheme:                 scheme,
		Cache:                  kube.CacheOptions(),
		Metrics:                metricsserver.Options{BindAddress: f.metricsAddress},
		HealthProbeBindAddress: f.healthAddress,
		LivenessEndpointName:   "/livez",
		ReadinessEndpointName:  "/readyz",
		// Running work ends before the process does.
		GracefulShutdownTimeout: new(shard.Patience + time.Second),
	}
	mgr, err := ctrl.NewManager(cluster, options)
	if err != nil {
		return nil, nil, fmt.Errorf("reaching the Kubernetes API: %w", err)
	}
	return mgr, replica, mgr.AddHealthzCheck("ping", healthz.Ping)
}

// newReplica has this process be one of several, by its pod's name: a container that starts again in its pod follows one
// that has ended. A process that is no pod goes by a name of its own, which begins with prefix.
func newReplica(ctx context.Context, cluster *rest.Config, namespace, prefix string, active int) (*shards.Replica, error) {
	identity := os.Getenv("POD_NAME")
	if identity == "" || prefix != "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("naming this process: %w", err)
		}
		identity = prefix + host + "_" + string(uuid.NewUUID())[:8]
	}
	return shards.New(ctx, shards.Options{Cluster: cluster, Namespace: namespace, Identity: identity, Active: active})
}

// newBackend is Neutron, for this cluster. It asks nothing of the cloud yet.
func newBackend(ctx context.Context, reader client.Reader, c *config.Config, fence openstack.Fence) (*openstack.Backend, error) {
	id, err := clusterID(ctx, reader, c.ClusterID)
	if err != nil {
		return nil, err
	}
	return openstack.New(ctx, openstack.Config{
		ClusterID:         id,
		Cloud:             c.Neutron.Cloud,
		RequestTimeout:    c.Neutron.RequestTimeout.Duration,
		RequestsPerSecond: c.Neutron.RequestsPerSec,
		MaxConcurrent:     c.Neutron.MaxConcurrent,
		LoadBalancerAPI:   c.Neutron.LoadBalancerAPI,
		Fence:             fence,
		Metrics:           metrics.Registry,
	})
}

// withTenants has the projects with a credential of their own use that one. named may be nil.
func withTenants(backend *openstack.Backend, projects func() []config.Project, named func(context.Context, tenants.Kind, string) (string, bool)) *tenants.Cloud {
	return tenants.New(tenants.Options{
		Main: backend, Named: named,
		Tenants: func() []tenants.Tenant { return controller.Tenants(projects()) },
		Open:    func(t tenants.Tenant) tenants.Session { return backend.As(t.Cloud, t.ProjectID) },
	})
}

// clusterID is what marks the cluster's own in the cloud: as configured, or the
// UID of kube-system, which lives as long as the cluster.
func clusterID(ctx context.Context, reader client.Reader, configured string) (string, error) {
	if configured != "" {
		return configured, nil
	}
	var ns corev1.Namespace
	if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err != nil {
		return "", fmt.Errorf("reading the UID of namespace %s, which marks this cluster (or set clusterID): %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}
