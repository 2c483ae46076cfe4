// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/vishvananda/netlink"
)

// Keys of an interface's external_ids. The first three are those of every
// OpenStack agent; the others are Kuryr's own, and the first of them is the
// mark without which Kuryr removes nothing.
const (
	keyPort      = "iface-id"
	keyMAC       = "attached-mac"
	keyStatus    = "iface-status"
	keySandbox   = "kuryr-sandbox"
	keyBridge    = "kuryr-bridge"
	keyIndex     = "kuryr-ifindex"
	keyInstalled = "ovn-installed" // written by ovn-controller
	keyZone      = "ct-zone-"      // before a port's ID, of the bridge; written by ovn-controller
	keyRemote    = "ovn-remote"    // of Open_vSwitch: the switch is OVN's
	keySystem    = "system-id"     // of Open_vSwitch: name of the chassis
)

// isOVNs reads external_ids of Open_vSwitch. Without an ovn-remote, which may be for
// one of several chassis, ovn-controller does nothing (ovn-controller(8)).
func isOVNs(ids map[string]string) bool {
	return ids[keyRemote] != "" || ids[keyRemote+"-"+ids[keySystem]] != ""
}

// query says what to look for; what is empty is not looked for.
type query struct{ bridge, device, port string }

// view is what was found.
type view struct {
	userspace bool // data path of the bridge
	ovn       bool // whether OVN has the switch
	behind    bool // whether ovs-vswitchd has not done yet what it was told to
	port      string
	row       *ovsRow // interface called as the device
	rival     *ovsRow // interface called otherwise that claims the port
}

// ovsRow is one Interface.
type ovsRow struct {
	name   string
	ids    map[string]string
	ofport int // 0: ovs-vswitchd has not taken it yet, -1: it could not
	fault  string
}

func (r *ovsRow) ours() bool { return r.ids[keySandbox] != "" }

// sandboxes says whether it is that sandbox's, or one of the parking, whose rows
// stay as they are while sandboxes come and go. Of which it is then, the device's
// mark says.
func (r *ovsRow) sandboxes(containerID string) bool {
	return r.ids[keySandbox] == containerID || r.ids[keySandbox] == parkingName
}

// of says whether it was made for this very device, and not for one before it
// of the same name.
func (r *ovsRow) of(device netlink.Link) bool {
	return r != nil && r.ids[keyIndex] == strconv.Itoa(device.Attrs().Index)
}

// look finds all that q asks for as of one moment. That there is no such
// bridge is an error.
func (d *database) look(ctx context.Context, q query) (view, error) {
	columns := []string{"name", "external_ids", "ofport", "error"}
	none := []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, "")}
	claims := none
	if q.port != "" {
		id := ovsdb.OvsMap{GoMap: map[any]any{keyPort: q.port}}
		claims = []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, id)}
	}
	res, err := d.transact(ctx,
		selectOp("Open_vSwitch", nil, "external_ids", "cur_cfg", "next_cfg"),
		selectOp("Bridge", named(q.bridge), "datapath_type"),
		selectOp("Port", named(q.device), "_uuid"),
		selectOp("Interface", named(q.device), columns...),
		selectOp("Interface", claims, columns...),
	)
	if err != nil {
		return view{}, err
	}
	if q.bridge != "" && len(res[1].Rows) == 0 {
		return view{}, fmt.Errorf("Open vSwitch has no bridge %s: %w", q.bridge, ErrDataPath)
	}
	return readView(res, q.device), nil
}

func readView(res []ovsdb.OperationResult, device string) view {
	var v view
	for _, r := range res[0].Rows {
		v.ovn = isOVNs(stringMap(r["external_ids"]))
		done, _ := r["cur_cfg"].(float64)
		told, _ := r["next_cfg"].(float64)
		v.behind = done < told
	}
	for _, r := range res[1].Rows {
		v.userspace = r["datapath_type"] == "netdev"
	}
	for _, r := range res[2].Rows {
		if id, ok := r["_uuid"].(ovsdb.UUID); ok {
			v.port = id.GoUUID
		}
	}
	for _, r := range res[3].Rows {
		v.row = readRow(r)
	}
	for _, r := range res[4].Rows {
		if row := readRow(r); row.name != device {
			v.rival = row
		}
	}
	return v
}

// readRow reads one Interface. A column that is an empty set reads as zero.
func readRow(r ovsdb.Row) *ovsRow {
	name, _ := r["name"].(string)
	ofport, _ := r["ofport"].(float64)
	fault, _ := r["error"].(string)
	return &ovsRow{name: name, ids: stringMap(r["external_ids"]), ofport: int(ofport), fault: fault}
}

func stringMap(v any) map[string]string {
	m, _ := v.(ovsdb.OvsMap)
	out := make(map[string]string, len(m.GoMap))
	for k, v := range m.GoMap {
		key, _ := k.(string)
		out[key], _ = v.(string)
	}
	return out
}

// add puts a port with one interface on the bridge.
func (d *database) add(ctx context.Context, bridge, device string, ids map[string]string) error {
	external := ovsdb.OvsMap{GoMap: map[any]any{}}
	for k, v := range ids {
		external.GoMap[k] = v
	}
	res, err := d.transact(ctx,
		ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "Interface", UUIDName: "i",
			Row: ovsdb.Row{"name": device, "external_ids": external}},
		ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "Port", UUIDName: "p",
			Row: ovsdb.Row{"name": device, "interfaces": ovsdb.UUID{GoUUID: "i"}}},
		ovsdb.Operation{Op: ovsdb.OperationMutate, Table: "Bridge", Where: named(bridge),
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("ports", ovsdb.MutateOperationInsert, ovsdb.UUID{GoUUID: "p"})}},
	)
	if err == nil && res[2].Count == 0 { // removed since we looked: then nothing refers to the port, and it is gone too
		err = fmt.Errorf("Open vSwitch has no bridge %s: %w", bridge, ErrDataPath)
	}
	return err
}

// remove takes a port off whatever bridge it is on. It goes, and its interface
// with it, as nothing refers to it any more. It also asks ovs-vswitchd to say,
// by cur_cfg, when it has seen that; see settled.
func (d *database) remove(ctx context.Context, port string) error {
	id := ovsdb.UUID{GoUUID: port}
	_, err := d.transact(ctx,
		ovsdb.Operation{Op: ovsdb.OperationMutate, Table: "Bridge",
			Where:     []ovsdb.Condition{ovsdb.NewCondition("ports", ovsdb.ConditionIncludes, id)},
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("ports", ovsdb.MutateOperationDelete, id)}},
		ovsdb.Operation{Op: ovsdb.OperationMutate, Table: "Open_vSwitch", Where: every,
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("next_cfg", ovsdb.MutateOperationAdd, 1)}})
	return err
}

// settled returns once ovs-vswitchd has done what it had been told to before
// the call. A port that leaves and comes back under the same name in between
// two of its looks would be no change to it, and it would go on using the device
// that is gone; and a port that it sees leave after the next device of that name
// has come takes that one down. Both were seen with Open vSwitch 3.1, data path
// in user space.
func (d *database) settled(ctx context.Context) error {
	bell, stop := d.listen(rootBell)
	defer stop()
	lost := time.NewTicker(relook)
	defer lost.Stop()
	for {
		v, err := d.look(ctx, query{})
		if err != nil || !v.behind {
			return err
		}
		select {
		case <-bell:
		case <-lost.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for ovs-vswitchd to see earlier changes: %w: %w", ctx.Err(), ErrDataPath)
		}
	}
}

// every is true of every row: the library leaves out an empty list of conditions.
var every = []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionNotEqual,
	ovsdb.UUID{GoUUID: "00000000-0000-0000-0000-000000000000"})}

func selectOp(table string, where []ovsdb.Condition, columns ...string) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Where: where, Columns: columns}
}

func named(name string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)}
}
