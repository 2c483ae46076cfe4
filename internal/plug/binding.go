// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
)

// ErrTryAgain: a binding driver reports that the same call may succeed later.
var ErrTryAgain = errors.New("try again later")

const (
	bindingTimeout = 30 * time.Second
	bindingSays    = 4 << 10 // bytes kept of a driver's output
	bindingPath    = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// exitTryAgain is an exit code of binding drivers (docs/binding-drivers.md): EX_TEMPFAIL of sysexits(3).
const exitTryAgain = 75

// binding is the wiring by a binding driver: an executable that connects the node's end of the pair
// to the SDN.
type binding struct {
	set  *Set
	path string // relative to the root folder that it runs in
}

// findBinding finds the executable. The caller has checked typ, which comes from outside and
// names a file that is run as root.
func findBinding(s *Set, typ string) (Driver, error) {
	path, err := filepath.Abs(filepath.Join(s.config.DriverDir, typ))
	if err != nil {
		return nil, fmt.Errorf("looking for a driver for %q: %w", typ, err)
	}
	info, err := os.Stat(filepath.Join(s.config.HostRoot, path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%q: there is no %s: %w", typ, path, ErrUnknownType)
	case err != nil:
		return nil, fmt.Errorf("%q: %w: %w", typ, err, ErrUnknownType)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return nil, fmt.Errorf("%q: %s is not executable: %w", typ, path, ErrUnknownType)
	}
	for _, at := range []string{path, filepath.Dir(path)} {
		if err := ownersOnly(filepath.Join(s.config.HostRoot, at)); err != nil {
			return nil, fmt.Errorf("%q: %w: %w", typ, err, ErrUnknownType)
		}
	}
	return paired{s, binding{s, path}}, nil
}

// ownersOnly returns an error if another user than root, or the daemon's own user, may change the
// file at path. The daemon runs the file as root, and a user who may write to its folder may
// replace it.
func ownersOnly(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s does not belong to root", path)
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("%s is writable by others than its owner", path)
	}
	return nil
}

// run runs the driver. It is killed, with all that it has started, if it takes too long.
func (b binding) run(ctx context.Context, verb string, i Interface) error {
	stdin, err := describe(verb, i)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bindingTimeout)
	defer cancel()
	said := &tail{limit: bindingSays}
	cmd := exec.CommandContext(ctx, b.path, verb)
	cmd.Env, cmd.Dir = environment(verb, i), "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), said, said
	// The container has neither a shell nor the programs that the driver calls: the node has them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Chroot: b.set.config.HostRoot}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for processes that left the process group and keep stdout open
	err = cmd.Run()
	logr.FromContextOrDiscard(ctx).V(1).Info("binding driver returned",
		"driver", b.path, "verb", verb, "port", i.PortID, "exit", cmd.ProcessState.ExitCode(), "says", said.String())
	return b.outcome(ctx, verb, err, said.String())
}

// outcome returns what the end of a run means.
func (b binding) outcome(ctx context.Context, verb string, err error, said string) error {
	var exit *exec.ExitError
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: killed because it took too long: %s: %w: %w", b.path, verb, said, ErrDriver, ctx.Err())
	case errors.As(err, &exit) && exit.ExitCode() == exitTryAgain:
		return fmt.Errorf("%s %s: %s: %w: %w", b.path, verb, said, ErrDriver, ErrTryAgain)
	}
	return fmt.Errorf("%s %s: %w: %s: %w", b.path, verb, err, said, ErrDriver)
}

// tail keeps the end of the text written to it.
type tail struct {
	limit int
	kept  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// String returns the kept text as one line, for messages and logs.
func (t *tail) String() string {
	s := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(t.kept), "?"))
	if s = strings.TrimSpace(s); s == "" {
		return "it said nothing"
	}
	return s
}

func (binding) prepare(context.Context, pair) (layout, error) { return layout{}, nil }

func (binding) layout(context.Context, Interface) (layout, error) { return layout{}, nil }

func (b binding) attach(ctx context.Context, p pair, _ netlink.Link) error {
	return b.run(ctx, "plug", p.i)
}

// wait returns at once: a driver returns only after it has connected the port.
func (binding) wait(context.Context, Interface) error { return nil }

// detach does not call the driver for a port that is plugged for the first time. In unplug a
// missing device proves nothing, because the device ends with its sandbox.
func (b binding) detach(ctx context.Context, p pair, node netlink.Link, plugging bool) error {
	if plugging && node == nil {
		return nil
	}
	return b.run(ctx, "unplug", p.i)
}

func (b binding) attached(ctx context.Context, p pair, _ netlink.Link) error {
	return b.run(ctx, "check", p.i)
}
