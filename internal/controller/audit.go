// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/internal/controller/collector"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/membergroups"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Inventories returns all inventories of a process that is no controller, for collector.Audit: it reads
// past all caches, and has no work of its own under way. They are in an order in which OpenStack
// accepts deletions.
func Inventories(live client.Client, o Options) []*collector.Inventory {
	from := uncached{live}
	o.Projects = NewProjects(live)
	o.Projects.networks.Store(true)
	o.Projects.balancers.Store(true)
	o.Shards = kube.Alone{}
	o = o.marked(silent{})
	making := &kube.Owners{} // says that the controllers lock these kinds
	return []*collector.Inventory{
		collector.Ports(from, collector.PortOptions{
			Cloud: o.Ports, Visibility: o.Visibility, Settings: o.Settings, Shards: o.Shards, Supply: noSupply{},
		}),
		collector.LoadBalancers(from, collector.LoadBalancerOptions{
			Cloud: o.LoadBalancers, FloatingIPs: o.FloatingIPs, Settings: o.Settings, Shards: o.Shards, Thorough: true,
		}),
		collector.Networks(from, collector.NetworkOptions{
			Cloud: o.Networks, Settings: o.Settings, Shards: o.Shards, Making: making, Thorough: true,
		}),
		collector.SecurityGroups(from, collector.GroupOptions{
			Cloud: o.SecurityGroups, Settings: o.Settings, Shards: o.Shards, Making: making,
			Members: membergroups.New(live, o.Settings, &kube.Queue[pool.Ref]{}),
		}),
	}
}

// uncached is where a process without a cache reads.
type uncached struct{ client.Client }

func (u uncached) GetClient() client.Client { return u.Client }

func (u uncached) GetAPIReader() client.Reader { return u.Client }

// noSupply is the supply of a process that makes no ports.
type noSupply struct{}

func (noSupply) Knows() (ports, busy map[string]bool) { return nil, nil }
func (noSupply) Adopt(pool.Ref, sdn.Port)             {}
func (noSupply) Freed(pool.Ref)                       {}

// silent writes no Event.
type silent struct{}

func (silent) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}
