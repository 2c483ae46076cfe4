// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package neutron behaves as Neutron v2.0 does, as of release 21.0.0 (Zed) with
// ML2/OVN: resources, what it refuses, and in which words. It keeps everything in
// memory and passes no packet. Who the caller is, delays and faults are others'.
//
// What Neutron says of its own attributes, extensions and access rules is data,
// in api.json. Each type of resource is a kind: a table of rows, and what is
// special about creating, changing and removing one. All the rest, the same for
// every kind, is here once.
//
// One request runs at a time, under the service's lock.
package neutron
