// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package settings is the part of the configuration that the reconcilers follow while
// they run, and the rules that follow from it: which pool a pod of a node and a
// namespace has its ports from, with which security groups and levels.
package settings

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/config"
)

// Settings is the part of the configuration that the reconcilers follow while
// they run.
type Settings struct {
	Pods     config.Pods
	Nodes    []config.NodePorts
	Pools    config.Pools
	Services config.Services
	Orphans  config.Orphans
	// RequestsPerSecond is how many the cloud may be sent at most; 0: any number.
	RequestsPerSecond float64
}

// SettingsOf picks Settings from a whole configuration.
func SettingsOf(c *config.Config) Settings {
	return Settings{
		Pods: c.Pods, Nodes: c.Nodes, Pools: c.Pools, Services: c.Services, Orphans: c.Orphans, RequestsPerSecond: c.Neutron.RequestsPerSec,
	}
}

// Live is settings that may change at any time. Its methods are safe for
// concurrent use; one Setup may use it.
type Live struct {
	value   atomic.Pointer[Rules]
	Changed chan struct{} // for the pools
	Planned chan struct{} // for the Services
	Serving chan struct{} // closed when Services are first to have load balancers
	once    sync.Once
}

// NewLive returns live settings that begin as s.
func NewLive(s Settings) *Live {
	l := &Live{Changed: make(chan struct{}, 1), Planned: make(chan struct{}, 1), Serving: make(chan struct{})}
	configurationValid.Set(1)
	l.store(s)
	return l
}

func (l *Live) store(s Settings) {
	l.value.Store(newRules(s))
	if ServesServices(&s.Services) {
		l.once.Do(func() { close(l.Serving) })
	}
}

// Load returns the settings of the moment. They are not to be changed.
func (l *Live) Load() *Settings { return &l.value.Load().Settings }

// Rules is Load with the selectors ready for use.
func (l *Live) Rules() *Rules { return l.value.Load() }

// Set makes s the settings. All pools and Services are planned anew with it, at once and
// without regard to failures of the past.
func (l *Live) Set(s Settings) {
	l.store(s)
	for _, c := range []chan struct{}{l.Changed, l.Planned} {
		select {
		case c <- struct{}{}:
		default: // a change is being waited for already
		}
	}
}

// Refuse says in the metrics that there are newer settings that cannot be
// used, until the next Accept.
func (l *Live) Refuse() { configurationValid.Set(0) }

// Accept says in the metrics that the settings in use are what is configured, by the
// file with that config.Hash.
func (l *Live) Accept(hash string) {
	configurationInfo.Reset()
	configurationInfo.WithLabelValues(hash).Set(1)
	configurationValid.Set(1)
}

// ServesServices reports whether Services get load balancers at all.
func ServesServices(c *config.Services) bool { return len(c.SubnetIDs) > 0 }

var (
	configurationValid = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kuryr_configuration_valid",
		Help: "1 if the configuration file is the one in use, 0 if it has faults and an older one is kept.",
	})
	configurationInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kuryr_configuration_info",
		Help: "1, with the SHA-256 of the configuration file that is in use.",
	}, []string{"hash"})
)

func init() { metrics.Registry.MustRegister(configurationValid, configurationInfo) }
