// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"sync/atomic"

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
	value   atomic.Pointer[rules]
	changed chan struct{} // for the pools
	planned chan struct{} // for the Services
	serving chan struct{} // closed when Services are first to have load balancers
	once    sync.Once
}

// NewLive returns live settings that begin as s.
func NewLive(s Settings) *Live {
	l := &Live{changed: make(chan struct{}, 1), planned: make(chan struct{}, 1), serving: make(chan struct{})}
	configurationValid.Set(1)
	l.store(s)
	return l
}

func (l *Live) store(s Settings) {
	l.value.Store(newRules(s))
	if takes(&s.Services) {
		l.once.Do(func() { close(l.serving) })
	}
}

// Load returns the settings of the moment. They are not to be changed.
func (l *Live) Load() *Settings { return &l.value.Load().Settings }

// rules is Load with the selectors ready for use.
func (l *Live) rules() *rules { return l.value.Load() }

// Set makes s the settings. All pools and Services are planned anew with it, at once and
// without regard to failures of the past.
func (l *Live) Set(s Settings) {
	l.store(s)
	for _, c := range []chan struct{}{l.changed, l.planned} {
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
