// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plug"
)

// recording is what the daemon of an older commit left on its node: see TestRecordUpgrade.
const recording = "testdata/upgrade/b9946cc.txtar"

// TestUpgradeChangesNothing starts this daemon where an older one has plugged pods. It plugs,
// unplugs and reports nothing, and does not change the journal. It answers kuryr-cni with the
// same bytes as the older daemon.
func TestUpgradeChangesNothing(t *testing.T) {
	t.Parallel()
	n, w, left := newNode(t), newWorld(t), readRecording(t)
	n.tables, n.services = w, w
	n.restore(left, "state/")
	for name, text := range left {
		if id, is := strings.CutPrefix(name, "api/"); is {
			port := &v1.KuryrPort{}
			if err := yaml.UnmarshalStrict(text, port); err != nil {
				t.Fatalf("KuryrPort %s: %v", id, err)
			}
			n.api.put(port)
		}
		if strings.HasPrefix(name, "state/attachments/") {
			var e struct {
				ContainerID string
				Port        struct{ ID string }
			}
			if err := json.Unmarshal(text, &e); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			n.plugged[e.Port.ID] = plug.Interface{PortID: e.Port.ID, ContainerID: e.ContainerID}
		}
	}
	n.start()
	for _, e := range n.daemon.journal.all() {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(left["state/attachments/"+e.key()]), string(data)); diff != "" {
			t.Errorf("journal file %s as it is understood (-recorded +understood):\n%s", e.key(), diff)
		}
	}
	n.eventually("it has looked for what no sandbox has", func() bool { return n.count("collect") > 0 })
	n.eventually("host ports are passed on", func() bool { return w.passes() == passes808 })
	time.Sleep(200 * time.Millisecond) // for reports
	n.changedNothing(left)
	for _, name := range slices.Sorted(maps.Keys(left)) {
		call, is := strings.CutSuffix(name, ".request")
		if !is {
			continue
		}
		if diff := cmp.Diff(string(left[call+".answer"]), string(n.exchange(left[name]))); diff != "" {
			t.Errorf("answer to %s (-recorded +now):\n%s", call, diff)
		}
		for name, text := range n.files("state/attachments") { // an ADD rewrites its own entry
			if diff := cmp.Diff(string(left[name]), text); diff != "" {
				t.Errorf("%s after %s (-recorded +now):\n%s", name, call, diff)
			}
		}
	}
	for _, port := range n.api.names() {
		n.rests(port, "")
	}
	if files := n.files("state/attachments"); len(files) > 0 {
		t.Errorf("the journal of a node without pods still has %v", slices.Collect(maps.Keys(files)))
	}
}

// TestUpgradeDoesWhatWasLeft: a DEL that kuryr-cni left between the older daemon and this one is
// done, once.
func TestUpgradeDoesWhatWasLeft(t *testing.T) {
	t.Parallel()
	n, w, left := newNode(t), newWorld(t), readRecording(t)
	n.tables, n.services = w, w
	n.restore(left, "state/")
	n.restore(left, "run/")
	n.start()
	n.rests(portA, "")
	n.eventually("the file is gone", func() bool { return len(n.files("run/deleted")) == 0 })
	if times := n.count("unplug"); times != 1 {
		t.Errorf("ports were unplugged %d times, want once", times)
	}
	for name := range left {
		if strings.HasPrefix(name, "state/attachments/") && name != "state/attachments/c1@eth0.json" && n.files("state")[name] == "" {
			t.Errorf("%s is not in the journal any more", name)
		}
	}
}

// changedNothing checks that a newly started daemon has changed nothing.
func (n *node) changedNothing(left map[string][]byte) {
	n.t.Helper()
	for _, step := range []string{"plug", "unplug", "park", "unpark"} {
		if times := n.count(step); times > 0 {
			n.t.Errorf("the driver was called %d times to %s", times, step)
		}
	}
	n.api.mu.Lock()
	if reports := n.api.reports; reports > 0 {
		n.t.Errorf("%d reports were written to the API server", reports)
	}
	n.api.mu.Unlock()
	was := map[string]string{}
	for name, text := range left {
		if strings.HasPrefix(name, "state/") {
			was[name] = string(text)
		}
	}
	if diff := cmp.Diff(was, n.files("state")); diff != "" {
		n.t.Errorf("files of the daemon (-before +after):\n%s", diff)
	}
}

// readRecording returns the files of the recording. The files of the daemon and of kuryr-cni have
// no newline at their end, but the archive adds one to each.
func readRecording(t *testing.T) map[string][]byte {
	t.Helper()
	archive, err := txtar.ParseFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, f := range archive.Files {
		if files[f.Name] = f.Data; !strings.HasPrefix(f.Name, "wire/") {
			files[f.Name] = bytes.TrimSuffix(f.Data, []byte("\n"))
		}
	}
	return files
}

// restore writes the recorded files below a folder.
func (n *node) restore(left map[string][]byte, folder string) {
	n.t.Helper()
	for name, text := range left {
		if !strings.HasPrefix(name, folder) {
			continue
		}
		path := filepath.Join(n.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
}

// files returns by name the files below a folder of the node.
func (n *node) files(folder string) map[string]string {
	n.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(filepath.Join(n.dir, folder), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(n.dir, path)
		all[name] = string(text)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

// exchange sends bytes to the daemon's socket and returns the complete answer.
func (n *node) exchange(request []byte) []byte {
	n.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(n.t.Context(), "unix", n.socket())
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(request); err != nil {
		n.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer
}

// names returns the names of all KuryrPorts.
func (s *server) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}
