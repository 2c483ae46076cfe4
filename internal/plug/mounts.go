// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package plug

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// lastingMounts returns an error if what this process mounts in dir ends with it.
// That is so for the first process of a container, whose mount namespace is
// nobody else's, unless the container shares the mounts in dir with the node. Any
// other process leaves them to whom it has the mount namespace from, if it is no
// more than that: propagation says nothing then, a node's mounts may be private.
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
		return fmt.Errorf("what is mounted in %s would end with the daemon's container, as it is not shared with the node (mountPropagation: Bidirectional)", dir)
	}
	return nil
}

// shared says whether mounts in dir are seen by others, too, according to a
// mountinfo (proc(5)), in which the mount that is on top comes last.
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

// unescape is for what would end a field of a mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
