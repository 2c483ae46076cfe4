// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
)

// portMemory is what is remembered of single ports, beyond their objects. It may be
// lost: everything is seen again. Its methods are safe for concurrent use.
type portMemory struct {
	mu     sync.Mutex
	gone   map[string]bool // ports that the SDN has lost
	active map[string]bool // ports that wait for the SDN to pass their traffic: whether it does
}

func newPortMemory() *portMemory {
	return &portMemory{gone: map[string]bool{}, active: map[string]bool{}}
}

// setGone notes that the SDN has lost a port, or that it has it after all.
func (m *portMemory) setGone(name string, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gone {
		m.gone[name] = true
	} else {
		delete(m.gone, name)
	}
}

func (m *portMemory) isGone(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone[name]
}

// portGone forgets a port whose object is gone.
func (m *portMemory) portGone(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.gone, name)
	delete(m.active, name)
}

// awaitActive notes whether a port waits for the SDN to pass its traffic, and
// returns whether it has been seen to.
func (m *portMemory) awaitActive(name string, waits bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !waits {
		delete(m.active, name)
		return false
	}
	seen := m.active[name]
	m.active[name] = seen
	return seen
}

// isActive notes that the SDN passes a port's traffic, and returns whether it
// is one that waited for it.
func (m *portMemory) isActive(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, waits := m.active[name]
	if !waits || seen {
		return false
	}
	m.active[name] = true
	return true
}

// awaitActives returns the ports that still wait for the SDN to pass their
// traffic, sorted.
func (m *portMemory) awaitActives() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name, seen := range m.active {
		if !seen {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
