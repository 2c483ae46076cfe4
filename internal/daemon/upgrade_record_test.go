// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/kuryr-go/kuryr/internal/cni"
)

const recordHeader = `# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
#
# What the daemon of one commit, which the file is named for, has left on its node: its
# files (state), the KuryrPorts (api), a DEL that kuryr-cni has left for it (run), and what
# it has answered then to what it was asked at its socket (wire). TestRecordUpgrade has
# written it, at that commit; TestUpgradeChangesNothing reads it. It is not to be edited.
`

// TestRecordUpgrade writes a recording of the daemon that it is built with into the file
// that KURYR_RECORD_UPGRADE names:
//
//	KURYR_RECORD_UPGRADE=b9946cc.txtar go test -run TestRecordUpgrade ./internal/daemon/
//
// Three pods are plugged: one with host ports, one on a virtual machine, one whose port
// CNI_ARGS bring.
func TestRecordUpgrade(t *testing.T) {
	file := os.Getenv("KURYR_RECORD_UPGRADE")
	if file == "" {
		t.Skip("SKIPPED: it writes the file that KURYR_RECORD_UPGRADE names")
	}
	n, w := nodeWithTables(t)
	nested := nestedPort("vlan", 101)
	nested.Name, nested.Spec.PodRef.UID, nested.Spec.PodRef.Name = portB, uidB, "nested"
	n.api.put(nested)
	n.start()
	requests := []cni.Request{
		withHostPorts(request("ADD", "c1", "/run/netns/a"), web8080),
		request("ADD", "c2", "/run/netns/b"),
		request("ADD", "c3", "/run/netns/b"),
	}
	requests[1].Args = strings.NewReplacer("=web", "=nested", uidA, uidB).Replace(requests[1].Args)
	requests[2].Args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=args;PORT_UUID=c28c7404-7495-4557-b7fc-3e293508dbc6;IPV4=10.0.0.15/16;GW=10.0.0.1;PORT_TYPE=midonet"
	for _, req := range requests {
		n.do(req)
	}
	n.rests(portA, "c1")
	n.rests(portB, "c2")
	n.eventually("host ports are passed on", func() bool { return w.passes() == passes808 })
	n.end()
	if err := cni.Leave(n.socket(), request("DEL", "c1", "/run/netns/a")); err != nil {
		t.Fatal(err)
	}
	archive := n.recorded()
	if err := os.RemoveAll(n.dir + "/run/deleted"); err != nil {
		t.Fatal(err)
	}
	n.start()
	for i, req := range requests {
		archive.Files = append(archive.Files, n.conversation(i+1, req)...)
	}
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil { //nolint:gosec // it is read like a source file
		t.Fatal(err)
	}
}

// recorded returns the files of the node and the KuryrPorts.
func (n *node) recorded() *txtar.Archive {
	n.t.Helper()
	archive := &txtar.Archive{Comment: []byte(recordHeader)}
	files := n.files("")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(files[name], "\n") {
			n.t.Errorf("%s has a newline at its end, which readRecording takes away", name)
		}
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: []byte(files[name])})
	}
	for _, name := range n.api.names() {
		port := n.api.objects[name]
		port.ResourceVersion = ""
		text, err := yaml.Marshal(port)
		if err != nil {
			n.t.Fatal(err)
		}
		archive.Files = append(archive.Files, txtar.File{Name: "api/" + name, Data: text})
	}
	return archive
}

// conversation returns the daemon's answers to the ADD of a plugged sandbox, to its CHECK, to its
// DEL, twice, and to a CHECK after that.
func (n *node) conversation(i int, add cni.Request) (files []txtar.File) {
	n.t.Helper()
	var prev []byte
	for j, command := range []string{"ADD", "CHECK", "DEL", "DEL", "CHECK"} {
		req := add
		if req.Command = command; command != "ADD" {
			req.Config = []byte(strings.TrimSuffix(string(add.Config), "}") + `,"prevResult":` + string(prev) + "}")
		}
		text, err := json.Marshal(req)
		if err != nil {
			n.t.Fatal(err)
		}
		text = append(text, '\n') // as cni.Call sends it
		answer := n.exchange(text)
		if command == "ADD" {
			var got struct{ Result json.RawMessage }
			if err := json.Unmarshal(answer, &got); err != nil {
				n.t.Fatal(err)
			}
			prev = got.Result
		}
		name := fmt.Sprintf("wire/%d-%d-%s", i, j+1, command)
		files = append(files, txtar.File{Name: name + ".request", Data: text}, txtar.File{Name: name + ".answer", Data: answer})
	}
	return files
}
