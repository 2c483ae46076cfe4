// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr"

	"github.com/kuryr-go/kuryr/internal/cni"
)

// Deadlines on the socket, for a peer that sends or takes nothing.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
)

// serve answers CNI calls until ctx ends, and then finishes those under way:
// an ADD gives up, a DEL is done.
func (d *Daemon) serve(ctx context.Context) error {
	listener, err := listen(d.Socket)
	if err != nil {
		return err
	}
	d.markLeft(ctx) // after listening, before answering: see cni.Leave
	close(d.marked)
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // ended below only, so that they know why
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
			// Too many open files, say: go on when it is over.
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

// listen makes the socket for root alone, in place of one that an earlier
// daemon left.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	// Made under another name: at no time may anybody else connect, and
	// renaming replaces a stale socket at once.
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	// The name is not removed at the end: by then it may be the next daemon's.
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
		// Nobody is there to read it. A runtime that gave up on an ADD sends a DEL.
		logr.FromContextOrDiscard(ctx).V(1).Info("a CNI call's answer found no reader", "command", req.Command, "container", req.ContainerID)
	}
}

// handle does one call and logs how it went.
func (d *Daemon) handle(ctx context.Context, conn net.Conn, req cni.Request) (r *types100.Result, err error) {
	log := logr.FromContextOrDiscard(ctx).WithValues(about(req)...)
	ctx = logr.NewContext(ctx, log)
	started := time.Now()
	found := true // something to do
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
	// What takes away is not broken off: half done helps nobody.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), delTimeout)
	defer cancel()
	if req.Command == "GC" {
		return nil, d.gc(ctx, req)
	}
	found, err = d.del(ctx, req)
	return nil, err
}

// about says which call it is, in the log.
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

// logCall says how a call went. Runtimes repeat the DEL of a sandbox, which then
// finds nothing to do and is no news.
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

// untilHangup ends the context when the peer closes the connection: it says
// nothing after its request, so whatever a read brings is the end.
func untilHangup(ctx context.Context, conn net.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		// More than white space after the request would be a foreign client.
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
