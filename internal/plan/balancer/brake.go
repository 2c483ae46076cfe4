// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Brake says why klb must not delete what serves, to create it again; empty if it may. all are the
// KuryrLoadBalancers of the cluster. While the cloud refuses to create a load balancer in the project,
// or does not answer, it may not create the next one either. While one is being replaced, it is not
// known. Only statuses are read, so each process comes to the same answer. Two that do not see each other's
// status yet both begin, by a trial; once the cloud has created that, they ask again.
func Brake(klb *v1.KuryrLoadBalancer, all []*v1.KuryrLoadBalancer) string {
	why := ""
	say := func(format string, args ...any) { // the same text each time, in whatever order all are
		text := fmt.Sprintf(format, args...)
		why = min(text, cmp.Or(why, text))
	}
	for _, o := range all {
		if o.Namespace == klb.Namespace && o.Name == klb.Name || o.Spec.ProjectID != klb.Spec.ProjectID || !o.DeletionTimestamp.IsZero() {
			continue
		}
		name := o.Namespace + "/" + o.Name
		ready := meta.FindStatusCondition(o.Status.Conditions, v1.ConditionReady)
		switch {
		case IsReplaced(o) && !(IsReplaced(klb) && klb.Namespace+"/"+klb.Name < name): // a change of projects may bring two together
			say("Kuryr replaces one load balancer of a project at a time, now that of %s", name)
		case ready != nil && ready.Status != metav1.ConditionTrue && !NamesAll(o) && slices.Contains(uncreated, ready.Reason):
			say("the cloud does not create the load balancer of %s (%s)", name, ready.Reason)
		}
	}
	return why
}

// uncreated are the reasons for a missing load balancer that any other one of the project may meet, too.
var uncreated = []string{v1.ReasonOverQuota, v1.ReasonUnavailable, v1.ReasonBackendError, v1.ReasonForbidden}

// IsReplaced reports whether the status says that a load balancer that serves is being replaced.
func IsReplaced(klb *v1.KuryrLoadBalancer) bool {
	c := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionProgressing)
	return c != nil && c.Reason == v1.ReasonReplacing
}

// NamesAll reports whether the status names a load balancer for each VIP.
func NamesAll(klb *v1.KuryrLoadBalancer) bool {
	return !slices.ContainsFunc(klb.Spec.VIPs, func(vip v1.VIPAddress) bool { return !names(&klb.Status, vip) })
}

// Trial returns an empty load balancer like want at any other address of its subnet. Whether the cloud
// can create want is known only from such a trial: quotas have no usage that Kuryr may read, and a
// provider that fails shows it at a creation. It has no listeners: OVN's provider leaves the port of the
// VIP in Neutron if it refuses one, and without an address nobody finds that port.
func Trial(want sdn.LoadBalancer) sdn.LoadBalancer {
	want.Listeners = nil
	want.Name, want.VIP.IP = want.Name[:min(len(want.Name), longestName-len(trialSuffix))]+trialSuffix, ""
	return want
}

// TrialIn returns the trial of want among the load balancers of its owner, nil if there is none, and
// whether it has failed: it is in ERROR, or has another provider, which proves nothing.
func TrialIn(have []sdn.LoadBalancer, want sdn.LoadBalancer) (trial *sdn.LoadBalancer, failed bool) {
	name := Trial(want).Name
	i := slices.IndexFunc(have, func(lb sdn.LoadBalancer) bool {
		return lb.Name == name && lb.Provisioning != sdn.ProvisioningDeleted
	})
	if i < 0 {
		return nil, false
	}
	lb := &have[i]
	return lb, lb.Provisioning == sdn.ProvisioningError || !busy(lb.Provisioning) && want.Provider != "" && !sdn.SameProvider(lb.Provider, want.Provider)
}

const trialSuffix = "/trial"
