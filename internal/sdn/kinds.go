// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdn

// KindLoadBalancer is how load balancers and floating IPs name what they are for.
const KindLoadBalancer = "kuryrloadbalancer"

// KindPool is the kind of the owner of all ports.
const KindPool = "kuryrportpool"
