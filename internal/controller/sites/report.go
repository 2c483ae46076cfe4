// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
)

// tell sends an Event on the node and on each waiting pod. The Event says why the parent port is
// not known. It is sent once for each reason.
func (r *ParentPorts) tell(s *Site, failure error, waiting []*corev1.Pod) {
	note, reason := explain(failure, s.Ports), outcome.Of(outcome.ParentPort, failure).Reason
	news, reported := map[types.UID]bool{}, map[types.UID]string{}
	r.mu.Lock()
	n := r.nodes[s.Name]
	for _, uid := range append(uids(waiting), s.Node.UID) {
		news[uid] = n.reported[uid] != reason
		reported[uid] = reason
	}
	r.nodes[s.Name] = waitingNode{n.pods, reported}
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

// projectOf names the project in which a parent port is looked for.
func projectOf(ports config.NodePorts) string {
	if ports.ParentProjectID == "" {
		return "that credential's own project, as nodes[].parentProjectID names none"
	}
	return "project " + ports.ParentProjectID
}

// explain describes for a person why a parent port is not known.
func explain(err error, ports config.NodePorts) string {
	var within, trunk string
	if len(ports.ParentSubnetIDs) > 0 {
		within = " in subnet " + strings.Join(ports.ParentSubnetIDs, " or ")
	}
	if ports.VIFType == config.VIFTypeVLAN {
		trunk = " that is the parent of a trunk"
	}
	return outcome.Cut(outcome.Of(outcome.ParentPort, err).Explain(
		"{vifType}", ports.VIFType, "{within}", within, "{trunk}", trunk, "{project}", projectOf(ports)))
}
