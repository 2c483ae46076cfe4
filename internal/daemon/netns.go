// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"os"

	"github.com/containernetworking/cni/pkg/ns"
	"golang.org/x/sys/unix"
)

// namespaces are the operations on network namespaces that the daemon itself needs.
type namespaces interface {
	gone(path string) bool // whether path no longer has a network namespace
	own(path string) bool  // whether it is the node's own
}

// osNamespaces are the network namespaces of this machine.
type osNamespaces struct{}

// gone returns true if path does not exist or is a plain file: a mount point becomes a plain file
// when the namespace is unmounted. Any other error proves nothing.
func (osNamespaces) gone(path string) bool {
	var fs unix.Statfs_t
	err := unix.Statfs(path, &fs)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	return fs.Type != unix.NSFS_MAGIC && fs.Type != unix.PROC_SUPER_MAGIC
}

func (osNamespaces) own(path string) bool {
	own, err := ns.CheckNetNS(path)
	return err == nil && own
}
