// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuryr-go/kuryr/openstacksim"
)

const defaultURL = "http://127.0.0.1:5000"

// whereItListens is what serve prints, as a shell keeps it.
func whereItListens() string { return cmp.Or(os.Getenv("OPENSTACK_SIM"), defaultURL) }

// reportCommand is `openstack-sim report`.
func reportCommand() *cobra.Command {
	var url string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Show what a running openstack-sim was asked, and what exists in it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := ask(cmd.Context(), http.MethodGet, url+"/sim/report", nil)
			if err != nil {
				return err
			}
			var r openstacksim.Report
			if err := json.Unmarshal(text, &r); err != nil {
				return fmt.Errorf("reading the report of %s: %w", url, err)
			}
			return show(cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().StringVar(&url, "url", whereItListens(), "where it listens; default: $OPENSTACK_SIM")
	return cmd
}

// show prints r for a person.
func show(out io.Writer, r openstacksim.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tMETHOD\tRESOURCE\tCALLS\tITEMS\tP50\tP99\tOUTCOMES")
	for _, c := range r.Calls {
		items := "-"
		if c.Items > 0 {
			items = fmt.Sprint(c.Items)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%v\t%v\t%s\n", c.Service, c.Method, c.Resource, c.Calls, items,
			short(c.P50), short(c.P99), outcomes(c.Outcomes))
	}
	if len(r.Calls) == 0 {
		fmt.Fprintln(w, "nothing was asked yet\t\t\t\t\t\t\t")
	}
	fmt.Fprintln(w, "\t\t\t\t\t\t\t")
	fmt.Fprintln(w, "EXISTS\tNUMBER\t\t\t\t\t\t")
	for _, kind := range sortedKeys(r.Objects) {
		fmt.Fprintf(w, "%s\t%d\t\t\t\t\t\t\n", kind, r.Objects[kind])
	}
	return w.Flush()
}

// short is d with no more digits than one reads.
func short(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d
}

func outcomes(counts map[string]int) string {
	var parts []string
	for _, o := range sortedKeys(counts) {
		parts = append(parts, fmt.Sprintf("%s×%d", o, counts[o]))
	}
	return strings.Join(parts, " ")
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// dialsCommand is `openstack-sim dials`.
func dialsCommand() *cobra.Command {
	var url string
	cmd := &cobra.Command{Use: "dials", Short: "Show or change what a running openstack-sim does badly"}
	cmd.PersistentFlags().StringVar(&url, "url", whereItListens(), "where it listens; default: $OPENSTACK_SIM")
	get := &cobra.Command{
		Use: "get", Short: "Show what is dialled", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := ask(cmd.Context(), http.MethodGet, url+"/sim/dials", nil)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	change := func(use, short, method string) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			text, err := read(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			_, err = ask(cmd.Context(), method, url+"/sim/dials", text)
			return err
		}}
	}
	clean := &cobra.Command{
		Use: "reset", Short: "Dial nothing any more", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := ask(cmd.Context(), http.MethodDelete, url+"/sim/dials", nil)
			return err
		},
	}
	cmd.AddCommand(get, clean,
		change("set FILE", "Dial what the file says and nothing else; - is standard input", http.MethodPut),
		change("add FILE", "Dial what the file says in front of the rest; - is standard input", http.MethodPatch))
	return cmd
}

func read(in io.Reader, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(path)
}

// ask sends one request to a running openstack-sim.
func ask(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("--url: asking openstack-sim: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", url, err)
	}
	if answer.StatusCode/100 != 2 {
		var said struct{ Error string }
		if json.Unmarshal(text, &said) == nil && said.Error != "" {
			return nil, fmt.Errorf("%s", said.Error)
		}
		return nil, fmt.Errorf("%s answered %s: is that openstack-sim?", url, answer.Status)
	}
	return text, nil
}
