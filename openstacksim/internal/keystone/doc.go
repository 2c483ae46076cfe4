// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package keystone is the simulator's Keystone: it issues tokens, says what a
// token stands for, and keeps the projects, users, roles and application
// credentials behind them. It answers as Keystone 22.0.2 does; a comment says
// where an answer is odd, and whether that was read in the source or observed.
//
// It leaves to others who may do what in Neutron and Octavia.
package keystone
