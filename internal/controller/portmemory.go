// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
)

// What is remembered of single ports, beyond their objects.

// setGone notes that the SDN has lost a port, or that it has it after all.
func (m *memory) setGone(name string, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gone {
		m.gone[name] = true
	} else {
		delete(m.gone, name)
	}
}

func (m *memory) isGone(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone[name]
}

// portGone forgets a port whose object is gone.
func (m *memory) portGone(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.gone, name)
	delete(m.active, name)
}

// awaitActive notes whether a port waits for the SDN to pass its traffic, and
// returns whether it has been seen to.
func (m *memory) awaitActive(name string, waits bool) bool {
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
func (m *memory) isActive(name string) bool {
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
func (m *memory) awaitActives() []string {
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
