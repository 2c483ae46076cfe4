// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Command kuryr-cni is Kuryr's CNI plugin. The container runtime runs it for every sandbox. It
// passes the call to the node's daemon over a Unix socket and prints the answer. docs/cni.md
// describes its configuration and its errors.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/kuryr-go/kuryr/internal/cni"
)

const about = "kuryr-cni: hands CNI calls of a container runtime to the Kuryr daemon of the node"

func main() {
	if err := run(); err != nil {
		printError(err)
		os.Exit(exitStatus(err.Code))
	}
}

// exitStatus is the code of an error, as far as an exit status can hold it. Runtimes read the code
// in the output for any status except 0. A script gets it from the status without parsing.
func exitStatus(code uint) int {
	if code == 0 || code > 254 {
		return 255
	}
	return int(code)
}

// run does the call. A panic becomes an error too: the runtime reads nothing
// but a CNI error.
func run() (err *types.Error) {
	defer func() {
		if p := recover(); p != nil {
			err = types.NewError(cni.CodeInternal, "kuryr-cni panicked", fmt.Sprint(p))
		}
	}()
	return skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: add, Del: del,
		Check:  func(args *skel.CmdArgs) error { return relay("CHECK", args, cni.CodeNoDaemon) },
		GC:     func(args *skel.CmdArgs) error { return relay("GC", args, cni.CodeNoDaemon) },
		Status: func(args *skel.CmdArgs) error { return relay("STATUS", args, cni.CodePluginNotAvailable) },
	}, version.All, usage())
}

// usage is for a person who runs the command by hand; a runtime that forgets
// CNI_COMMAND gets an error.
func usage() string {
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "CNI_") {
			return ""
		}
	}
	return about
}

func printError(e *types.Error) {
	out := struct {
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{version.Current(), e}
	data, err := json.MarshalIndent(out, "", "    ")
	if err != nil {
		data = fmt.Appendf(nil, `{"code": %d, "msg": "printing the error"}`, cni.CodeInternal)
	}
	// An error here cannot be reported anywhere.
	_, _ = os.Stdout.Write(append(data, '\n'))
}
