// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/kuryr-go/kuryr/internal/cni"
)

// asPlugin makes the test program the plugin.
const asPlugin = "KURYR_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestExitStatus: the process ends with the error's code, and what it prints is whole: libcni,
// by which containerd and CRI-O call plugins, takes code, message and details from there.
func TestExitStatus(t *testing.T) {
	t.Setenv(asPlugin, "yes")
	plugin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "none.sock")
	conf := func(version, socket string) string {
		return fmt.Sprintf(`{"cniVersion":%q,"name":"kuryr","type":"kuryr-cni","socket":%q,"prevResult":{"cniVersion":%[1]q}}`, version, socket)
	}
	for _, test := range []struct {
		command, netns, stdin string
		want                  uint
	}{
		{"STATUS", "", conf("1.0.0", socket), cni.CodeIncompatibleVersion},
		{"ADD", "", conf("1.0.0", socket), cni.CodeInvalidEnvironment},
		{"STATUS", "", conf("1.1.0", "none.sock"), cni.CodeInvalidConfig},
		{"STATUS", "", "{", cni.CodeDecoding},
		{"ADD", "/proc/self/ns/net", conf("1.0.0", socket), cni.CodeInvalidNetns},
		{"STATUS", "", conf("1.1.0", socket), cni.CodePluginNotAvailable},
		{"CHECK", "/run/netns/none", conf("1.0.0", socket), cni.CodeNoDaemon},
	} {
		t.Run(fmt.Sprint(test.command, " ends with ", test.want), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), plugin)
			cmd.Env = append(os.Environ(), "CNI_COMMAND="+test.command, "CNI_NETNS="+test.netns,
				"CNI_CONTAINERID=c", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin")
			cmd.Stdin = strings.NewReader(test.stdin)
			out, err := cmd.Output()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != int(test.want) {
				t.Errorf("it ends with %v, want exit status %d", err, test.want)
			}
			// For any error of Run, libcni's RawExec.pluginErr decodes this and returns it.
			var told types.Error
			if err := json.Unmarshal(out, &told); err != nil || told.Code != test.want || told.Msg == "" {
				t.Errorf("it prints %s (%v), want code %d and a message", out, err, test.want)
			}
		})
	}
}

func TestExitStatusOfCodes(t *testing.T) {
	for code, want := range map[uint]int{1: 1, 11: 11, 108: 108, 199: 199, 254: 254, 255: 255, 256: 255, 999: 255, 0: 255} {
		if got := exitStatus(code); got != want {
			t.Errorf("exitStatus(%d) = %d, want %d", code, got, want)
		}
	}
}
