// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// sweepForever runs sweep at the start and periodically. Some ports get no DEL: a restarted node
// has none of its old sandboxes, and a runtime may forget one.
func (d *Daemon) sweepForever(ctx context.Context) error {
	tick := time.NewTicker(sweepPeriod)
	defer tick.Stop()
	for next := d.marked; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-next:
			next = nil
		case <-tick.C:
			d.markLeft(ctx) // DELs left while the daemon was only too busy
		}
		d.sweep(ctx)
	}
}

// sweep unplugs entries that are marked as deleted and entries whose network namespace is gone,
// repairs the others, and then unplugs what the journal does not know.
func (d *Daemon) sweep(ctx context.Context) {
	for _, e := range d.journal.all() {
		if ctx.Err() != nil {
			return
		}
		if !e.Deleted && !d.netns.gone(e.Netns) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, delTimeout)
		if err := d.collect(ctx, e); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "unplugging a port that no sandbox has, will try again",
				"port", e.Port.ID, "container", e.ContainerID)
		}
		cancel()
	}
	d.mend(ctx)
	ctx, cancel := context.WithTimeout(ctx, delTimeout)
	defer cancel()
	attached := func(containerID string) bool {
		return len(d.journal.where(func(e entry) bool { return e.ContainerID == containerID })) > 0
	}
	if err := d.Drivers.Collect(ctx, attached); err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Error(err, "looking for ports of no sandbox, will try again")
	}
}

// mend connects ports of running pods to the node's switch again, after another program has
// removed them. No CNI call would do that: a runtime does not check running pods.
func (d *Daemon) mend(ctx context.Context) {
	var live []plug.Interface
	for _, e := range d.journal.where(func(e entry) bool { return !e.Deleted }) {
		if !d.netns.gone(e.Netns) {
			live = append(live, e.iface())
		}
	}
	if len(live) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, delTimeout)
	defer cancel()
	log := logr.FromContextOrDiscard(ctx)
	mended, err := d.Drivers.Mend(ctx, live)
	d.metrics.mended.Add(float64(len(mended)))
	for _, i := range mended {
		log.Info("plugged a running pod's port into the node's switch again", "port", i.PortID, "pod", i.Pod)
	}
	if err != nil && ctx.Err() == nil {
		log.Error(err, "checking whether running pods are connected to the node's switch, will try again")
	}
}

// markLeft marks the entries in the journal whose DELs were left while the daemon was not
// running. The sweep unplugs them, however long that takes.
func (d *Daemon) markLeft(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	left, err := cni.Left(d.Socket)
	if err != nil {
		log.Error(err, "ignoring files that hold no DEL")
	}
	for _, req := range left {
		if err := d.markOne(req); err != nil {
			log.Error(err, "recording a pending DEL", "container", req.ContainerID)
		}
	}
}

func (d *Daemon) markOne(req cni.Request) error {
	key := attachmentKey(req.ContainerID, req.IfName)
	release, ok := d.sandboxes.Try(key)
	if !ok {
		return nil // the running call takes it back, or the next round handles it
	}
	defer release()
	// An ADD may have taken it back between the reading and the lock.
	if left, err := cni.IsLeft(d.Socket, req.ContainerID, req.IfName); err != nil || !left {
		return err
	}
	if e, ok := d.journal.get(key); ok {
		if err := d.markDeleted(e); err != nil {
			return err
		}
	}
	return cni.TakeBack(d.Socket, req.ContainerID, req.IfName)
}

// namespaces are the operations on network namespaces that the daemon itself needs.
type namespaces interface {
	gone(path string) bool // whether path no longer has a network namespace
	own(path string) bool  // whether it is the node's own
}

// osNamespaces are the network namespaces of this machine.
type osNamespaces struct{}

// gone returns true if path does not exist or is a plain file: a mount point becomes a plain file
// when the namespace is unmounted. Any other error proves nothing.
func (osNamespaces) gone(path string) bool {
	var fs unix.Statfs_t
	err := unix.Statfs(path, &fs)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return fs.Type != unix.NSFS_MAGIC && fs.Type != unix.PROC_SUPER_MAGIC
}

func (osNamespaces) own(path string) bool {
	own, err := ns.CheckNetNS(path)
	return err == nil && own
}
