// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr"

	"github.com/kuryr-go/kuryr/internal/cni"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// Deadlines on the socket, for a peer that neither sends nor receives.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
)

// serve answers CNI calls until ctx ends, and then finishes the running ones: an ADD gives up, a
// DEL completes.
func (d *Daemon) serve(ctx context.Context) error {
	listener, err := listen(d.Socket)
	if err != nil {
		return err
	}
	d.markLeft(ctx) // after listening, before answering: see cni.Leave
	close(d.marked)
	// Only serve cancels it, so that calls see the cause.
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	context.AfterFunc(ctx, func() {
		cancel(errStopping)
		_ = listener.Close()
	})
	err = d.accept(ctx, calls, listener)
	d.drain()
	return err
}

func (d *Daemon) accept(ctx, calls context.Context, listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // its client asks the next daemon
			}
			return nil
		}
		if err != nil {
			// For example too many open files: serve continues later.
			logr.FromContextOrDiscard(ctx).Error(err, "accepting a CNI call")
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		d.calls.Go(func() { d.answer(calls, conn) })
	}
}

func (d *Daemon) drain() {
	done := make(chan struct{})
	go func() { d.calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(drainTimeout):
	}
}

// listen makes the socket for root alone. It replaces the socket of an earlier daemon.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	// It is created under another name, so that no other user can ever connect; renaming replaces a
	// stale socket at once.
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	// The name is not removed at the end: by then it may belong to the next daemon.
	listener.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", path, err), listener.Close())
	}
	return listener, nil
}

// answer serves one connection, which is one call.
func (d *Daemon) answer(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(readTimeout))
	req, err := cni.ReadRequest(conn)
	var response cni.Response
	if err == nil {
		_ = conn.SetReadDeadline(time.Time{})
		response.Result, err = d.handle(ctx, conn, req)
	}
	response.Error = asCNI(err)
	d.metrics.count(req.Command, response.Error)
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := cni.WriteResponse(conn, response); err != nil {
		// The client no longer reads. A runtime that gave up on an ADD sends a DEL.
		logr.FromContextOrDiscard(ctx).V(1).Info("the caller of a CNI call did not read the answer", "command", req.Command, "container", req.ContainerID)
	}
}

// handle runs one call and logs its result.
func (d *Daemon) handle(ctx context.Context, conn net.Conn, req cni.Request) (r *types100.Result, err error) {
	log := logr.FromContextOrDiscard(ctx).WithValues(about(req)...)
	ctx = logr.NewContext(ctx, log)
	started := time.Now()
	found := true // whether the call had anything to do
	done := d.metrics.stage(req.Command, "total")
	defer func() {
		if p := recover(); p != nil {
			log.Info("a CNI call panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = types.NewError(cni.CodeInternal, "the Kuryr daemon panicked", fmt.Sprint(p))
		}
		done()
		logCall(log, req.Command, found, err, time.Since(started))
	}()
	switch req.Command {
	case "ADD":
		ctx, cancel := untilHangup(ctx, conn)
		defer cancel()
		return d.add(ctx, req)
	case "CHECK":
		ctx, cancel := untilHangup(ctx, conn)
		defer cancel()
		return nil, d.check(ctx, req)
	case "STATUS":
		return nil, d.status(ctx)
	}
	// A removal is never interrupted, because half a removal is useless.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), delTimeout)
	defer cancel()
	if req.Command == "GC" {
		return nil, d.gc(ctx, req)
	}
	found, err = d.del(ctx, req)
	return nil, err
}

// about returns log values that identify the call.
func about(req cni.Request) []any {
	values := []any{"command", req.Command}
	if req.ContainerID != "" {
		values = append(values, "container", req.ContainerID, "interface", req.IfName)
	}
	args, err := cni.ParseArgs(req.Args)
	switch {
	case err != nil && req.Args != "":
		values = append(values, "args", req.Args)
	case args.Pod() != "":
		values = append(values, "pod", args.Pod())
	}
	return values
}

// logCall logs the result of a call. Runtimes repeat the DEL of a sandbox. Such a DEL has nothing
// to do and is not logged as news.
func logCall(log logr.Logger, command string, found bool, err error, took time.Duration) {
	switch {
	case err != nil:
		e := asCNI(err)
		log.Info("CNI call refused", "code", e.Code, "reason", e.Msg, "details", e.Details, "took", took.String())
	case command == "STATUS":
	case !found:
		log.V(2).Info("CNI call done, there was nothing to do", "took", took.String())
	default:
		log.Info("CNI call done", "took", took.String())
	}
}

// untilHangup ends the context when the peer closes the connection. The peer sends nothing after
// its request, so the next read returns at the end.
func untilHangup(ctx context.Context, conn net.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		// The peer may send white space after the request; only a foreign client sends more.
		buf := make([]byte, 64)
		for {
			if _, err := conn.Read(buf); err != nil {
				cancel(errHungUp)
				return
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// The causes of a call's context that ended early.
var (
	errHungUp     = errors.New("the container runtime cancelled the call")
	errStopping   = errors.New("the Kuryr daemon is stopping")
	errSuperseded = errors.New("a DEL of the same sandbox came in between")
	errPodGone    = errors.New("the port is no longer bound to this pod")
)

var errNotSynced = errors.New("the KuryrPorts of this node have not been read from the Kubernetes API yet")

// interrupted returns the answer to a call whose context has ended early. It returns nil after
// its deadline and before its end.
func interrupted(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case cause == nil, errors.Is(cause, context.DeadlineExceeded):
		return nil
	case errors.Is(cause, errPodGone):
		return types.NewError(cni.CodePodGone, "the pod was deleted meanwhile", cause.Error())
	default:
		return types.NewError(cni.CodeTryAgain, cause.Error(), "")
	}
}

// plugError returns the answer to a failed call of a driver. The first match counts: a driver
// that asks for another try has failed, too.
func plugError(doing string, err error) error {
	code := cni.CodeInternal
	for _, known := range []struct {
		err  error
		code uint
	}{
		{plug.ErrNoNetns, cni.CodeInvalidNetns},
		{plug.ErrInvalid, cni.CodeInvalidConfig},
		{plug.ErrUnknownType, cni.CodeUnknownType},
		{plug.ErrNotWired, cni.CodeNotWired},
		{plug.ErrTryAgain, cni.CodeTryAgain},
		{plug.ErrDriver, cni.CodeDriver},
		{plug.ErrDataPath, cni.CodeDataPath},
		{context.DeadlineExceeded, cni.CodeDataPath}, // the slow part is the switch
	} {
		if errors.Is(err, known.err) {
			code = known.code
			break
		}
	}
	return types.NewError(code, doing, err.Error())
}

// asCNI converts any error to a CNI error.
func asCNI(err error) *types.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*types.Error](err); ok {
		return e
	}
	return types.NewError(cni.CodeInternal, "a fault in the Kuryr daemon", fmt.Sprint(err))
}

// result returns the answer to the ADD that made e.
func result(e entry, conf cni.Config, nodeMTU int) *types100.Result {
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: conf.DNS}
	if e.Port.Type != "vlan" && e.Port.Type != "macvlan" {
		r.Interfaces = append(r.Interfaces, &types100.Interface{Name: plug.HostDevice(e.Port.ID)}) // the node's end
	}
	pods := len(r.Interfaces)
	r.Interfaces = append(r.Interfaces,
		&types100.Interface{Name: e.IfName, Mac: e.iface().HardwareAddr().String(), Mtu: e.mtu(nodeMTU), Sandbox: e.Netns})
	for _, a := range e.Port.Addresses {
		ip := &types100.IPConfig{Interface: types100.Int(pods), Address: ipNet(a.Prefix)}
		if a.Gateway.IsValid() {
			ip.Gateway = a.Gateway.AsSlice()
		}
		r.IPs = append(r.IPs, ip)
	}
	hops := e.iface().Hops()
	slices.SortStableFunc(hops, func(a, b plug.Hop) int { // default routes first
		return cmp.Compare(min(a.Destination.Bits(), 1), min(b.Destination.Bits(), 1))
	})
	for _, hop := range hops {
		route := &types.Route{Dst: ipNet(hop.Destination)}
		if hop.Gateway.IsValid() {
			route.GW = hop.Gateway.AsSlice()
		}
		r.Routes = append(r.Routes, route)
	}
	return r
}

// mtu returns the smaller one of the port's MTU and node.mtu. A bridge, or a virtual machine's
// own interface, may limit it further, which only package plug sees.
func (e entry) mtu(node int) int {
	if node > 0 && (node < e.Port.MTU || e.Port.MTU == 0) {
		return node
	}
	return e.Port.MTU
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// matches returns an error unless one of the addresses in the result of an ADD is e's. Other plugins
// of a chain may have added to the result.
func matches(e entry, found []netip.Prefix) error {
	for _, a := range e.Port.Addresses {
		if slices.Contains(found, a.Prefix) {
			return nil
		}
	}
	return fmt.Errorf("none of its addresses is the port's: %v", found)
}
