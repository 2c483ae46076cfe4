// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func folder(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin", "x"), []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("x", filepath.Join(root, "bin", "y")); err != nil {
		t.Fatal(err)
	}
	return root
}

func files(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = data
	}
}

func pack(t *testing.T, root string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	err := run([]string{"-root", root, "-out", out, "-entrypoint", "/bin/x -v", "-cmd", "a b", "example/x:1", "example/x:2"})
	if err != nil {
		t.Fatalf("run() = %v", err)
	}
	left, err := filepath.Glob(out + ".*")
	if err != nil || len(left) > 0 {
		t.Errorf("files left beside the archive: %v, %v", left, err)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

func TestArchive(t *testing.T) {
	found := files(t, pack(t, folder(t)))
	var index []manifest
	if err := json.Unmarshal(found["manifest.json"], &index); err != nil || len(index) != 1 {
		t.Fatalf("manifest.json has %d entries, %v; want 1", len(index), err)
	}
	if diff := cmp.Diff([]string{"example/x:1", "example/x:2"}, index[0].RepoTags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	var config imageConfig
	if err := json.Unmarshal(found[index[0].Config], &config); err != nil {
		t.Fatalf("configuration %s: %v", index[0].Config, err)
	}
	if diff := cmp.Diff([]string{"/bin/x", "-v"}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
	if got, want := config.RootFS.DiffIDs, "sha256:"+index[0].Layers[0]; !slices.Equal(got, []string{want[:len(want)-len(".tar")]}) {
		t.Errorf("diff_ids = %v, want that of %s", got, want)
	}
	layer := files(t, found[index[0].Layers[0]])
	if got := string(layer["bin/x"]); got != "program" {
		t.Errorf("bin/x in the layer = %q, want %q", got, "program")
	}
	if _, ok := layer["bin/y"]; !ok {
		t.Error("the symbolic link bin/y is not in the layer")
	}
}

func TestSameFolderSameArchive(t *testing.T) {
	one, two := folder(t), folder(t)
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(two, "bin", "x"), long, long); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(pack(t, one), pack(t, two)) {
		t.Error("two folders that differ in dates only gave different archives")
	}
}

func TestRefusals(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	tests := map[string][]string{
		"no name":        {"-root", t.TempDir(), "-out", out},
		"no root":        {"-out", out, "example/x:1"},
		"no such folder": {"-root", filepath.Join(t.TempDir(), "none"), "-out", out, "example/x:1"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			if err := run(args); err == nil {
				t.Errorf("run(%q) succeeded", args)
			}
		})
	}
}
