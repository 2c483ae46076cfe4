// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller wires the controller process: Setup makes its parts and joins them.
// Each part is a folder below this one with a kind or a clock of its own; they know each
// other only by needs of one to three methods, but for pools, which uses
// supply, and balancers, which uses polling. kube,
// outcome and settings are what they share.
//
// What the process remembers beyond the objects is in memory and may be lost at
// any time: ports that arrived and are no objects yet are then found by the
// collector and given to their pool, everything else is seen again.
package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/balancers"
	"github.com/kuryr-go/kuryr/internal/controller/collector"
	"github.com/kuryr-go/kuryr/internal/controller/counted"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/membergroups"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/pools"
	"github.com/kuryr-go/kuryr/internal/controller/ports"
	"github.com/kuryr-go/kuryr/internal/controller/services"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/supply"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// All that the controller does with the API server, and nothing else, but for asking
// what it may do, which everybody may:
//
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=openstack.org,resources=kuryrports,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=openstack.org,resources=kuryrports/status,verbs=patch
// +kubebuilder:rbac:groups=openstack.org,resources=kuryrportpools,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=openstack.org,resources=kuryrportpools/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=kuryr-system,resources=leases,verbs=get;create;update

// Options is what Setup needs beyond the manager.
type Options struct {
	Ports    sdn.Ports
	Settings *settings.Live
	Capacity sdn.Capacity // nil: it cannot be asked
	Details  sdn.Details  // nil: what subnets are like is not asked
	Hosts    sdn.Hosts    // nil: no node can be a virtual machine
	// Visibility tells whether what is not shown is gone; nil: it is.
	Visibility sdn.Visibility
	// LoadBalancers makes those of Services; nil: Services are left alone.
	LoadBalancers sdn.LoadBalancers
	FloatingIPs   sdn.FloatingIPs // nil: Services get none
	Subnets       sdn.Subnets     // nil: what a subnet holds is not known
	// SecurityGroups makes those that keep source ranges; nil: none does.
	SecurityGroups sdn.SecurityGroups
	// Tell says to who runs the controller what keeps it from serving Services; nil:
	// the log does.
	Tell func(ctx context.Context, fault error)

	// What follows has a default.

	Backoff   outcome.Backoff
	PoolIdle  time.Duration    // a pool without ports and pods goes after it; 5m
	StatusGap time.Duration    // between two writes of a pool's counts, and until a bound port's status is written; 1s
	Look      time.Duration    // between two looks at what the pods' subnets are like; 10m
	Mend      time.Duration    // after the first try to get a load balancer out of ERROR; doubled with each; 30s
	Now       func() time.Time // time.Now
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
}

// With returns o with c in all roles.
func (o Options) With(c Cloud) Options {
	o.Ports, o.Visibility, o.Capacity, o.Details, o.Hosts = c, c, c, c, c
	o.LoadBalancers, o.FloatingIPs, o.Subnets, o.SecurityGroups = c, c, c, c
	return o
}

func (o *Options) defaults() {
	set(&o.Backoff.Min, time.Second)
	set(&o.Backoff.Max, 10*time.Second) // the backend's own limit keeps a sick SDN from more
	set(&o.Backoff.Quota, 30*time.Second)
	set(&o.Backoff.Rejected, time.Minute)
	set(&o.PoolIdle, 5*time.Minute)
	set(&o.StatusGap, time.Second)
	set(&o.Look, 10*time.Minute)
	set(&o.Mend, 30*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Scheme returns the types that the controller's manager has to know.
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

// Setup adds all reconcilers to mgr, which is to be made with Scheme and
// CacheOptions and is not started yet. What Services need comes later, when they are
// first to be served.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	o.defaults()
	if err := kube.AddIndexes(ctx, mgr); err != nil {
		return err
	}
	live := mgr.GetAPIReader()
	poolQueue, look := &kube.Queue[pool.Ref]{}, kube.NewSignal()
	sees := func(context.Context, string, string) error { return nil }
	if o.Visibility != nil {
		sees = o.Visibility.Sees
	}
	noObject := func(ctx context.Context, name string) error { return kube.NoKuryrPort(ctx, live, name) }
	supply := supply.New(supply.Options{
		Ports: o.Ports, Capacity: o.Capacity, Settings: o.Settings, Backoff: o.Backoff, Now: o.Now,
		Requeue: poolQueue.Add, Doubtful: look.Send, NoObject: noObject,
	})
	grants := membergroups.New(membergroups.Options{Client: mgr.GetClient(), Settings: o.Settings, Wake: poolQueue.Add})
	pools := pools.New(mgr, pools.Options{
		Hosts: o.Hosts, Details: o.Details, Look: o.Look, Settings: o.Settings, Supply: supply, Groups: grants, Queue: poolQueue, Followed: look.Send,
		Backoff: o.Backoff, PoolIdle: o.PoolIdle, StatusGap: o.StatusGap, Now: o.Now,
	})
	ports := ports.New(mgr, ports.Options{
		Ports: o.Ports, Sees: sees, Settings: o.Settings, Room: supply, Pods: pools, Doubtful: look.Send,
		Backoff: o.Backoff, StatusGap: o.StatusGap, Now: o.Now,
	})
	orphans := collector.PortOptions{
		Cloud: o.Ports, Sees: sees, Settings: o.Settings, Supply: supply, Written: pools.Writing, Lost: ports.Lost,
		Requeue: poolQueue.Add, Look: look, NoObject: noObject, Now: o.Now,
	}
	for _, add := range []func(ctrl.Manager) error{
		pools.Setup, ports.Setup, kube.Runnable(supply.Run), func(mgr ctrl.Manager) error { return collector.AddPorts(mgr, orphans) },
	} {
		if err := add(mgr); err != nil {
			return fmt.Errorf("setting up the controller: %w", err)
		}
	}
	if err := setupServices(mgr, o, grants); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	if err := addPolicyNotices(mgr, o.Backoff); err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	return kube.AddReady(mgr)
}

// setupServices adds what serves Services once they are to be, and what keeps security
// groups from being left when they are not any more.
func setupServices(mgr ctrl.Manager, o Options, grants *membergroups.Groups) error {
	cloud := balancers.Cloud{
		LoadBalancers: counted.LoadBalancers(o.LoadBalancers), FloatingIPs: counted.FloatingIPs(o.FloatingIPs), SecurityGroups: counted.SecurityGroups(o.SecurityGroups),
	}
	making := &kube.Owners{}
	later := &serviceSwitch{Options: o, mgr: mgr, live: mgr.GetAPIReader()}
	suspect := func(ctrl.Request) {} // nobody looks
	later.reconcilers = append(later.reconcilers, grants)
	if o.LoadBalancers != nil {
		applier := balancers.New(mgr, balancers.Options{
			Cloud: cloud, Subnets: o.Subnets, Members: grants, Making: making,
			Settings: o.Settings, Backoff: o.Backoff, Mend: o.Mend, Now: o.Now,
		})
		suspect = func(req ctrl.Request) { applier.Suspect(req, false) }
		later.reconcilers = append(later.reconcilers, applier, collector.NewLoadBalancers(mgr, collector.LoadBalancerOptions{
			Cloud: cloud.LoadBalancers, FloatingIPs: cloud.FloatingIPs, Settings: o.Settings, Now: o.Now,
			Suspect: func(req ctrl.Request) { applier.Suspect(req, true) },
		}))
	}
	if o.Subnets != nil {
		later.reconcilers = append(later.reconcilers, services.New(mgr, services.Options{
			Settings: o.Settings, Subnets: o.Subnets, Backoff: o.Backoff, Now: o.Now,
		}))
	}
	if o.LoadBalancers != nil || o.Subnets != nil {
		if err := mgr.Add(later); err != nil {
			return err
		}
	}
	if o.SecurityGroups == nil {
		return nil
	}
	return collector.NewGroups(mgr, collector.GroupOptions{
		Cloud: o.SecurityGroups, Settings: o.Settings, Now: o.Now, Members: grants, Making: making, Suspect: suspect,
	}).Setup(mgr)
}
