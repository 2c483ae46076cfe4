// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// databaseTimeout bounds one call to the local database. The database either answers within
// milliseconds or does not run.
const databaseTimeout = 10 * time.Second

var errSilent = fmt.Errorf("no answer within %s", databaseTimeout)

// database is the local database of Open vSwitch (ovs-vswitchd.conf.db(5)).
//
// Reads always use transactions: a copy lags behind, and other programs use the switch, too. The
// few copied columns below only signal changes to waiting calls, and help to find a parked port
// unchanged.
type database struct {
	endpoint string

	connecting chan struct{} // token: one connects, the others wait
	mu         sync.Mutex
	conn       client.Client
	bells      map[string]map[chan struct{}]bool // by name of interface
}

// ovsInterface is an interface whose changes ring a bell.
type ovsInterface struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
	OfPort      *int              `ovsdb:"ofport"`
	Error       *string           `ovsdb:"error"`
}

// ovsPort is a port of a bridge. Its changes ring the bell of the interface with its name.
type ovsPort struct {
	UUID string  `ovsdb:"_uuid"`
	Name string  `ovsdb:"name"`
	Tag  *int    `ovsdb:"tag"`
	Mode *string `ovsdb:"vlan_mode"`
}

// ovsRoot is the root row, whose changes ring the other bell.
type ovsRoot struct {
	UUID        string            `ovsdb:"_uuid"`
	CurCfg      int               `ovsdb:"cur_cfg"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

// rootBell is the key of that bell. No interface can have this name.
const rootBell = ""

// close ends the connection.
func (d *database) close() {
	d.mu.Lock()
	c := d.conn
	d.conn = nil
	d.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

func (d *database) current() client.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conn
}

// drop forgets a broken connection. Closing it waits for the calls that use it; other callers need
// not wait for these.
func (d *database) drop(broken client.Client) {
	d.mu.Lock()
	if d.conn == broken {
		d.conn = nil
	}
	d.mu.Unlock()
	go broken.Close()
}

// connection returns the connection, and connects first if needed.
func (d *database) connection(ctx context.Context) (client.Client, error) {
	if c := d.current(); c != nil {
		return c, nil
	}
	select {
	case d.connecting <- struct{}{}:
		defer func() { <-d.connecting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := d.current(); c != nil {
		return c, nil
	}
	c, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = c
	return c, nil
}

func (d *database) connect(ctx context.Context) (client.Client, error) {
	if d.endpoint == "" {
		return nil, errors.New("no socket of the database is configured")
	}
	tables, err := model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		"Interface": &ovsInterface{}, "Port": &ovsPort{}, "Open_vSwitch": &ovsRoot{}})
	if err != nil {
		return nil, err
	}
	log := logr.Discard() // the connection outlives the call of ctx's logger; errors are returned
	c, err := client.NewOVSDBClient(tables, client.WithEndpoint(d.endpoint), client.WithLogger(&log))
	if err != nil {
		return nil, err
	}
	if err := c.Connect(ctx); err != nil {
		return nil, err
	}
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, m model.Model) { d.ring(m) },
		UpdateFunc: func(_ string, _, m model.Model) { d.ring(m) },
		DeleteFunc: func(_ string, m model.Model) { d.ring(m) },
	})
	row, port, root := &ovsInterface{}, &ovsPort{}, &ovsRoot{}
	watched := c.NewMonitor(client.WithTable(row, &row.Name, &row.ExternalIDs, &row.OfPort, &row.Error),
		client.WithTable(port, &port.Name, &port.Tag, &port.Mode), client.WithTable(root, &root.CurCfg, &root.ExternalIDs))
	if _, err := c.Monitor(ctx, watched); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// listen returns a channel that receives after each change of the interface with that name, and a
// function that ends this.
func (d *database) listen(name string) (<-chan struct{}, func()) {
	bell := make(chan struct{}, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bells[name] == nil {
		d.bells[name] = map[chan struct{}]bool{}
	}
	d.bells[name][bell] = true
	return bell, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.bells[name], bell)
		if len(d.bells[name]) == 0 {
			delete(d.bells, name)
		}
	}
}

func (d *database) ring(m model.Model) {
	name := rootBell
	switch row := m.(type) {
	case *ovsInterface:
		name = row.Name
	case *ovsPort:
		name = row.Name
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for bell := range d.bells[name] {
		select {
		case bell <- struct{}{}:
		default: // the last signal has not been received yet
		}
	}
}

// transact runs ops, all or none. If it finds the connection broken, it connects again, once:
// nothing has been sent by then.
func (d *database) transact(ctx context.Context, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, databaseTimeout, errSilent)
	defer cancel()
	results, err := d.send(ctx, ops)
	if errors.Is(err, client.ErrNotConnected) {
		results, err = d.send(ctx, ops)
	}
	if err == nil {
		var refused []ovsdb.OperationError
		if refused, err = ovsdb.CheckOperationResults(results, ops); len(refused) > 0 {
			err = refused[0]
		}
	}
	if err != nil {
		return nil, fmt.Errorf("asking Open vSwitch's database at %s: %w: %w", d.endpoint, err, ErrDataPath)
	}
	return results, nil
}

func (d *database) send(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	c, err := d.connection(ctx)
	if err != nil {
		return nil, err
	}
	results, err := c.Transact(ctx, ops...)
	// A call that its caller has cancelled does not show that the connection is broken.
	if err != nil && (ctx.Err() == nil || errors.Is(context.Cause(ctx), errSilent)) {
		d.drop(c)
	}
	return results, err
}

// copied returns the interface with that name, and whether the switch is OVN's, from the copy.
func (d *database) copied(ctx context.Context, name string) (view, error) {
	c := d.current()
	if c == nil || !c.Connected() {
		return view{}, fmt.Errorf("not connected to Open vSwitch's database: %w", ErrDataPath)
	}
	row, port := &ovsInterface{Name: name}, &ovsPort{Name: name}
	if err := errors.Join(c.Get(ctx, row), c.Get(ctx, port)); err != nil {
		return view{}, fmt.Errorf("looking for port %s of Open vSwitch: %w", name, err)
	}
	var roots []ovsRoot
	if err := c.List(ctx, &roots); err != nil || len(roots) != 1 {
		return view{}, fmt.Errorf("checking whether OVN controls Open vSwitch: %w", errors.Join(err, ErrDataPath))
	}
	return view{ovn: isOVNs(roots[0].ExternalIDs), row: &ovsRow{
		name: name, ids: row.ExternalIDs, ofport: orZero(row.OfPort), fault: orZero(row.Error),
		tag: orZero(port.Tag), mode: orZero(port.Mode),
	}}, nil
}

func orZero[T any](v *T) (of T) {
	if v != nil {
		of = *v
	}
	return of
}

// zone returns the zone of connection tracking that ovn-controller has assigned to the port.
func (d *database) zone(ctx context.Context, bridge, port string) (uint16, error) {
	res, err := d.transact(ctx, selectOp("Bridge", named(bridge), "external_ids"))
	if err != nil {
		return 0, err
	}
	for _, r := range res[0].Rows {
		if zone, err := strconv.ParseUint(stringMap(r["external_ids"])[keyZone+port], 10, 16); err == nil {
			return uint16(zone), nil
		}
	}
	return 0, fmt.Errorf("ovn-controller has given port %s no zone on bridge %s: the pod's connections are not known", port, bridge)
}
