// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel cannot deliver in ten seconds, and what is not delivered when a connection is closed,
// is never delivered. These are the options of the connection that a request was sent on.
func TestConnectionsDropOldRequests(t *testing.T) {
	c, _ := behind(t, 0, nil)
	var used net.Conn
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { used = i.Conn }})
	if err := c.Do(ctx, Request{Method: http.MethodGet, Path: []string{"ports"}}); err != nil {
		t.Fatal(err)
	}
	raw, err := used.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var timeout int
	var linger uint64 // on, and the seconds above it: a struct of two numbers of 32 bits
	var errTimeout, errLinger error
	if err := raw.Control(func(fd uintptr) {
		timeout, errTimeout = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		linger, errLinger = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_LINGER)
	}); err != nil || errTimeout != nil || errLinger != nil {
		t.Fatal(err, errTimeout, errLinger)
	}
	if timeout != 10_000 || linger != 1 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, SO_LINGER %#x; want 10000, 1 (on, for no time)", timeout, linger)
	}
}
