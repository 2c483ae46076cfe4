// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/go-logr/logr"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// del unplugs the sandbox's ports in the journal. It ends an ADD of the same sandbox that is
// still running. It may be repeated, and succeeds at once for an unknown sandbox.
//
// It also succeeds if the switch does not run, because no pod should wait for that. The sweep
// unplugs later, and until then the port counts as attached.
//
// An empty netns means that nothing has to be done in the pod. It never means the daemon's own
// namespace.
//
// found reports whether del had anything to do.
func (d *Daemon) del(ctx context.Context, req cni.Request) (found bool, err error) {
	netns := req.Netns
	if netns != "" && d.netns.own(netns) {
		netns = ""
	}
	key := attachmentKey(req.ContainerID, req.IfName)
	release, err := d.sandboxes.Interrupt(ctx, key, errSuperseded)
	if err != nil {
		return false, types.NewError(cni.CodeTryAgain, "another call for the same sandbox is still in progress", err.Error())
	}
	defer release()
	e, ok := d.journal.get(key)
	if !ok {
		return false, nil
	}
	err = d.detach(ctx, e, netns)
	if err == nil || asCNI(err).Code != cni.CodeDataPath {
		return true, err
	}
	logr.FromContextOrDiscard(ctx).Info("the data path is unavailable; the port is unplugged later", "port", e.Port.ID, "reason", asCNI(err).Details)
	return true, nil
}

// detach unplugs e and forgets it. If that fails, it marks e, and the sweep unplugs e later. The
// caller holds the sandbox's lock.
func (d *Daemon) detach(ctx context.Context, e entry, netns string) error {
	release, err := d.byPort.Take(ctx, e.Port.ID)
	if err != nil {
		return types.NewError(cni.CodeTryAgain, "another call for the same port is still in progress", err.Error())
	}
	defer release()
	e, still := d.journal.get(e.key())
	if !still {
		return nil // another sandbox has the port by now
	}
	doing := fmt.Sprintf("unplugging port %s", e.Port.ID)
	driver, err := d.Drivers.Driver(e.Port.Type)
	if err != nil {
		return plugError(doing, err)
	}
	i := e.iface()
	i.Netns = netns
	done := d.metrics.stage("DEL", "plug")
	err = driver.Unplug(ctx, i)
	done()
	if err != nil {
		if noted := d.markDeleted(e); noted != nil {
			return noted
		}
		return plugError(doing, err)
	}
	if err := d.journal.remove(e); err != nil {
		return err
	}
	d.reporter.report(e)
	d.parker.gone(e.Port.ID)
	return nil
}

// markDeleted marks e as to be unplugged.
func (d *Daemon) markDeleted(e entry) error {
	if e.Deleted {
		return nil
	}
	e.Deleted = true
	return d.journal.put(e)
}

// check compares the plugged interface with the answer of the ADD and with the journal.
func (d *Daemon) check(ctx context.Context, req cni.Request) error {
	conf, err := cni.ParseConfig(req.Config)
	if err != nil {
		return err
	}
	want, err := conf.PrevAddresses()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.Settings.AddTimeout.Duration)
	defer cancel()
	key := attachmentKey(req.ContainerID, req.IfName)
	ctx, release, err := d.sandboxes.TakeInterruptible(ctx, key)
	if err != nil {
		return types.NewError(cni.CodeTryAgain, "another call for the same sandbox is still in progress", err.Error())
	}
	defer release()
	e, ok := d.journal.get(key)
	if !ok {
		return types.NewError(cni.CodeUnknownContainer, "nothing is plugged into this sandbox", req.ContainerID)
	}
	if err := matches(e, want); err != nil {
		return types.NewError(cni.CodeNotAsPlugged, "prevResult differs from the result of the ADD", err.Error())
	}
	driver, err := d.Drivers.Driver(e.Port.Type)
	if err != nil {
		return plugError(fmt.Sprintf("checking port %s", e.Port.ID), err)
	}
	i := e.iface()
	i.Netns = req.Netns
	err = driver.Check(ctx, i)
	if errors.Is(err, plug.ErrTryAgain) {
		return plugError(fmt.Sprintf("checking port %s", e.Port.ID), err)
	}
	if err != nil {
		return types.NewError(cni.CodeNotAsPlugged, fmt.Sprintf("port %s is not as it was plugged", e.Port.ID), err.Error())
	}
	return nil
}

// gc unplugs every port of this CNI network that is not in the runtime's list of valid
// attachments. It skips ports with running calls.
func (d *Daemon) gc(ctx context.Context, req cni.Request) error {
	conf, err := cni.ParseConfig(req.Config)
	if err != nil {
		return err
	}
	valid, err := conf.ValidAttachments()
	if err != nil {
		return err
	}
	var failed []error
	for _, e := range d.journal.all() {
		if e.Network != conf.Name || valid[cni.Attachment{ContainerID: e.ContainerID, IfName: e.IfName}] {
			continue
		}
		if err := d.collect(ctx, e); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		first := asCNI(failed[0])
		return types.NewError(first.Code, fmt.Sprintf("%d attachments could not be unplugged", len(failed)), errors.Join(failed...).Error())
	}
	return nil
}

// collect unplugs e, which no sandbox needs, unless a call for it is running.
func (d *Daemon) collect(ctx context.Context, e entry) error {
	release, ok := d.sandboxes.Try(e.key())
	if !ok {
		return nil
	}
	defer release()
	current, ok := d.journal.get(e.key())
	if !ok || !current.Since.Equal(e.Since) || current.Port.ID != e.Port.ID || current.Deleted != e.Deleted {
		return nil
	}
	netns := e.Netns
	if d.netns.gone(netns) || d.netns.own(netns) {
		netns = ""
	}
	logr.FromContextOrDiscard(ctx).Info("unplugging a port that no sandbox has", "port", e.Port.ID, "container", e.ContainerID)
	return d.detach(ctx, e, netns)
}

// status answers STATUS.
func (d *Daemon) status(ctx context.Context) error {
	if err := d.ready(ctx); err != nil {
		return types.NewError(cni.CodePluginNotAvailable, "Kuryr cannot plug pods on this node yet", err.Error())
	}
	return nil
}
