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
	ReasonRoutesLeftOut     = "RoutesLeftOut"

	// Of NetworkPolicies.
	ReasonNotEnforced = "NotEnforced"

	// Of load balancers.
	ReasonNotSupported        = "NotSupported"
	ReasonLoadBalancerInError = "LoadBalancerInError"
	ReasonDrift               = "Drift"
	ReasonFloatingIPNotUsable = "FloatingIPNotUsable"
	ReasonNotApplied          = "NotApplied"
	ReasonDisabled            = "Disabled"
	ReasonLoadBalancerBusy    = "LoadBalancerBusy"
	ReasonClusterIPHeld       = "ClusterIPHeld"
	ReasonClusterIPInUse      = "ClusterIPInUse"
	ReasonNoLoadBalancing     = "NoLoadBalancing"
	ReasonNotChanged          = "NotChanged"
	ReasonFloatingIPWithheld  = "FloatingIPWithheld"
	ReasonFloatingIPRefused   = "FloatingIPRefused" // Neutron does not associate it; also of a Service
	ReasonSecurityGroupLeft   = "SecurityGroupLeft"
	// ReasonReplacing: what serves is being deleted and created again. Of ConditionProgressing.
	ReasonReplacing = "Replacing"

	// Of KuryrClusters. Events on a KuryrCluster have the name of a finding as their reason.
	ReasonErrors     = "Errors"
	ReasonWarnings   = "Warnings"
	ReasonNotChecked = "NotChecked"
	ReasonChecked    = "Checked"
	ReasonServing    = "Serving"
	// ReasonFirstStartWaits: nothing is made in the cloud before there is what all pods or all
	// Services need.
	ReasonFirstStartWaits = "FirstStartWaits"

	// Of networks. A network can also have the reasons of its SDN, as OverQuota.
	ReasonOverlap        = "Overlap"
	ReasonNotAllowed     = "NotAllowed"
	ReasonNotConfigured  = "NotConfigured"
	ReasonRangeFull      = "RangeFull"
	ReasonWaitsForPods   = "WaitsForPods"
	ReasonNotPlanned     = "NotPlanned"
	ReasonNetworkMissing = "NetworkMissing"
	ReasonNetworkInUse   = "NetworkInUse"
	ReasonDeleting       = "Deleting"
	ReasonRouterFull     = "RouterFull"

	// Of Events on the owner of resources: one with its mark is in a project that Kuryr does not use.
	ReasonForeignMark = "ForeignMark"

	// Of Events on the KuryrCluster: what became of a resource that no object named.
	ReasonOrphanAdopted = "OrphanAdopted"
	ReasonOrphanDeleted = "OrphanDeleted"

	ReasonExternalNetworkFull = "ExternalNetworkFull"

	// Of ConditionPlanned, in addition to those of package service.
	ReasonPlanned         = "Planned"
	ReasonSeveralProblems = "SeveralProblems"
)
