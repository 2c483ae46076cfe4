// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"runtime"
)

// image is what save writes: a folder, its tags and how to run it.
type image struct {
	root   string
	names  []string
	config runConfig
}

// runConfig is the part of an OCI image configuration that says how to run it.
type runConfig struct {
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	User       string   `json:",omitempty"`
	Env        []string `json:",omitempty"`
}

// imageConfig is an OCI image configuration.
type imageConfig struct {
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// manifest is an entry of manifest.json, the index of a `docker save` archive.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// save writes the archive beside out and renames it last, so that out is never
// half an image. The layer passes through a file, not through memory.
func (i image) save(out string) (err error) {
	layer, digest, err := i.layer(out + ".layer")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()

	f, err := os.Create(out + ".new")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := i.archive(f, layer, digest); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), out)
}

// layer writes the folder as a tar to a new file at path and returns it,
// positioned at its start, with its SHA-256 in hex. The caller closes and
// removes it.
func (i image) layer(path string) (*os.File, string, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	if err = writeLayer(io.MultiWriter(f, sum), i.root); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, "", err
	}
	return f, hex.EncodeToString(sum.Sum(nil)), nil
}

// archive writes layer, configuration and manifest to w. A file's name is its
// content's digest, as the format has it.
func (i image) archive(w io.Writer, layer *os.File, digest string) error {
	config, err := json.Marshal(imageConfig{
		Architecture: runtime.GOARCH,
		OS:           "linux",
		Config:       i.config,
		RootFS:       rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(config)
	m := manifest{
		Config:   hex.EncodeToString(sum[:]) + ".json",
		RepoTags: i.names,
		Layers:   []string{digest + ".tar"},
	}
	index, err := json.Marshal([]manifest{m})
	if err != nil {
		return err
	}

	archive := tar.NewWriter(w)
	if err := addFile(archive, m.Layers[0], layer); err != nil {
		return err
	}
	if err := addBytes(archive, m.Config, config); err != nil {
		return err
	}
	if err := addBytes(archive, "manifest.json", index); err != nil {
		return err
	}
	return archive.Close()
}
