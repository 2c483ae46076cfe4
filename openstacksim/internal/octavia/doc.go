// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package octavia simulates the load-balancing service of OpenStack: the API
// of Octavia 11.0.0 (v2.0 to v2.26) with the behaviour of two providers, that of
// OVN (ovn-octavia-provider 3.0.0) and that of the amphorae. It answers what the
// real one answers, down to the words of its errors, the odd ones included; what
// passes through load balancers is none of its business.
//
// The bodies it accepts are data: api.json is written by hack/octavia-api.py from
// an installed Octavia. Ports for VIPs are made through Networks.
package octavia
