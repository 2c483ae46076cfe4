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

// add plugs the pod's port into the sandbox. It may be repeated: a sandbox that has its port
// already gets the same result.
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
	// Waiting for a port would not help.
	if d.netns.gone(req.Netns) {
		return nil, types.NewError(cni.CodeInvalidNetns, "the network namespace of CNI_NETNS is gone", req.Netns)
	}
	ctx, cancel := context.WithTimeout(ctx, d.Settings.AddTimeout.Duration)
	defer cancel()
	ctx, release, err := d.sandboxes.TakeInterruptible(ctx, attachmentKey(req.ContainerID, req.IfName))
	if err != nil {
		return nil, types.NewError(cni.CodeTryAgain, "another call for the same sandbox is still in progress", err.Error())
	}
	defer release()
	// A DEL that was left for this sandbox belongs to an earlier attachment.
	if err := cni.TakeBack(d.Socket, req.ContainerID, req.IfName); err != nil {
		return nil, fmt.Errorf("cancelling a pending DEL: %w", err)
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

// newEntry returns what will be plugged: the port in CNI_ARGS, otherwise the port that is bound
// to the pod, after waiting for it.
func (d *Daemon) newEntry(ctx context.Context, req cni.Request, args cni.Args, conf cni.Config) (entry, error) {
	e := entry{
		Version: entryVersion, ContainerID: req.ContainerID, IfName: req.IfName, Netns: req.Netns,
		Network: conf.Name, Namespace: args.Namespace, Pod: args.Name, PodUID: args.UID, Since: time.Now().UTC(),
	}
	hostPorts, err := conf.HostPorts()
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

// noPort returns an error that names what the call waited for.
func (d *Daemon) noPort(ctx context.Context, args cni.Args) error {
	if err := interrupted(ctx); err != nil {
		return err
	}
	waited := d.Settings.AddTimeout.Duration
	if !d.ports.synced() {
		return types.NewError(cni.CodeTryAgain, fmt.Sprintf("waited %s for the Kubernetes API", waited), errNotSynced.Error())
	}
	details := "the Kuryr controller binds ports to pods; the pod's Events say why it has bound none"
	for _, port := range d.ports.ofPod(args) {
		if bound(port, args) && !port.Grouped() {
			return types.NewError(cni.CodeNotWired,
				fmt.Sprintf("waited %s for the security groups of port %s, which is bound to pod %s", waited, port.Name, args.Pod()),
				fmt.Sprintf("the port needs the groups %v, and is known to have %v; the KuryrPort's conditions say why",
					port.Spec.SecurityGroupIDs, port.Status.AppliedSecurityGroupIDs))
		}
		if !bound(port, args) {
			details = fmt.Sprintf("KuryrPort %s still belongs to an earlier pod of this name, or is being deleted", port.Name)
		}
	}
	return types.NewError(cni.CodeNoPort, fmt.Sprintf("waited %s for a port for pod %s on node %s", waited, args.Pod(), d.Node), details)
}

// attach plugs e and waits until the data path passes its traffic. If that fails, it undoes its
// changes, unless the sandbox had the same port before. In that case only a DEL may unplug it.
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
	release, err := d.byPort.Take(ctx, e.Port.ID)
	if err != nil {
		return types.NewError(cni.CodeTryAgain, "another call for the same port is still in progress", err.Error())
	}
	defer release()
	if err := d.secondName(e); err != nil {
		return err
	}
	journaled := d.metrics.stage("ADD", "journal")
	err = d.journal.put(e)
	journaled()
	if err != nil {
		return err
	}
	d.reporter.plugging(e) // the attachment is reported before the pod runs
	done := d.metrics.stage("ADD", "plug")
	err = func() error {
		defer d.parker.plugging(e.Port.ID)()
		if err := d.parker.renew(ctx, d.ports.port(e.Port.ID)); err != nil {
			return err
		}
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

// secondName refuses to move a port within its container, to an interface with another name. That
// happens if Kuryr also is a second network of the same pods, for example with Multus. The pod
// would lose its eth0, although both calls succeed.
func (d *Daemon) secondName(e entry) error {
	for _, other := range d.journal.ofPort(e.Port.ID) {
		if other.ContainerID == e.ContainerID && other.IfName != e.IfName && !other.Deleted {
			return types.NewError(cni.CodeInvalidConfig, fmt.Sprintf("the container has port %s already, as interface %s", e.Port.ID, other.IfName),
				"a pod has one port of Kuryr: call kuryr-cni for one interface of the pod only")
		}
	}
	return nil
}

// wire waits until the data path passes the port's traffic. It does not hold the port's lock: if
// the port moves to another sandbox meanwhile, that sandbox's call need not wait for it.
func (d *Daemon) wire(ctx context.Context, driver plug.Driver, e entry) error {
	defer d.metrics.stage("ADD", "wired")()
	started := time.Now()
	err := driver.Wait(ctx, e.iface())
	if err == nil {
		err = d.tagged(ctx, e)
	}
	if err == nil {
		err = d.awaitController(ctx, e)
	}
	if coded := (*types.Error)(nil); errors.As(err, &coded) {
		return err
	}
	if stop := interrupted(ctx); stop != nil {
		return stop // even if it is wired: another pod may have the port by now
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

// awaitController waits for status.active of a port whose data path the node cannot observe. It
// does not wait for a macvlan port, which is never active because it is bound to no host.
func (d *Daemon) awaitController(ctx context.Context, e entry) error {
	switch {
	case e.Port.byAgent():
		if err := d.ports.awaitActive(ctx, e.Port.ID, e.ContainerID); err != nil {
			return fmt.Errorf("neutron-openvswitch-agent has tagged the port on node %s, and the SDN does not report it ACTIVE for this sandbox. "+
				"See the agent's log on the node, openstack port show %s, and whether the controller of Kuryr runs: %w", d.Node, e.Port.ID, err)
		}
		return nil
	case e.FromArgs, e.Port.Type == "ovs", e.Port.Type == "bridge", e.Port.Type == "macvlan":
		return nil
	}
	return d.ports.awaitActive(ctx, e.Port.ID, e.ContainerID)
}

// tagged notes that neutron-openvswitch-agent has put e's port into its network, and has that
// reported. The controller asks the SDN only then whether the port is active: before, the answer
// could be about the sandbox that had the port last.
func (d *Daemon) tagged(ctx context.Context, e entry) error {
	if !e.Port.byAgent() {
		return nil
	}
	release, err := d.byPort.Take(ctx, e.Port.ID)
	if err != nil {
		return err
	}
	defer release()
	now, ok := d.journal.get(e.key())
	if !ok || now.Port.ID != e.Port.ID || now.Deleted {
		return fmt.Errorf("the port was taken from the sandbox meanwhile: %w", plug.ErrNotWired)
	}
	now.Tagged = true
	if err := d.journal.put(now); err != nil {
		return err
	}
	d.reporter.report(now)
	return nil
}

// forgetOlder drops the sandboxes that had the port before e. Plug has taken the port from them,
// so their DEL has nothing to do.
func (d *Daemon) forgetOlder(e entry) error {
	for _, other := range d.journal.ofPort(e.Port.ID) {
		if other.key() != e.key() {
			if err := d.journal.remove(other); err != nil {
				return err
			}
		}
	}
	return nil
}

// undo unplugs what a failed call has plugged. If that fails, too, the journal keeps the entry
// for the DEL that the runtime sends after a failed ADD.
func (d *Daemon) undo(ctx context.Context, e entry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := d.detach(ctx, e, e.Netns); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "undoing a failed ADD", "port", e.Port.ID)
	}
}
