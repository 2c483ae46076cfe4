// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Command pause keeps a pod's namespaces open. As the first process in them it
// also reaps what other processes leave behind, and it ends when asked to.
package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGINT, unix.SIGTERM)
	for s := range signals {
		if s != unix.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended: signals of one kind may be merged,
// so a single SIGCHLD can stand for several.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
	}
}
