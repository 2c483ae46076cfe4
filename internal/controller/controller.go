// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller wires the controller process: Setup creates its parts and connects them. Each
// part is a folder below this one, with a kind or a clock of its own. The parts know each other
// only through interfaces of one to three methods. One part is an exception: pools uses supply and
// sites. All parts share kube, outcome and settings.
//
// What the process remembers beyond the objects is in memory and may be lost at any time. A restart
// may lose ports that were created but have no object yet. The collector finds those and gives them
// to their pool. Everything else is observed again.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/collector"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/membergroups"
	"github.com/kuryr-go/kuryr/internal/controller/networks"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/pools"
	"github.com/kuryr-go/kuryr/internal/controller/ports"
	"github.com/kuryr-go/kuryr/internal/controller/preflight"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/sites"
	"github.com/kuryr-go/kuryr/internal/controller/supply"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Options is what Setup needs beyond the manager.
type Options struct {
	Ports    sdn.Ports
	Settings *settings.Live
	Capacity sdn.Capacity // nil: the SDN's capacity cannot be asked
	Details  sdn.Details  // nil: the SDN is not asked for details of subnets
	Hosts    sdn.Hosts    // nil: no node can be a virtual machine
	// Visibility reports whether a resource that the SDN does not show is gone. It must be given.
	Visibility sdn.Visibility
	// LoadBalancers creates the load balancers of Services; nil: Services get none.
	LoadBalancers sdn.LoadBalancers
	FloatingIPs   sdn.FloatingIPs // nil: Services get no floating IPs
	Subnets       sdn.Subnets     // nil: address ranges of subnets are unknown
	// SecurityGroups creates the groups that enforce source ranges; nil: no group does.
	SecurityGroups sdn.SecurityGroups
	// Networks makes the networks of namespaces; nil: namespaces get none of their own.
	Networks    networks.Cloud
	SubnetPools sdn.SubnetPools  // of the networks of namespaces; set together with Networks and Subnets
	Preflight   preflight.Checks // nil: none are made
	// Projects is told which kinds are served. Default: NewProjects of the manager's cache.
	Projects *Projects
	// Tell reports to the operator what prevents the controller from serving Services; nil: the log
	// does.
	Tell func(ctx context.Context, fault error)

	// The following fields have a default.

	Shards kube.Shards // the keys that this process owns; all
	// Namespace is the namespace of the controller. There Services hold the cluster IPs of deleted
	// Services. Default: kuryr-system.
	Namespace string

	Backoff  outcome.Backoff
	PoolIdle time.Duration // after that a pool without ports and pods is deleted; 5m
	// StatusGap is the time between two writes of a pool's counts, and until a bound port's status
	// is written; 1s.
	StatusGap time.Duration
	Look      time.Duration // between two checks of the pods' subnets; 10m
	// Mend is the pause after the first try to repair a load balancer in ERROR. It doubles with
	// each try; 30s.
	Mend  time.Duration
	Stuck time.Duration // after that a busy load balancer is reported; 90s
	// SlowDeletion is how long the deletion of a namespace's network may take before it is reported;
	// 1m.
	SlowDeletion time.Duration
	// Late is how long after neutron.requestTimeout the cloud is compared again with what a crashed
	// process was changing; 30s.
	Late  time.Duration
	Clock clock.PassiveClock // of the plans of Services; the real one
}

// Cloud is a backend that has all roles.
type Cloud interface {
	sdn.Ports
	sdn.Visibility
	sdn.Capacity
	sdn.Details
	sdn.Hosts
	sdn.LoadBalancers
	sdn.FloatingIPs
	sdn.Subnets
	sdn.SecurityGroups
	sdn.Networks
	sdn.Routers
	sdn.SubnetPools
}

// With returns o with c in all roles.
func (o Options) With(c Cloud) Options {
	o.Ports, o.Visibility, o.Capacity, o.Details, o.Hosts = c, c, c, c, c
	o.LoadBalancers, o.FloatingIPs, o.Subnets, o.SecurityGroups = c, c, c, c
	o.Networks, o.SubnetPools = c, c
	return o
}

func (o *Options) defaults(mgr ctrl.Manager) {
	set(&o.Backoff.Min, time.Second)
	set(&o.Backoff.Max, 10*time.Second) // the backend's own limit protects an overloaded SDN
	set(&o.Backoff.Quota, 30*time.Second)
	set(&o.Backoff.Rejected, time.Minute)
	set(&o.PoolIdle, 5*time.Minute)
	set(&o.StatusGap, time.Second)
	set(&o.Look, 10*time.Minute)
	set(&o.Mend, 30*time.Second)
	set(&o.Stuck, 90*time.Second)
	set(&o.SlowDeletion, time.Minute)
	set(&o.Late, 30*time.Second)
	set(&o.Namespace, "kuryr-system")
	if o.Shards == nil {
		o.Shards = kube.Alone{}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Projects == nil {
		o.Projects = NewProjects(mgr.GetClient())
	}
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Scheme returns the types that the controller's manager must know.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	if err := v1.AddToScheme(s); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	return s, nil
}

// Setup adds all reconcilers to mgr. mgr must be created with Scheme and CacheOptions, and must not
// have started. What Services need is added later, when they are to be served for the first time.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	o.defaults(mgr)
	if err := kube.AddIndexes(ctx, mgr); err != nil {
		return err
	}
	held := mgr // what is added to it waits for the checks of a first start
	if o.Preflight != nil {
		checks := preflight.New(mgr, preflight.Options{Checks: o.Preflight, Settings: o.Settings, Shards: o.Shards})
		if err := checks.Setup(mgr); err != nil {
			return fmt.Errorf("setting up the preflight checks: %w", err)
		}
		held = checks.Hold(mgr)
	}
	o.Shards.Cached(&v1.KuryrPortList{})
	o = o.marked(mgr.GetEventRecorder("kuryr-controller"))

	namespaceNetworks := kube.NewNetworks(mgr)
	poolQueue, checkPorts := &kube.Queue[pool.Ref]{}, kube.NewSignal()
	portSupply := supply.New(supply.Options{
		Shards: o.Shards, Ports: o.Ports, Visibility: o.Visibility, Capacity: o.Capacity, Settings: o.Settings, Subnets: sites.Subnets{Settings: o.Settings, Networks: namespaceNetworks},
		Backoff: o.Backoff, Queue: poolQueue, Live: mgr.GetAPIReader(), CheckPorts: checkPorts,
	})
	grants := membergroups.New(mgr.GetClient(), o.Settings, poolQueue)
	planner := pools.New(mgr, pools.Options{
		Shards: o.Shards, Hosts: o.Hosts, Details: o.Details, Look: o.Look, Settings: o.Settings, Networks: namespaceNetworks, Supply: portSupply, Groups: grants, Queue: poolQueue, CheckPorts: checkPorts,
		Backoff: o.Backoff, PoolIdle: o.PoolIdle, StatusGap: o.StatusGap,
	})
	applier := ports.New(mgr, ports.Options{
		Shards: o.Shards, Ports: o.Ports, Visibility: o.Visibility, Settings: o.Settings, Room: portSupply, Pods: planner, CheckPorts: checkPorts,
		Backoff: o.Backoff, StatusGap: o.StatusGap,
	})
	orphans := collector.PortOptions{
		Cloud: o.Ports, Visibility: o.Visibility, Settings: o.Settings, Shards: o.Shards, Supply: portSupply, Applier: applier, Queue: poolQueue, Look: checkPorts,
	}
	err := errors.Join(
		planner.Setup(held),
		applier.Setup(held),
		held.Add(kube.Runnable(portSupply.Run)),
		collector.AddPorts(held, orphans),
		setupServices(held, o, grants, namespaceNetworks),
		setupNetworks(held, o, namespaceNetworks),
		addPolicyNotices(held, o.Shards, o.Backoff),
	)
	if err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	return kube.AddReady(mgr)
}
