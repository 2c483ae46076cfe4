// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1

// Reasons of conditions and Events.
const (
	ReasonReady           = "Ready"
	ReasonPending         = "Pending"
	ReasonOverQuota       = "OverQuota"
	ReasonSubnetExhausted = "SubnetExhausted"
	ReasonScarce          = "Scarce"
	ReasonRejected        = "Rejected"
	ReasonForbidden       = "Forbidden"
	ReasonHostUnusable    = "HostUnusable"
	ReasonConflict        = "Conflict"
	ReasonUnavailable     = "Unavailable"
	ReasonPortMissing     = "PortMissing"
	ReasonBackendError    = "BackendError"

	// Of pools and nodes.
	ReasonFillRefused       = "FillRefused"
	ReasonParentPortUnknown = "ParentPortUnknown"
	ReasonParentPortChanged = "ParentPortChanged"
	ReasonNodeTakesNoMore   = "NodeTakesNoMore"

	// Of NetworkPolicies.
	ReasonNotEnforced = "NotEnforced"

	// Of load balancers.
	ReasonNotSupported        = "NotSupported"
	ReasonLoadBalancerInError = "LoadBalancerInError"
	ReasonDrift               = "Drift"
	ReasonFloatingIPNotUsable = "FloatingIPNotUsable"
	ReasonNotTaken            = "NotTaken"
	ReasonLoadBalancerBusy    = "LoadBalancerBusy"
	ReasonNoLoadBalancing     = "NoLoadBalancing"
	ReasonNotChanged          = "NotChanged"
	ReasonFloatingIPWithheld  = "FloatingIPWithheld"
	ReasonSecurityGroupLeft   = "SecurityGroupLeft"

	// Of ConditionPlanned, besides those of package service.
	ReasonPlanned         = "Planned"
	ReasonSeveralProblems = "SeveralProblems"
)
