// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package neutron behaves like Neutron v2.0, as of release 21.0.0 (Zed) or 26.0.3 (2025.1) with
// ML2/OVN: its resources, its refusals, and their messages. It keeps everything in memory and passes
// no packet. Callers, delays and faults are handled elsewhere.
//
// Neutron's attributes, extensions and access rules are data, in api-*.json. Each type of resource
// is a kind: a table of rows, and the special rules for creating, changing and removing a row.
// Everything else is common to all kinds and exists once.
//
// One request runs at a time, under the service's lock.
package neutron
