// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// namespaces is what the daemon asks of network namespaces itself.
type namespaces interface {
	gone(path string) bool // no network namespace is there any more
	own(path string) bool  // it is the node's own
}

// osNamespaces are those of this machine.
type osNamespaces struct{}

// gone takes a path for gone if there is no file, or a plain one: that is what
// a mount point is after the namespace was unmounted. Any other trouble with
// looking is no proof.
func (osNamespaces) gone(path string) bool {
	var fs unix.Statfs_t
	err := unix.Statfs(path, &fs)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return fs.Type != unix.NSFS_MAGIC && fs.Type != unix.PROC_SUPER_MAGIC
}

func (osNamespaces) own(path string) bool {
	theirs, err := os.Stat(path)
	if err != nil {
		return false
	}
	ours, err := os.Stat("/proc/self/ns/net")
	return err == nil && os.SameFile(ours, theirs)
}
