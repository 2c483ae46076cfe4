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

// hostPortRecord is a host port in the journal. The runtime brings host ports with
// the ADD, so that there are those of the pods that run here and of no others: those
// that are done or gone have had their DEL, and those on the host's network no ADD.
type hostPortRecord struct {
	Address  netip.Addr `json:"address,omitzero"` // of the node; missing: all
	Protocol string     `json:"protocol"`
	Port     uint16     `json:"port"`
	Target   uint16     `json:"target"`
}

func recordHostPorts(conf cni.Config) ([]hostPortRecord, error) {
	ports, err := conf.HostPorts()
	if err != nil {
		return nil, err
	}
	var records []hostPortRecord
	for _, p := range ports {
		records = append(records, hostPortRecord(p))
	}
	return records, nil
}

// dropHostPorts leaves host ports out of a pod that its node does not reach.
func (e *entry) dropHostPorts(log logr.Logger) {
	if e.Port.Type == "macvlan" && len(e.HostPorts) > 0 {
		log.Info("the node reaches no pod by a port of type macvlan: its host ports do not answer", "port", e.Port.ID)
		e.HostPorts = nil
	}
}

// hostPorts are those of an entry in package nodeport's words.
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

// hostPorts are those of all that is plugged and to stay.
func (j *journal) hostPorts() []nodeport.HostPort {
	var all []nodeport.HostPort
	for _, e := range j.where(func(e entry) bool { return len(e.HostPorts) > 0 && !e.Deleted }) {
		all = append(all, e.hostPorts()...)
	}
	return all
}

// awaitHostPorts returns when the node passes on the host ports of e, which is in the
// journal. Else the pod would run, and nobody would see why it does not answer there.
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
		return types.NewError(cni.CodeHostPort, fmt.Sprintf("passing on host ports to port %s", e.Port.ID), err.Error())
	}
	return nil
}

var errNoTables = errors.New("this daemon keeps no tables of host ports")

// outcome is how a round of keeping the tables went.
type outcome struct {
	failed [2]bool // IPv4, IPv6
	err    error
}

// settled returns once the tables are as the journal is now, or why those of e's
// families cannot be.
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
