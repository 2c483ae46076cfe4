// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package octavia simulates the load balancing service of OpenStack. It has the API of Octavia
// 11.0.0 (Zed; v2.0 to v2.26) or 16.0.0 (2025.1; to v2.30). Two providers behave as in reality: OVN
// (ovn-octavia-provider 3.0.0 or 8.0.0) and the amphorae. The answers equal Octavia's, including the messages of its errors, even the
// odd ones. The package does not simulate the traffic through load balancers.
//
// The accepted bodies are data: hack/octavia-api.py writes api-RELEASE.json from an installed
// Octavia.
// Networks makes the ports of VIPs.
package octavia
