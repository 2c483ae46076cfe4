// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"

	"github.com/go-logr/logr"

	"github.com/kuryr-go/kuryr/internal/nft"
	"github.com/kuryr-go/kuryr/internal/plan/nodeport"
)

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
