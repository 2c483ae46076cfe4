// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sendPatience is for how long the kernel tries to deliver what was sent. Its default is a quarter of an
// hour: after a network fault of minutes, requests that Kuryr gave up long ago would still be carried out.
const sendPatience = 10 * time.Second

// dialer makes connections that deliver no old requests: see sendPatience. A closed one drops what it
// has not delivered. The times are those of http.DefaultTransport.
var dialer = &net.Dialer{
	Timeout: 30 * time.Second, KeepAlive: 30 * time.Second,
	Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(sendPatience.Milliseconds())),
				unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
			)
		})
		return errors.Join(failed, err)
	},
}
