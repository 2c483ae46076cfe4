// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package recorded_test

import (
	"cmp"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
	"github.com/kuryr-go/kuryr/openstacksim/internal/recorded"
)

var record = flag.Bool("record", false, "write what the real cloud answers into testdata")

// limits are the quotas of the recorded cloud. The others are Neutron's defaults.
var limits = map[string]int{"router": 100, "security_group": 100, "security_group_rule": 1000}

// unplugged describes ports that no node plugs, as in the recordings.
const unplugged = "{ports: [{active: never}]}"

// TestSim replays the scenarios on the simulator, a new one for each.
func TestSim(t *testing.T) {
	for _, release := range openstacksim.Releases {
		t.Run(release, func(t *testing.T) {
			scenarios(t, release, func(t *testing.T, file string, s *recorded.Scenario) {
				t.Parallel()
				dials, err := dial.Parse([]byte(cmp.Or(s.Dials, unplugged)))
				if err != nil {
					t.Fatal(err)
				}
				cloud := openstacksim.Start(t, func(o *openstacksim.Options) {
					o.Release, o.Dials, o.Quota, o.Amphora = release, dials, limits, ofAmphora(file)
				})
				target, err := recorded.Existing(t.Context(), cloud.CloudsFile(t))
				if err != nil {
					t.Fatal(err)
				}
				target.Fault = simFaults{cloud}.do
				compare(t, target.Run(t.Context(), s), false)
			})
		})
	}
}

// TestReal replays the scenarios on the cloud that OS_CLOUD names, or records them there. Its
// user must be an admin. KURYR_BED_RELEASE names its release; the default is Zed.
func TestReal(t *testing.T) {
	name, file := os.Getenv("OS_CLOUD"), os.Getenv("OS_CLIENT_CONFIG_FILE")
	if name == "" || file == "" {
		t.Skip("OS_CLOUD or OS_CLIENT_CONFIG_FILE is not set: no real cloud to compare the recordings with")
	}
	cloud, err := recorded.Open(t.Context(), file, name)
	if cloud != nil {
		t.Cleanup(func() { finish(t, cloud.Close) })
	}
	if err != nil {
		t.Fatal(err)
	}
	bed := os.Getenv("KURYR_BED")
	if bed != "" {
		cloud.Fault = (&bedFaults{bed: bed}).do
	}
	scenarios(t, cmp.Or(os.Getenv("KURYR_BED_RELEASE"), openstacksim.Releases[0]), func(t *testing.T, file string, s *recorded.Scenario) {
		if ofAmphora(file) != (os.Getenv("KURYR_PROVIDER") == "amphora") {
			t.Skip("SKIPPED: scenarios of amphora need an Octavia with that provider, which others lack; KURYR_PROVIDER=amphora says so")
		}
		if s.Faulty() && bed == "" {
			t.Skip("SKIPPED: KURYR_BED is not set: no cloud whose databases may be changed")
		}
		t.Cleanup(func() { finish(t, cloud.Empty) })
		results := cloud.Run(t.Context(), s)
		if !*record {
			// Once more: a loaded cloud may still do in parallel what it usually finishes before
			// it answers.
			if other := different(results); len(other) > 0 {
				t.Logf("asking all of it again: %d answers differ, the first is that of %s:\n%s\n%v", len(other), other[0].Step.Title, other[0].Got, other[0].Err)
				finish(t, cloud.Empty)
				results = cloud.Run(t.Context(), s)
			}
			compare(t, results, true)
			return
		}
		for _, r := range results {
			if r.Err != nil {
				t.Errorf("%s: %v", r.Step.Title, r.Err)
			}
			r.Step.Want = r.Got
		}
		if err := os.WriteFile(file, []byte(s.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	})
}

// ofAmphora reports whether a scenario needs Octavia's provider amphora.
func ofAmphora(file string) bool { return strings.HasPrefix(filepath.Base(file), "amphora") }

// finish cleans up after the test's own context has ended.
func finish(t *testing.T, clean func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
	defer cancel()
	if err := clean(ctx); err != nil {
		t.Errorf("cleaning up: %v", err)
	}
}

// scenarios runs f for each file of a release as a subtest.
func scenarios(t *testing.T, release string, f func(t *testing.T, file string, s *recorded.Scenario)) {
	t.Helper()
	files, err := filepath.Glob("testdata/" + release + "/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata has %d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := recorded.Parse(string(text))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			f(t, file, s)
		})
	}
}

func different(results []recorded.Result) []recorded.Result {
	return slices.DeleteFunc(slices.Clone(results), func(r recorded.Result) bool { return r.Err == nil && r.Step.Fits(r.Got) })
}

func compare(t *testing.T, results []recorded.Result, real bool) {
	t.Helper()
	for _, r := range results {
		if r.Err != nil {
			t.Errorf("%s\n%s: %v", r.Step.Title, r.Step.Request[0], r.Err)
			continue
		}
		if r.Step.OnlyReal != "" && !real {
			continue
		}
		if !r.Step.Fits(r.Got) {
			diff := gocmp.Diff(strings.Split(r.Step.Want, "\n"), strings.Split(r.Got, "\n"))
			t.Errorf("%s\n%s: recorded - got +\n%s", r.Step.Title, strings.Join(r.Step.Request, "\n"), diff)
		}
	}
}
