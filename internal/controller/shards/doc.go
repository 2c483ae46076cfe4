// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package shards has this controller process own its part of the keys, by Leases.
package shards
