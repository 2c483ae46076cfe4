// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// dropHostPorts removes the host ports of a pod that the node cannot reach.
func (e *entry) dropHostPorts(log logr.Logger) {
	if e.Port.Type == "macvlan" && len(e.HostPorts) > 0 {
		log.Info("host ports of a pod with a port of type macvlan do not work: the node cannot reach the pod", "port", e.Port.ID)
		e.HostPorts = nil
	}
}

// hostPorts returns the entry's host ports as package nodeport has them.
func (e entry) hostPorts() []nodeport.HostPort {
	var to []netip.Addr
	for _, a := range e.Port.Addresses {
		to = append(to, a.Prefix.Addr().Unmap())
	}
	pod := cmp.Or(e.Pod, e.ContainerID)
	if e.Namespace != "" {
		pod = e.Namespace + "/" + pod
	}
	var ports []nodeport.HostPort
	for _, p := range e.HostPorts {
		ports = append(ports, nodeport.HostPort{
			Pod: pod, Since: e.Since, Address: p.Address, Protocol: corev1.Protocol(p.Protocol), Port: p.Port, To: to, Target: p.Target,
		})
	}
	return ports
}

// hostPorts returns the host ports of all entries that stay plugged.
func (j *journal) hostPorts() []nodeport.HostPort {
	var all []nodeport.HostPort
	for _, e := range j.where(func(e entry) bool { return len(e.HostPorts) > 0 && !e.Deleted }) {
		all = append(all, e.hostPorts()...)
	}
	return all
}

// awaitHostPorts returns after the node forwards the host ports of e, which is in the journal.
// Without this the pod would run, and nothing would show why its host ports do not answer.
func (d *Daemon) awaitHostPorts(ctx context.Context, e entry) error {
	if len(e.HostPorts) == 0 {
		return nil
	}
	defer d.metrics.stage("ADD", "hostports")()
	err := d.nodePorts.settled(ctx, e)
	if stop := interrupted(ctx); stop != nil {
		return stop
	}
	if err != nil {
		return types.NewError(cni.CodeHostPort, fmt.Sprintf("forwarding host ports to port %s", e.Port.ID), err.Error())
	}
	return nil
}

var errNoTables = errors.New("this daemon keeps no tables of host ports")

// outcome is the result of a round of updating the tables.
type outcome struct {
	failed [2]bool // IPv4, IPv6
	err    error
}

// settled returns after the tables match the journal. Otherwise it returns why the tables of e's
// IP families cannot match.
func (n *nodePorts) settled(ctx context.Context, e entry) error {
	if n.tables == nil {
		return errNoTables
	}
	answer := make(chan outcome, 1)
	select {
	case n.waiting <- answer:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case o := <-answer:
		for _, a := range e.Port.Addresses {
			if family := a.Prefix.Addr().Unmap(); family.Is4() && o.failed[0] || family.Is6() && o.failed[1] {
				return o.err
			}
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
