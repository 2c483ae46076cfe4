// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var flagName = regexp.MustCompile(`--[a-z-]+`)

// docs/kubectl-kuryr.md tells of every command and of every flag of its own.
func TestDocsTellOfEveryCommand(t *testing.T) {
	data, err := os.ReadFile("../../docs/kubectl-kuryr.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if path := strings.TrimPrefix(cmd.CommandPath(), "kubectl kuryr "); cmd.Runnable() && cmd.HasParent() && !cmd.HasSubCommands() && !strings.Contains(doc, "`"+path) {
			t.Errorf("it does not tell of %s", path)
		}
		for _, flag := range flagName.FindAllString(cmd.LocalNonPersistentFlags().FlagUsages(), -1) {
			if flag != "--help" && flag != "--version" && !strings.Contains(doc, flag) {
				t.Errorf("it does not tell of %s of %s", flag, cmd.Name())
			}
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(rootCommand(&tool{}))
}
