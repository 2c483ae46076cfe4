// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/kuryr-go/kuryr/internal/conntrack"
)

const flushTimeout = 5 * time.Second

// flushZone makes the switch forget the connections of a zone, as "ovs-appctl dpctl/flush-conntrack"
// does. A switch with data paths of several types refuses that.
func (s *Set) flushZone(ctx context.Context, zone uint16) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	err := s.control(ctx, "dpctl/flush-conntrack", fmt.Sprintf("zone=%d", zone))
	if err != nil {
		return fmt.Errorf("emptying zone %d of connection tracking: %w: %w", zone, err, ErrDataPath)
	}
	return nil
}

// control sends ovs-vswitchd a command (ovs-appctl(8)). Its control socket is in the folder of the
// database's socket. A process that has crashed leaves its socket, without a listener.
func (s *Set) control(ctx context.Context, command string, args ...string) error {
	dir := "/run/openvswitch"
	if path, local := strings.CutPrefix(s.config.OVSDB, "unix:"); local {
		dir = filepath.Dir(path)
	}
	sockets, _ := filepath.Glob(filepath.Join(dir, "ovs-vswitchd.*.ctl")) // it fails only for a bad pattern
	err := fmt.Errorf("ovs-vswitchd has no control socket in %s", dir)
	var conn net.Conn
	for _, socket := range sockets {
		if conn, err = new(net.Dialer).DialContext(ctx, "unix", socket); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	var answer struct{ Error *string }
	err = json.NewEncoder(conn).Encode(map[string]any{"id": 0, "method": command, "params": args})
	if err == nil {
		err = json.NewDecoder(conn).Decode(&answer)
	}
	if err == nil && answer.Error != nil {
		err = errors.New(strings.TrimSpace(*answer.Error))
	}
	return err
}

// forgetConnections removes the connections from and to i's addresses from the node's connection
// tracking, if it has one. Connections to a pod are found by the pod's address in their replies,
// even if they were redirected from another address.
func forgetConnections(ctx context.Context, i Interface) error {
	var all []conntrack.Match
	for _, a := range i.Addresses {
		pod := a.Prefix.Addr()
		all = append(all, conntrack.Match{V6: pod.Is6(), Source: pod}, conntrack.Match{V6: pod.Is6(), Answers: pod})
	}
	if err := conntrack.End(ctx, all, nil); err != nil && !conntrack.Untold(err) {
		return fmt.Errorf("forgetting the connections of port %s: %w", i.PortID, err)
	}
	return nil
}
