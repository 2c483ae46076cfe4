// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// .ci/run and hack/night.sh go on after a step that failed, and a step that was left
// out for want of time is one.
func TestSteps(t *testing.T) {
	t.Chdir(root)
	for _, tt := range []struct {
		name, steps string
		code        int
		want        []string
	}{
		{"all pass", "step one 1 true\nskip two 'not root'", 0, []string{"ok    one", "SKIP  two: not root"}},
		{"one fails", "step one 1 false\nstep two 1 true", 1, []string{"FAIL  one", "exit 1", "ok    two"}},
		{"no time is left", "step one 99 true\nstep two 1 true", 1, []string{"FAIL  one: no time left (99 s wanted)", "ok    two"}},
		{"the script fails", "step one 1 true\nexit 3", 3, []string{"ok    one"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			script := "set -euo pipefail\nlimit=60\n. hack/steps.sh\nsteps_begin\n" + tt.steps
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
			cmd.Env = append(os.Environ(), "KURYR_BED="+filepath.Join(t.TempDir(), "none")) // which is not stopped then
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("%s: exit code %d, want %d\n%s", script, code, tt.code, out)
			}
			_, summary, _ := strings.Cut(string(out), "== summary")
			for _, want := range tt.want {
				if !strings.Contains(summary, want) {
					t.Errorf("%s: the summary does not say %q:\n%s", script, want, out)
				}
			}
		})
	}
}
