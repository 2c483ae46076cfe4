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
