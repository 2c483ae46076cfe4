// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// add plugs the pod's port into the sandbox. It may be repeated: a sandbox that
// has its port already gets the same result.
func (d *Daemon) add(ctx context.Context, req cni.Request) (*types100.Result, error) {
	conf, err := cni.ParseConfig(req.Config)
	if err != nil {
		return nil, err
	}
	args, err := cni.ParseArgs(req.Args)
	if err != nil {
		return nil, err
	}
	if d.netns.own(req.Netns) {
		return nil, types.NewError(cni.CodeInvalidNetns, "CNI_NETNS is the node's own network namespace", req.Netns)
	}
	if d.netns.gone(req.Netns) { // no port would help
		return nil, types.NewError(cni.CodeInvalidNetns, "the network namespace of CNI_NETNS is gone", req.Netns)
	}
	ctx, cancel := context.WithTimeout(ctx, d.Settings.AddTimeout.Duration)
	defer cancel()
	ctx, release, err := d.sandboxes.acquire(ctx, attachmentKey(req.ContainerID, req.IfName))
	if err != nil {
		return nil, types.NewError(cni.CodeTryAgain, "another call for the same sandbox is still at work", err.Error())
	}
	defer release()
	// What a DEL has left for this sandbox was for an attachment before this one.
	if err := cni.TakeBack(d.Socket, req.ContainerID, req.IfName); err != nil {
		return nil, fmt.Errorf("taking back a DEL: %w", err)
	}
	e, err := d.newEntry(ctx, req, args, conf)
	if err != nil {
		return nil, err
	}
	if !e.FromArgs {
		var cancel context.CancelFunc
		ctx, cancel = d.ports.whileBound(ctx, e.Port.ID, args)
		defer cancel()
	}
	if err := d.attach(ctx, &e); err != nil {
		return nil, err
	}
	return result(e, conf, d.Settings.MTU), nil
}

// newEntry is what is to be plugged: the port that CNI_ARGS bring, else the one
// that is bound to the pod, as soon as there is one.
func (d *Daemon) newEntry(ctx context.Context, req cni.Request, args cni.Args, conf cni.Config) (entry, error) {
	e := entry{
		Version: entryVersion, ContainerID: req.ContainerID, IfName: req.IfName, Netns: req.Netns,
		Network: conf.Name, Namespace: args.Namespace, Pod: args.Name, PodUID: args.UID, Since: time.Now().UTC(),
	}
	hostPorts, err := recordHostPorts(conf)
	if err != nil {
		return e, err
	}
	e.HostPorts = hostPorts
	if args.Port != nil {
		e.FromArgs, e.Port = true, recordArgs(args.Port)
		return e, nil
	}
	defer d.metrics.stage("ADD", "port")()
	port, err := d.ports.await(ctx, args, req.IfName)
	if err != nil {
		return e, d.noPort(ctx, args)
	}
	if e.Port, err = recordPort(port); err != nil {
		return e, types.NewError(cni.CodeInternal, "the pod's KuryrPort cannot be used", err.Error())
	}
	e.dropHostPorts(logr.FromContextOrDiscard(ctx))
	return e, nil
}

// noPort says what the call has waited for in vain.
func (d *Daemon) noPort(ctx context.Context, args cni.Args) error {
	if err := interrupted(ctx); err != nil {
		return err
	}
	waited := d.Settings.AddTimeout.Duration
	if !d.ports.synced() {
		return types.NewError(cni.CodeTryAgain, fmt.Sprintf("waited %s for the Kubernetes API", waited), errNotSynced.Error())
	}
	details := "the Kuryr controller binds it; the pod's Events say what keeps it from that"
	for _, port := range d.ports.ofPod(args) {
		if bound(port, args) && !port.Grouped() {
			return types.NewError(cni.CodeNotWired,
				fmt.Sprintf("waited %s for the security groups of port %s, which is bound to pod %s", waited, port.Name, args.Pod()),
				fmt.Sprintf("the SDN is to give it %v and is known to have given it %v; the KuryrPort's conditions say what keeps the controller from that",
					port.Spec.SecurityGroupIDs, port.Status.AppliedSecurityGroupIDs))
		}
		if !bound(port, args) {
			details = fmt.Sprintf("KuryrPort %s is still that of an earlier pod of this name, or on its way out", port.Name)
		}
	}
	return types.NewError(cni.CodeNoPort, fmt.Sprintf("waited %s for a port for pod %s on node %s", waited, args.Pod(), d.Node), details)
}

// attach plugs e and waits until it is wired. If that fails, what it did is
// undone, unless the sandbox had the same port before: then only a DEL may.
func (d *Daemon) attach(ctx context.Context, e *entry) error {
	old, had := d.journal.get(e.key())
	if had && old.Port.ID != e.Port.ID {
		if err := d.detach(ctx, old, old.Netns); err != nil {
			return err
		}
		had = false
	}
	if !had {
		if err := d.freeOnNode(*e); err != nil {
			return err
		}
	}
	driver, err := d.Drivers.Driver(e.Port.Type)
	if err != nil {
		return plugError(fmt.Sprintf("plugging port %s of type %q", e.Port.ID, e.Port.Type), err)
	}
	if had {
		e.Since = old.Since
	}
	err = d.plug(ctx, driver, *e)
	if err == nil {
		err = d.wire(ctx, driver, *e)
	}
	if err == nil {
		err = d.awaitHostPorts(ctx, *e)
	}
	if err != nil && !had {
		d.undo(ctx, *e)
	}
	return err
}

// plug writes e into the journal and plugs it.
func (d *Daemon) plug(ctx context.Context, driver plug.Driver, e entry) error {
	release, err := d.byPort.interrupt(ctx, e.Port.ID, nil)
	if err != nil {
		return types.NewError(cni.CodeTryAgain, "another call for the same port is still at work", err.Error())
	}
	defer release()
	if err := d.secondName(e); err != nil {
		return err
	}
	journaled := d.metrics.stage("ADD", "journal")
	err = d.journal.put(e)
	journaled()
	if err != nil {
		return types.NewError(cni.CodeIO, "the journal cannot be written", err.Error())
	}
	d.reporter.plugging(e) // it is known before the pod runs
	done := d.metrics.stage("ADD", "plug")
	err = func() error {
		defer d.parker.plugging(e.Port.ID)()
		return driver.Plug(ctx, e.iface())
	}()
	done()
	if err != nil {
		if stop := interrupted(ctx); stop != nil {
			return stop
		}
		return plugError(fmt.Sprintf("plugging port %s", e.Port.ID), err)
	}
	return d.forgetOlder(e)
}

// secondName refuses what would take a port from the very container that has it, under
// another name: with Kuryr as a second network of the same pods, as of Multus, the
// pod would lose its eth0, and both calls would have succeeded.
func (d *Daemon) secondName(e entry) error {
	for _, other := range d.journal.ofPort(e.Port.ID) {
		if other.ContainerID == e.ContainerID && other.IfName != e.IfName && !other.Deleted {
			return types.NewError(cni.CodeInvalidConfig, fmt.Sprintf("the container has port %s already, as interface %s", e.Port.ID, other.IfName),
				"a pod has one port of Kuryr's, so that kuryr-cni is to be called for one interface of it")
		}
	}
	return nil
}

// wire waits until the data path passes the port's traffic. It holds no lock of
// the port: should that go over to another sandbox meanwhile, nobody waits here
// for it.
func (d *Daemon) wire(ctx context.Context, driver plug.Driver, e entry) error {
	defer d.metrics.stage("ADD", "wired")()
	started := time.Now()
	err := driver.Wait(ctx, e.iface())
	if err == nil {
		err = d.awaitController(ctx, e)
	}
	if stop := interrupted(ctx); stop != nil {
		return stop // even if it is wired: the port may be another's by now
	}
	if errors.Is(err, plug.ErrNotWired) || errors.Is(err, context.DeadlineExceeded) {
		return types.NewError(cni.CodeNotWired, fmt.Sprintf("waited %s for the SDN to wire port %s, which is bound and plugged",
			time.Since(started).Round(time.Second), e.Port.ID), err.Error())
	}
	if err != nil {
		return plugError(fmt.Sprintf("waiting for port %s to be wired", e.Port.ID), err)
	}
	return nil
}

// awaitController waits for status.active of a port whose data path the node
// does not see for itself. A macvlan port never is: it is bound to no host.
func (d *Daemon) awaitController(ctx context.Context, e entry) error {
	switch {
	case e.FromArgs, e.Port.Type == "ovs", e.Port.Type == "bridge", e.Port.Type == "macvlan":
		return nil
	}
	return d.ports.awaitActive(ctx, e.Port.ID)
}

// forgetOlder drops the sandboxes that had the port before e, which Plug has
// taken it from. Their DEL then finds nothing to do.
func (d *Daemon) forgetOlder(e entry) error {
	for _, other := range d.journal.ofPort(e.Port.ID) {
		if other.key() == e.key() {
			continue
		}
		if err := d.journal.remove(other); err != nil {
			return types.NewError(cni.CodeIO, "the journal cannot be written", err.Error())
		}
	}
	return nil
}

// undo unplugs what a failed call has plugged. Should that fail as well, the
// journal still has it, for the DEL that the runtime sends after a failed ADD.
func (d *Daemon) undo(ctx context.Context, e entry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := d.detach(ctx, e, e.Netns); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "undoing a failed ADD", "port", e.Port.ID)
	}
}
