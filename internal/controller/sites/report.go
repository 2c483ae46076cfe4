// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// tell says on the node and on each waiting pod what is in the way, once for
// each reason.
func (r *Parents) tell(s *Site, h *hunt, waiting []*corev1.Pod) {
	note, reason := outcome.Cut(h.failure.Error()+advice(h.failure, s.Ports)), outcome.Reason(h.failure)
	news, told := map[types.UID]bool{}, map[types.UID]string{}
	r.mu.Lock()
	for _, uid := range append(uids(waiting), s.Node.UID) {
		news[uid] = h.told[uid] != reason
		told[uid] = reason
	}
	h.told = told
	r.mu.Unlock()
	if news[s.Node.UID] {
		on := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.Name, UID: s.Node.UID}
		r.events.Eventf(on, nil, corev1.EventTypeWarning, v1.ReasonParentPortUnknown, "FindParentPort", "Its pods get no ports: %s", note)
	}
	for _, pod := range waiting {
		if news[pod.UID] {
			r.events.Eventf(kube.Reference(pod, "Pod"), nil, corev1.EventTypeWarning, v1.ReasonParentPortUnknown, "FindParentPort",
				"The pod waits for a port: %s", note)
		}
	}
}

func uids(pods []*corev1.Pod) []types.UID {
	out := make([]types.UID, 0, len(pods)+1)
	for _, p := range pods {
		out = append(out, p.UID)
	}
	return out
}

// projectOf says in which project a machine's port is looked for.
func projectOf(ports config.NodePorts) string {
	if ports.ParentProjectID == "" {
		return "that credential's own project, as nodes[].parentProjectID names none"
	}
	return "project " + ports.ParentProjectID
}

// advice says what to do about a machine that is not found.
func advice(err error, ports config.NodePorts) string {
	switch {
	case errors.Is(err, sdn.ErrInvalid):
		return ". Set nodes[].parentSubnetIDs in Kuryr's configuration to the subnets of the machines' own ports, or another vifType if the node is no virtual machine"
	case errors.Is(err, sdn.ErrNotFound):
		var within, trunk string
		if len(ports.ParentSubnetIDs) > 0 {
			within = " in subnet " + strings.Join(ports.ParentSubnetIDs, " or ")
		}
		if ports.VIFType == config.VIFTypeVLAN {
			trunk = " that is the parent of a trunk"
		}
		return fmt.Sprintf(". By Kuryr's configuration (vifType %s) the node is a virtual machine: it needs a port with that address%s%s, which Kuryr's credential may see, in %s",
			ports.VIFType, within, trunk, projectOf(ports))
	}
	return ". Kuryr tries again until the SDN answers"
}
