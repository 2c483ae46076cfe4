// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kuryr-go/kuryr/internal/nft"
	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

// tables is what passes traffic on; *nft.Tables is one.
type tables interface {
	// Ensure makes the node pass on what want says and nothing else.
	Ensure(ctx context.Context, want nodeport.Table) (nft.Change, error)
	// Forwarding reports whether the node passes on others' packets at all.
	Forwarding(v6 bool) (bool, error)
}

// Times of node ports. What somebody else does to the tables (a firewall that is
// loaded again takes all of them away) is seen within tablesPeriod.
const (
	tablesPeriod = 30 * time.Second
	tablesRetry  = 5 * time.Second
	tablesSettle = 50 * time.Millisecond // for changes that come together
)

// nodePorts keeps what the node does for Services and for host ports of its pods:
// tables in the kernel, and answers at health check ports.
type nodePorts struct {
	node   string
	tables tables
	from   services                   // nil: there are none to be had
	hosts  func() []nodeport.HostPort // of this node's pods, as of now

	serve   atomic.Bool // Services are to be served; else they are left alone
	changed chan struct{}
	waiting chan chan outcome // those who wait for the next round
	// mark is a file that is there while there may be tables. Where there is none and
	// nothing to pass on the kernel is not even asked: to ask makes it load what it
	// has for them.
	mark string

	// What follows is the loop's.
	services *serviceWatch // nil: they are left alone
	// kept: the tables are an earlier process's, for Services that are not known yet.
	kept bool
	told map[string]string // what was logged last, by subject: once is enough

	entries   [2]atomic.Int64 // in the tables, of IPv4 and IPv6
	forwarded [2]atomic.Bool
	failures  atomic.Int64
	blocked   atomic.Int64 // health check ports that somebody else has
}

// newNodePorts makes them. The directory, which outlives the process, is there.
func newNodePorts(node, dir string, from services, t tables, hosts func() []nodeport.HostPort) *nodePorts {
	return &nodePorts{
		node: node, tables: t, from: from, hosts: hosts, changed: make(chan struct{}, 1), waiting: make(chan chan outcome),
		told: map[string]string{}, mark: filepath.Join(dir, "nodeports"),
	}
}

// run keeps them until ctx ends. The tables stay as they are then: traffic does
// not need the daemon.
func (n *nodePorts) run(ctx context.Context) error {
	if n.tables == nil {
		return nil
	}
	n.kept = n.marked()
	defer n.leave()
	n.loop(ctx)
	return nil
}

func (n *nodePorts) wake() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func (n *nodePorts) loop(ctx context.Context) {
	var answer func(outcome)
	for ctx.Err() == nil {
		n.follow(ctx)
		o, ok := n.ensure(ctx)
		if answer != nil {
			answer(o)
		}
		again := tablesPeriod
		if !ok {
			again = tablesRetry
		}
		answer = n.pause(ctx, again)
	}
}

// pause waits for the next round: until something has changed, and a little for what
// comes with it, or until somebody waits for the round, who is to be told by what it
// returns, or as long as it may take.
func (n *nodePorts) pause(ctx context.Context, longest time.Duration) (answer func(outcome)) {
	changed, over := n.changed, time.After(longest)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			changed, over = nil, time.After(tablesSettle)
		case w := <-n.waiting:
			return func(o outcome) { w <- o }
		case <-over:
			return nil
		}
	}
}

// follow begins or ends to watch Services, as it is to be now.
func (n *nodePorts) follow(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	switch on := n.from != nil && n.serve.Load(); {
	case on && n.services == nil:
		log.V(1).Info("node ports and external IPs of Services are on")
		n.services = watchServices(ctx, n.node, n.from, n.wake)
	case !on && n.services != nil:
		log.Info("node ports and external IPs of Services are off")
		n.leave()
	}
}

func (n *nodePorts) leave() {
	if n.services != nil {
		n.services.stop()
		n.services = nil
	}
}

// ensure makes all as the Services and host ports are now, and reports whether it is.
func (n *nodePorts) ensure(ctx context.Context) (outcome, bool) {
	hosts := n.hosts()
	known := n.services == nil || n.services.synced()
	if !known && (n.kept || len(hosts) == 0) {
		return outcome{}, true // until all Services are known, what an earlier process has made stays
	}
	n.kept = false
	wanted := n.services != nil || len(hosts) > 0
	if !wanted && !n.marked() {
		return outcome{}, true
	}
	if err := n.note(wanted); err != nil {
		n.tell("mark", err, func(err error) { logr.FromContextOrDiscard(ctx).Error(err, "passing nothing on") })
		return outcome{failed: [2]bool{true, true}, err: err}, false
	}
	var all []*corev1.Service
	if known {
		all = n.services.all()
	}
	want := nodeport.Plan(all, hosts, n.services.apiServers())
	change, err := n.tables.Ensure(ctx, want.Table)
	if !wanted {
		n.left(ctx, change, err)
	} else {
		n.report(ctx, want, change, err)
	}
	done := err == nil && change.Loopback == nil
	if n.services != nil {
		done = n.check(ctx, want.Checks, change.Failed) && done
	}
	return outcome{failed: change.Failed, err: err}, done || !wanted
}

// check answers at health check ports.
func (n *nodePorts) check(ctx context.Context, checks []nodeport.Check, failed [2]bool) bool {
	blocked, err := n.services.checks.ensure(ctx, checks, [2]bool{!failed[0], !failed[1]})
	n.blocked.Store(int64(blocked))
	n.tell("checks", err, func(err error) {
		logr.FromContextOrDiscard(ctx).Error(err, "answering at health check ports, will try again", "after", tablesRetry.String())
	})
	return err == nil
}

func (n *nodePorts) marked() bool {
	_, err := os.Stat(n.mark)
	return !errors.Is(err, fs.ErrNotExist)
}

// note writes the mark before there are tables.
func (n *nodePorts) note(wanted bool) error {
	if !wanted || n.marked() {
		return nil
	}
	if err := os.WriteFile(n.mark, nil, 0o600); err != nil {
		return fmt.Errorf("noting that there may be tables of node ports: %w", err)
	}
	return nil
}

// left says what became of tables that nobody wants any more. What is not to be had
// on a node that has nothing of the kind is no fault.
func (n *nodePorts) left(ctx context.Context, change nft.Change, err error) {
	log := logr.FromContextOrDiscard(ctx)
	err = errors.Join(err, change.Loopback, change.Unforgotten)
	if err == nil {
		log.Info("nothing is passed on any more: removed what there was", "removed", change.Removed)
		err = os.Remove(n.mark)
	}
	n.tell("tables", err, func(err error) {
		log.V(1).Info("nothing is passed on any more, and what there was cannot be removed", "reason", err.Error())
	})
	for i := range n.entries {
		n.entries[i].Store(0)
	}
	n.blocked.Store(0)
}
