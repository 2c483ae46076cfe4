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

// tables forwards traffic. *nft.Tables implements it.
type tables interface {
	// Ensure makes the node forward exactly what want says.
	Ensure(ctx context.Context, want nodeport.Table) (nft.Change, error)
	// Forwarding reports whether the node forwards packets at all.
	Forwarding(v6 bool) (bool, error)
}

// Intervals of node ports. A change of the tables by another program (a reloaded firewall deletes
// all of them) is seen within tablesPeriod.
const (
	tablesPeriod = 30 * time.Second
	tablesRetry  = 5 * time.Second
	tablesSettle = 50 * time.Millisecond // for several changes at once
)

// nodePorts does the node's work for Services and for host ports of its pods. It keeps tables in
// the kernel, and answers at health check ports.
type nodePorts struct {
	node   string
	tables tables
	from   services                   // nil: Services are not available
	hosts  func() []nodeport.HostPort // returns the current host ports of this node's pods

	serve   atomic.Bool // whether Services are served
	changed chan struct{}
	waiting chan chan outcome // callers that wait for the next round
	// mark is a file that exists while there may be tables. Without it, and with nothing to
	// forward, the daemon does not even ask the kernel, because that would load kernel modules.
	mark string

	// Only run uses the fields below.
	services *serviceWatch // nil: Services are not served
	// kept: the tables are an earlier process's, because the Services are not known yet.
	kept      bool
	logged    map[string]string          // the last logged text by subject, to log it once
	conflicts map[nodeport.Conflict]bool // of the last round

	entries   [2]atomic.Int64 // in the tables, of IPv4 and IPv6
	forwarded [2]atomic.Bool
	failures  atomic.Int64
	blocked   atomic.Int64 // health check ports that another program has
}

// newNodePorts returns node ports. The directory must exist, and outlives the process.
func newNodePorts(node, dir string, from services, t tables, hosts func() []nodeport.HostPort) *nodePorts {
	return &nodePorts{
		node: node, tables: t, from: from, hosts: hosts, changed: make(chan struct{}, 1), waiting: make(chan chan outcome),
		logged: map[string]string{}, mark: filepath.Join(dir, "nodeports"),
	}
}

// run updates the tables until ctx ends. The tables stay then, because traffic does not need the
// daemon.
func (n *nodePorts) run(ctx context.Context) error {
	if n.tables == nil {
		return nil
	}
	n.kept = n.marked()
	defer n.leave()
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
	return nil
}

func (n *nodePorts) wake() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// pause waits for the next round: until something has changed, plus a little for further changes;
// until a caller waits for the round and for its result; or until the period is over.
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

// follow starts or stops watching Services, as configured now.
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

// ensure updates the tables to the current Services and host ports, and reports whether that
// succeeded.
func (n *nodePorts) ensure(ctx context.Context) (outcome, bool) {
	hosts := n.hosts()
	known := n.services == nil || n.services.informer.HasSynced() && n.services.api.HasSynced()
	if !known && (n.kept || len(hosts) == 0) {
		// Until all Services are known, the tables of an earlier process stay.
		return outcome{}, true
	}
	n.kept = false
	wanted := n.services != nil || len(hosts) > 0
	if !wanted && !n.marked() {
		return outcome{}, true
	}
	if err := n.note(wanted); err != nil {
		n.tell("mark", err, func(err error) {
			logr.FromContextOrDiscard(ctx).Error(err, "node ports, external IPs and host ports are not forwarded")
		})
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
		logr.FromContextOrDiscard(ctx).Error(err, "serving health check ports, will try again", "after", tablesRetry.String())
	})
	return err == nil
}

func (n *nodePorts) marked() bool {
	_, err := os.Stat(n.mark)
	return !errors.Is(err, fs.ErrNotExist)
}

// note writes the mark before the first table is made.
func (n *nodePorts) note(wanted bool) error {
	if !wanted || n.marked() {
		return nil
	}
	if err := os.WriteFile(n.mark, nil, 0o600); err != nil {
		return fmt.Errorf("recording that tables of node ports may exist: %w", err)
	}
	return nil
}

// left reports the result for tables that are no longer needed. If the node does not support
// tables, that is no fault.
func (n *nodePorts) left(ctx context.Context, change nft.Change, err error) {
	log := logr.FromContextOrDiscard(ctx)
	err = errors.Join(err, change.Loopback, change.Unforgotten)
	if err == nil {
		log.Info("nothing is forwarded any more: removed Kuryr's tables", "removed", change.Removed)
		err = os.Remove(n.mark)
	}
	n.tell("tables", err, func(err error) {
		log.V(1).Info("nothing is forwarded any more, and Kuryr's tables cannot be removed", "reason", err.Error())
	})
	for i := range n.entries {
		n.entries[i].Store(0)
	}
	n.blocked.Store(0)
}

// report logs new results of a round and sets the metrics.
func (n *nodePorts) report(ctx context.Context, want nodeport.Wanted, change nft.Change, err error) {
	log := logr.FromContextOrDiscard(ctx)
	if change.Added+change.Removed+change.Built > 0 {
		log.V(1).Info("node ports", "added", change.Added, "removed", change.Removed, "tablesMade", change.Built, "all", len(want.Table))
	}
	if err != nil {
		n.failures.Add(1)
	}
	n.tell("tables", err, func(err error) {
		log.Error(err, "serving node ports, external IPs and host ports, will try again", "after", tablesRetry.String())
	})
	n.tell("connections", change.Unforgotten, func(err error) {
		log.Error(err, "UDP clients of changed node ports may still reach the previous endpoints: the kernel may lack nf_conntrack_netlink")
	})
	n.tell("loopback", change.Loopback, func(err error) {
		log.Error(err, "host ports may not answer at 127.0.0.1, will try again", "after", tablesRetry.String())
	})
	n.tellConflicts(log, want.Conflicts)
	for i, v6 := range []bool{false, true} {
		table := want.Table.Family(v6)
		n.entries[i].Store(int64(len(table)))
		n.tellForwarding(log, i, v6, table.Forwards())
	}
}

// tell calls say with err, unless err is the last one that it reported for that subject.
func (n *nodePorts) tell(subject string, err error, say func(error)) {
	now := ""
	if err != nil {
		now = err.Error()
	}
	if now != "" && now != n.logged[subject] {
		say(err)
	}
	n.logged[subject] = now
}

// tellConflicts logs each conflict when it begins.
func (n *nodePorts) tellConflicts(log logr.Logger, conflicts []nodeport.Conflict) {
	now := map[nodeport.Conflict]bool{}
	for _, c := range conflicts {
		now[c] = true
		if !n.conflicts[c] {
			log.Info("two objects claim the same port: a Service wins over a pod, and an older object over a younger one",
				"for", c.For, "holder", c.Holder, "address", c.Address.String(), "protocol", c.Protocol, "port", c.Port)
		}
	}
	n.conflicts = now
}

var errNotForwarding = errors.New("the node does not forward packets")

// tellForwarding reports that the node does not forward packets, which the tables do not show.
// The owner of the node decides about forwarding. It makes the node a router, and with IPv6 the
// node then learns no routes by itself.
func (n *nodePorts) tellForwarding(log logr.Logger, i int, v6, needed bool) {
	on, err := n.tables.Forwarding(v6)
	n.forwarded[i].Store(on || err != nil)
	if needed && err == nil && !on {
		err = errNotForwarding
	}
	if !needed {
		err = nil
	}
	setting := "net.ipv4.ip_forward"
	if v6 {
		setting = "net.ipv6.conf.all.forwarding"
	}
	n.tell(setting, err, func(err error) {
		log.Error(err, "node ports, external IPs and host ports do not answer from outside of this node: set the sysctl to 1", "sysctl", setting)
	})
}
