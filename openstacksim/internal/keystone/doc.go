// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package keystone is the simulator's Keystone. It issues tokens, resolves them, and keeps
// projects, users, roles and application credentials. It answers as Keystone 22.0.2 does.
// Comments mark odd answers, and say whether they come from the source or from an observation.
//
// Neutron and Octavia decide on their own what a caller may do there.
package keystone
