// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/kuryr-go/kuryr/internal/cni"
)

// The log names the pod. It does not mention a DEL with nothing to do. How often STATUS is
// refused while the daemon starts is not told from here.
func TestLogOfCalls(t *testing.T) {
	n := newNode(t)
	var mu sync.Mutex
	var lines []string
	n.log = funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, "CNI call") && !strings.Contains(line, `"command"="STATUS"`) {
			lines = append(lines, line[:strings.Index(line, ` "took"`)])
		}
	}, funcr.Options{Verbosity: 1})
	n.start()
	n.api.put(kuryrPort(portA, uidA))
	n.do(request("ADD", "c1", "/run/netns/a"))
	n.do(request("DEL", "c1", "/run/netns/a"))
	n.do(request("DEL", "c1", ""))
	bad := request("ADD", "c2", "/run/netns/b")
	bad.Args = "K8S_POD_NAME=web"
	n.refuse(bad, cni.CodeInvalidEnvironment)
	n.end() // every call has been logged by then
	mu.Lock()
	defer mu.Unlock()
	want := []string{
		`"level"=0 "msg"="CNI call done" "command"="ADD" "container"="c1" "interface"="eth0" "pod"="default/web"`,
		`"level"=0 "msg"="CNI call done" "command"="DEL" "container"="c1" "interface"="eth0" "pod"="default/web"`,
		`"level"=0 "msg"="CNI call refused" "command"="ADD" "container"="c2" "interface"="eth0" "args"="K8S_POD_NAME=web" "code"=4 ` +
			`"reason"="CNI_ARGS: K8S_POD_NAMESPACE and K8S_POD_NAME are missing, and so is PORT_UUID" ` +
			`"details"="the container runtime must name the pod of the sandbox"`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}
