// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync/atomic"

	"github.com/kuryr-go/kuryr/internal/config"
)

// Settings is the part of the configuration that the reconcilers follow while
// they run.
type Settings struct {
	Pods    config.Pods
	Nodes   []config.NodePorts
	Pools   config.Pools
	Orphans config.Orphans
}

// SettingsOf picks Settings from a whole configuration.
func SettingsOf(c *config.Config) Settings {
	return Settings{Pods: c.Pods, Nodes: c.Nodes, Pools: c.Pools, Orphans: c.Orphans}
}

// Live is settings that may change at any time. Its methods are safe for
// concurrent use; one Setup may use it.
type Live struct {
	value   atomic.Pointer[rules]
	changed chan struct{}
}

// NewLive returns live settings that begin as s.
func NewLive(s Settings) *Live {
	l := &Live{changed: make(chan struct{}, 1)}
	l.value.Store(newRules(s))
	configurationValid.Set(1)
	return l
}

// Load returns the settings of the moment. They are not to be changed.
func (l *Live) Load() *Settings { return &l.value.Load().Settings }

// rules is Load with the selectors ready for use.
func (l *Live) rules() *rules { return l.value.Load() }

// Set makes s the settings. All pools are planned anew with it, at once and
// without regard to failures of the past.
func (l *Live) Set(s Settings) {
	configurationValid.Set(1)
	l.value.Store(newRules(s))
	select {
	case l.changed <- struct{}{}:
	default: // a change is being waited for already
	}
}

// Refuse says in the metrics that there are newer settings that cannot be
// used, until the next Set or Accept.
func (l *Live) Refuse() { configurationValid.Set(0) }

// Accept says that the settings in use are what is configured.
func (l *Live) Accept() { configurationValid.Set(1) }
