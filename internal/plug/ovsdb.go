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

// Keys of an interface's external_ids. The first three are those of every OpenStack agent. The
// others are Kuryr's own; the first of them is the mark, without which Kuryr removes nothing.
const (
	keyPort      = "iface-id"
	keyMAC       = "attached-mac"
	keyStatus    = "iface-status"
	keySandbox   = "kuryr-sandbox"
	keyBridge    = "kuryr-bridge"
	keyIndex     = "kuryr-ifindex"
	keyInstalled = "ovn-installed" // written by ovn-controller
	keyZone      = "ct-zone-"      // followed by a port's ID; on the bridge; written by ovn-controller
	keyRemote    = "ovn-remote"    // in Open_vSwitch: the switch is OVN's
	keySystem    = "system-id"     // in Open_vSwitch: name of the chassis
)

// isOVNs reads external_ids of Open_vSwitch. Without an ovn-remote, for all chassis or for this
// one, ovn-controller does nothing (ovn-controller(8)).
func isOVNs(ids map[string]string) bool {
	return ids[keyRemote] != "" || ids[keyRemote+"-"+ids[keySystem]] != ""
}

// query selects rows; empty fields are ignored.
type query struct{ bridge, device, port string }

// view is the result of look.
type view struct {
	userspace bool // the bridge has a userspace data path
	ovn       bool // the switch is OVN's
	behind    bool // ovs-vswitchd has not finished the last change yet
	port      string
	row       *ovsRow // the interface with the device's name
	rival     *ovsRow // another interface that claims the port
}

// ovsRow is one Interface.
type ovsRow struct {
	name   string
	ids    map[string]string
	ofport int // 0: ovs-vswitchd has not added it yet; -1: it failed to
	fault  string
	tag    int    // VLAN of the switch's port; 0: none
	mode   string // vlan_mode of the switch's port
}

func (r *ovsRow) ours() bool { return r.ids[keySandbox] != "" }

// sandboxes reports whether the row belongs to that sandbox, or is a row of the parking. Rows of
// the parking do not change with sandboxes: the device's mark names the sandbox.
func (r *ovsRow) sandboxes(containerID string) bool {
	return r.ids[keySandbox] == containerID || r.ids[keySandbox] == parkingName
}

// of reports whether the row was made for this device, and not for an earlier one of the same
// name.
func (r *ovsRow) of(device netlink.Link) bool {
	return r != nil && r.ids[keyIndex] == strconv.Itoa(device.Attrs().Index)
}

// look returns a consistent view of everything that q selects. A missing bridge is an error.
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
		selectOp("Port", named(q.device), "_uuid", "tag", "vlan_mode"),
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
		for _, p := range res[2].Rows {
			tag, _ := p["tag"].(float64)
			v.row.tag = int(tag)
			v.row.mode, _ = p["vlan_mode"].(string)
		}
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

// add adds a port with one interface to the bridge. If dead is set, the port is isolated from its
// first moment on; see deadTag.
func (d *database) add(ctx context.Context, bridge, device string, ids map[string]string, dead bool) error {
	external := ovsdb.OvsMap{GoMap: map[any]any{}}
	for k, v := range ids {
		external.GoMap[k] = v
	}
	port := ovsdb.Row{"name": device, "interfaces": ovsdb.UUID{GoUUID: "i"}}
	if dead {
		port["tag"], port["vlan_mode"], port["trunks"] = deadTag, modeTrunk, deadTag
	}
	res, err := d.transact(ctx,
		ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "Interface", UUIDName: "i",
			Row: ovsdb.Row{"name": device, "external_ids": external}},
		ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "Port", UUIDName: "p",
			Row: port},
		ovsdb.Operation{Op: ovsdb.OperationMutate, Table: "Bridge", Where: named(bridge),
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("ports", ovsdb.MutateOperationInsert, ovsdb.UUID{GoUUID: "p"})}},
	)
	// The bridge was removed since the last look. Nothing refers to the port then, so it is
	// removed, too.
	if err == nil && res[2].Count == 0 {
		err = fmt.Errorf("Open vSwitch has no bridge %s: %w", bridge, ErrDataPath)
	}
	return err
}

// remove removes a port from its bridge. Nothing refers to the port then, so its row and its
// interface are deleted. It also makes ovs-vswitchd report, by cur_cfg, when it has seen that;
// see settled.
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

// settled returns when ovs-vswitchd has done everything that was requested before the call.
// Otherwise there are two faults. If a port leaves and returns under the same name between two
// looks of ovs-vswitchd, it sees no change and continues to use the deleted device. If it sees a
// port leave after the next device of that name exists, it takes that device down. Both were seen
// with Open vSwitch 3.1, data path in user space.
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

// every matches every row: the library omits an empty list of conditions.
var every = []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionNotEqual,
	ovsdb.UUID{GoUUID: "00000000-0000-0000-0000-000000000000"})}

func selectOp(table string, where []ovsdb.Condition, columns ...string) ovsdb.Operation {
	return ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Where: where, Columns: columns}
}

func named(name string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)}
}
