// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The main goroutine keeps the main thread, so that no other goroutine enters a pod's namespace
// on it. /proc/self and /proc/net always show the main thread.
func init() { runtime.LockOSThread() }

// netns is an open network namespace. It exists at least until close.
type netns int

// openNetns opens the network namespace of a sandbox. It refuses this process's own namespace, by
// any path: changes for a pod must never reach the node.
func openNetns(path string) (netns, error) {
	if path == "" {
		return 0, ErrNoNetns
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s: %w", path, ErrNoNetns)
	}
	if err != nil {
		return 0, fmt.Errorf("opening the network namespace: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	if err := checkNetns(fd, path); err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return netns(fd), nil
}

func checkNetns(fd int, path string) error {
	var fsys unix.Statfs_t
	if err := unix.Fstatfs(fd, &fsys); err != nil {
		return fmt.Errorf("checking %s: %w", path, err)
	}
	// This is the mount point that a deleted namespace leaves.
	if fsys.Type != unix.NSFS_MAGIC {
		return fmt.Errorf("%s is no namespace: %w", path, ErrNoNetns)
	}
	var its, own unix.Stat_t
	if err := unix.Fstat(fd, &its); err != nil {
		return fmt.Errorf("checking %s: %w", path, err)
	}
	if err := unix.Stat("/proc/thread-self/ns/net", &own); err != nil {
		return fmt.Errorf("checking the node's network namespace: %w", err)
	}
	if its.Dev == own.Dev && its.Ino == own.Ino {
		return fmt.Errorf("%s is the node's own network namespace: %w", path, ErrInvalid)
	}
	return nil
}

func (n netns) close() { _ = unix.Close(int(n)) }

// do runs f in the namespace. Sockets, and files under /proc/sys/net, that f opens belong to the
// namespace. f must not start goroutines, because they would run outside of it.
func (n netns) do(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- n.enter(f) }()
	return <-done
}

// enter must be the last call of a goroutine. If the thread cannot return to its namespace, it
// stays locked, and the runtime ends it with the goroutine.
func (n netns) enter(f func() error) error {
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("opening the node's network namespace: %w", err)
	}
	defer func() { _ = unix.Close(home) }()
	if err := unix.Setns(int(n), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering the network namespace: %w", err)
	}
	err = f()
	if unix.Setns(home, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// lastingMounts returns an error if mounts of this process in dir end with it. That is so for the
// first process of a container, which has its own mount namespace, unless the container shares the
// mounts in dir with the node. The mounts of any other process belong to the process that gave it
// the mount namespace. Propagation says nothing then, because a node's mounts may be private.
func lastingMounts(dir string) error {
	if os.Getpid() != 1 {
		return nil
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if !shared(string(mounts), dir) {
		return fmt.Errorf("mounts in %s would end with the daemon's container, because they are not shared with the node (mountPropagation: Bidirectional)", dir)
	}
	return nil
}

// shared reports whether mounts in dir are visible outside, according to a mountinfo (proc(5)), in
// which the topmost mount is last.
func shared(mounts, dir string) bool {
	longest, is := 0, false
	for line := range strings.Lines(mounts) {
		field := strings.Fields(line)
		if len(field) < 7 {
			continue
		}
		point := strings.TrimSuffix(unescape.Replace(field[4]), "/")
		if len(point) < longest || dir != point && !strings.HasPrefix(dir, point+"/") {
			continue
		}
		longest, is = len(point), false
		for _, f := range field[6:] {
			if f == "-" {
				break
			}
			is = is || strings.HasPrefix(f, "shared:")
		}
	}
	return is
}

// unescape decodes characters that would end a field of a mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
