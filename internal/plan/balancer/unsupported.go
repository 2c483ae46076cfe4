// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Reasons of problems. The status has them, and the next process reads them there.
const (
	ReasonHidesClients      = "HidesClients"      // endpoints do not see the client's address
	ReasonNoProtocol        = "NoProtocol"        // the port is left out
	ReasonPortTaken         = "PortTaken"         // another protocol has the port's number
	ReasonNoConnectionLimit = "NoConnectionLimit" // it is stored and has no effect
	ReasonNoTimeouts        = "NoTimeouts"        // they are stored and have no effect
	ReasonNoSourceRanges    = "NoSourceRanges"    // the provider ignores the client's address
	ReasonNoProxyProtocol   = "NoProxyProtocol"   // endpoints do not learn the client's address
	ReasonNoAlgorithm       = "NoAlgorithm"       // the provider has other algorithms
	ReasonNoAffinity        = "NoAffinity"        // each connection is balanced by itself
	ReasonAffinityUnsure    = "AffinityUnsure"    // it may have no effect
	ReasonNoAffinityTimeout = "NoAffinityTimeout" // affinity has another duration
	ReasonNoMonitor         = "NoMonitor"         // the provider has no health monitor of that type
	ReasonMonitorInError    = "MonitorInError"    // the cloud has the health monitor in ERROR
	ReasonOutOfReach        = "OutOfReach"        // endpoints are left out
	ReasonUnprotected       = "Unprotected"       // Kuryr's security groups miss endpoints
	ReasonOtherNamespace    = "OtherNamespace"    // endpoints never get the security group
	ReasonNotReached        = "NotReached"        // endpoints do not have the security group yet
	ReasonTooManyRules      = "TooManyRules"      // the security group has a part of the rules
)

// Unsupported returns what a status says of problems: sorted, each field with each reason once.
func Unsupported(problems []Problem) []v1.UnsupportedField {
	var all []v1.UnsupportedField
	for _, p := range problems {
		all = append(all, v1.UnsupportedField{Field: p.Field, Reason: p.Reason})
	}
	slices.SortFunc(all, func(a, b v1.UnsupportedField) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	return slices.Compact(all)
}

// SaysUnsupported reports whether a status lists exactly these problems. A status of an older
// version says only whether any exist.
func SaysUnsupported(s *v1.KuryrLoadBalancerStatus, problems []Problem) bool {
	if listsNothing(s) {
		return len(problems) > 0
	}
	return slices.Equal(s.Unsupported, Unsupported(problems))
}

// TellsUnsupported reports whether the status before already said all that the status now says
// of problems. A status of an older version counts as having said the same.
func TellsUnsupported(before, now *v1.KuryrLoadBalancerStatus) bool {
	if listsNothing(before) {
		return true
	}
	return !slices.ContainsFunc(now.Unsupported, func(f v1.UnsupportedField) bool { return !slices.Contains(before.Unsupported, f) })
}

// listsNothing reports whether a status says that problems exist but does not list them: an
// older version wrote it.
func listsNothing(s *v1.KuryrLoadBalancerStatus) bool {
	return len(s.Unsupported) == 0 && meta.IsStatusConditionFalse(s.Conditions, v1.ConditionSupported)
}

// NotChangedAnew reports whether a status lists an unchanged field that was not listed before.
func NotChangedAnew(before, now *v1.KuryrLoadBalancerStatus) bool {
	if len(before.NotChanged) == 0 && readyAs(before, now) {
		return false // an older version has said it without a list
	}
	return slices.ContainsFunc(now.NotChanged, func(d v1.UnchangedField) bool { return !slices.Contains(before.NotChanged, d) })
}

// readyAs reports whether two statuses have the same Ready for the same generation.
func readyAs(before, now *v1.KuryrLoadBalancerStatus) bool {
	was, is := meta.FindStatusCondition(before.Conditions, v1.ConditionReady), meta.FindStatusCondition(now.Conditions, v1.ConditionReady)
	return was != nil && is != nil && was.Status == is.Status && was.ObservedGeneration == is.ObservedGeneration
}
