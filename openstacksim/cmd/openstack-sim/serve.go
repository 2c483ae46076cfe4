// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

type serveFlags struct {
	listen, url, clouds, dials, latency string
	lines, hosts, ovs                   []string
	seed                                uint64
	password, release                   string
	lifetime                            time.Duration
	amphora, lbaasv2                    bool
}

// serveCommand is `openstack-sim serve`.
func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Be an OpenStack until told to end",
		Example: "  openstack-sim serve --write-clouds clouds.yaml\n" +
			"  openstack-sim serve --latency measured --dial 'network POST /v2.0/ports: [ok, lost, 503]'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), cmd.OutOrStdout(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:5000", "address to listen on; port 0 is any that is free")
	flags.StringVar(&f.url, "url", "", "where clients reach it, if that is not http:// and the address")
	flags.StringVar(&f.clouds, "write-clouds", "", "file to write a clouds.yaml to, with clouds admin, kuryr and tenant")
	flags.StringVar(&f.dials, "dials", "", "file that says what shall go badly")
	flags.StringArrayVar(&f.lines, "dial", nil, "one rule more, as in 'network POST /v2.0/ports: 503'; may be given again")
	flags.StringVar(&f.latency, "latency", "none", "how long calls take: none, or measured, as on a real OpenStack")
	flags.StringSliceVar(&f.hosts, "hosts", []string{"node1"}, "nodes that ports can be bound to")
	flags.StringSliceVar(&f.ovs, "ovs-hosts", nil, "nodes among --hosts with neutron-openvswitch-agent in place of OVN")
	flags.Uint64Var(&f.seed, "seed", 1, "of IDs and of what the dials choose: the same seed and calls give the same run")
	flags.StringVar(&f.password, "password", openstacksim.Password, "of users admin, kuryr and tenant")
	flags.DurationVar(&f.lifetime, "token-lifetime", openstacksim.Lifetime, "after which a token has expired")
	flags.StringVar(&f.release, "release", openstacksim.Releases[0], "of OpenStack: "+strings.Join(openstacksim.Releases, " or "))
	flags.BoolVar(&f.amphora, "amphora", false, "have the load balancer provider amphora besides ovn")
	flags.BoolVar(&f.lbaasv2, "lbaasv2", false, "have Neutron itself serve load balancers, and no Octavia")
	return cmd
}

// serve listens until ctx ends. What it prints first is the URL.
func serve(ctx context.Context, out io.Writer, f serveFlags) error {
	set, err := f.set()
	if err != nil {
		return err
	}
	if f.lifetime <= 0 {
		return fmt.Errorf("--token-lifetime is %v: write more than 0s", f.lifetime)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer l.Close()
	url := f.url
	if url == "" {
		url = "http://" + l.Addr().String()
	}
	ovs := map[string]bool{}
	for _, host := range f.ovs {
		ovs[host] = false
	}
	cloud, err := openstacksim.New(openstacksim.Options{
		URL: url, Seed: f.seed, Dials: set, Hosts: f.hosts, OVS: ovs, Password: f.password, Lifetime: f.lifetime, Release: f.release, Amphora: f.amphora, LBaaSv2: f.lbaasv2,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Stop: die,
	})
	if err != nil {
		return err
	}
	defer cloud.Close()
	if f.clouds != "" {
		if err := writeFile(f.clouds, cloud.Clouds()); err != nil {
			return fmt.Errorf("--write-clouds: %w", err)
		}
	}
	fmt.Fprintln(out, cloud.URL())
	return listen(ctx, l, cloud)
}

// die ends the process as a crash does: nothing is finished, no answer goes out.
func die(rule string) {
	fmt.Fprintf(os.Stderr, "openstack-sim: stopped, as dialled by %q\n", rule)
	os.Exit(exitStopped)
}

func (f serveFlags) set() (*dial.Set, error) {
	set := &dial.Set{}
	if f.dials != "" {
		text, err := os.ReadFile(f.dials)
		if err != nil {
			return nil, fmt.Errorf("--dials: %w", err)
		}
		if set, err = dial.Parse(text); err != nil {
			return nil, fmt.Errorf("--dials %s: %w", f.dials, err)
		}
	}
	lines := f.lines
	if f.latency != "none" {
		lines = append([]string{"preset: " + f.latency}, lines...)
	}
	// The last given comes first otherwise: each is put in front.
	for i := len(lines) - 1; i >= 0; i-- {
		var err error
		if set, err = set.Add(lines[i]); err != nil {
			if i == 0 && f.latency != "none" {
				return nil, fmt.Errorf("--latency %s: write none or %s", f.latency, strings.Join(dial.Presets(), " or "))
			}
			return nil, fmt.Errorf("--dial: %w", err)
		}
	}
	return set, nil
}

// grace is how long calls in progress may take once the process is told to end.
const grace = 2 * time.Second

func listen(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(late); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("ending: %w", err)
	}
	return server.Close()
}

// writeFile puts the whole file in place at once, so that who waits for it never
// reads a part of it.
func writeFile(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".clouds-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(text); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
