// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Command packimage makes a container image of a folder without a container
// engine or a registry:
//
//	packimage -root DIR -out FILE.tar [-entrypoint "/bin/x -v"] [-cmd "a b"] [-user UID[:GID]] NAME...
//
// FILE becomes an archive of one layer in the format of `docker save`, which
// `ctr images import` and `docker load` read. Every NAME becomes a tag of it.
// Owners and dates are left out, so equal folders give equal archives.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packimage:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("packimage", flag.ExitOnError)
	root := flags.String("root", "", "folder that becomes the image's file system")
	out := flags.String("out", "", "archive to write")
	entrypoint := flags.String("entrypoint", "", "program and first arguments, split at spaces")
	cmd := flags.String("cmd", "", "default further arguments, split at spaces")
	user := flags.String("user", "", "UID or UID:GID to run as; root if empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *root == "" || *out == "" || flags.NArg() == 0 {
		return errors.New("want -root, -out and at least one image name; see -help")
	}
	img := image{
		root:  *root,
		names: flags.Args(),
		config: runConfig{
			Entrypoint: strings.Fields(*entrypoint),
			Cmd:        strings.Fields(*cmd),
			User:       *user,
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
	}
	if err := img.save(*out); err != nil {
		return fmt.Errorf("packing %q: %w", *root, err)
	}
	return nil
}
