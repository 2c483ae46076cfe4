// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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
