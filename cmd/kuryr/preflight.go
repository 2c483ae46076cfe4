// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	checks "github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/internal/preflight"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

type preflightFlags struct {
	config, kubeconfig string
	makes, dryRun      bool
	router             string
	podRanges          []string
	output             string
	timeout            time.Duration
}

// Exit codes of kuryr preflight, besides 0.
const (
	exitFindings   = 1 // a finding of severity Error
	exitNotChecked = 2 // no such finding, and a check could not be made; or none could
)

// exit is an error that ends the process with a code of its own. Nothing is printed if err is nil.
// It hides err: an interrupted check is no success.
type exit struct {
	code int
	err  error
}

// Error returns the text of the error.
func (e exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// preflightCommand is `kuryr preflight`, which checks the cloud and the cluster. It changes nothing
// without --make.
func preflightCommand() *cobra.Command {
	var f preflightFlags
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Check that the cloud and the cluster have what Kuryr needs",
		Long: "Reads from the cloud and from the cluster what keeps Kuryr from serving pods and\n" +
			"Services, and prints each finding with the commands that mend it. It changes\n" +
			"nothing without --make.\n" +
			"The controller makes the same checks once an hour: kubectl get kuryrclusters.\n\n" +
			"Run it with the configuration and the credential of the controller. Exit codes:\n" +
			"0: no finding of severity Error. 1: a finding of severity Error.\n" +
			"2: no such finding, and some checks could not be made; or none could.\n\n" +
			"With --make it first makes, for a first start, what the configuration does not name:\n" +
			"network and subnets of pods and of cluster IPs, their interfaces on the router, and the\n" +
			"security group of pods. It prints the lines for the configuration, and may be repeated.",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return exit{exitNotChecked, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runPreflight(cmd.Context(), cmd.OutOrStdout(), f)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit{exitNotChecked, err} })
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "/etc/kuryr/kuryr.yaml", "configuration file")
	flags.StringVar(&f.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; empty: the service account of the pod")
	flags.StringVarP(&f.output, "output", "o", "text", "how the result is printed: text or json")
	flags.BoolVar(&f.makes, "make", false, "make what a first start needs and the configuration does not name, then check")
	flags.BoolVar(&f.dryRun, "dry-run", false, "with --make: show what would be made")
	flags.StringVar(&f.router, "router", "", "with --make: ID of the router; empty: networks.routerID, or the project's only router")
	flags.StringSliceVar(&f.podRanges, "pods-range", []string{"10.128.0.0/16"}, "with --make: prefix of the subnet of pods, or one of each address family")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long all checks may take together")
	return cmd
}

func runPreflight(ctx context.Context, w io.Writer, f preflightFlags) error {
	if f.output != "text" && f.output != "json" {
		return exit{exitNotChecked, fmt.Errorf("--output is %q: write text or json", f.output)}
	}
	if err := f.check(); err != nil {
		return exit{exitNotChecked, err}
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	report, missing, err := preflightReport(ctx, w, f)
	if err != nil {
		return exit{exitNotChecked, err}
	}
	if missing > 0 {
		return exit{code: exitFindings}
	}
	if f.output == "json" {
		err = printJSON(w, report)
	} else {
		err = printReport(w, report)
	}
	if err != nil {
		return exit{exitNotChecked, fmt.Errorf("printing the result: %w", err)}
	}
	if code := exitCode(report); code != 0 {
		return exit{code: code}
	}
	return nil
}

// preflightReport makes the checks. Missing is how many things --make would make in a dry run: then
// the checks are not made.
func preflightReport(ctx context.Context, w io.Writer, f preflightFlags) (report checks.Report, missing int, err error) {
	load := loadConfig
	if f.makes {
		load = config.LoadDraft
	}
	to, err := connect(ctx, f.config, f.kubeconfig, load)
	if err != nil {
		return checks.Report{}, 0, err
	}
	if f.makes {
		missing, err = makeFirst(ctx, w, f, preflight.Maker{Cloud: to.backend, Kubernetes: to.client, Config: to.config})
		if err != nil || missing > 0 {
			return checks.Report{}, missing, err
		}
	}
	cloud := withTenants(to.backend, func() []config.Project { return to.config.Projects }, nil)
	return preflight.Run(ctx, preflight.Sources{Cloud: cloud, Kubernetes: to.client, Config: to.config}), 0, nil
}

func exitCode(report checks.Report) int {
	code := 0
	for _, f := range report.Findings {
		switch f.Severity {
		case checks.Error:
			return exitFindings
		case checks.Unknown:
			code = exitNotChecked
		case checks.Warning:
		}
	}
	return code
}

var headings = map[checks.Severity]string{
	checks.Error:   "Errors: pods or Services do not work",
	checks.Warning: "Warnings: it will harm later, or a part",
	checks.Unknown: "Not checked",
}

// printReport prints findings by severity, then the names of the checks without a finding.
func printReport(w io.Writer, report checks.Report) error {
	var out strings.Builder
	count := map[checks.Severity]int{}
	for _, severity := range []checks.Severity{checks.Error, checks.Warning, checks.Unknown} {
		for _, f := range report.Findings {
			if f.Severity != severity {
				continue
			}
			if count[severity] == 0 {
				fmt.Fprintf(&out, "%s\n\n", headings[severity])
			}
			count[severity]++
			printFinding(&out, f)
		}
	}
	if len(report.Passed) > 0 {
		fmt.Fprintf(&out, "Passed: nothing of this was found\n\n%s\n", wrap(strings.Join(report.Passed, ", "), "  "))
	}
	fmt.Fprintf(&out, "Errors: %d, warnings: %d, not checked: %d, passed: %d\n",
		count[checks.Error], count[checks.Warning], count[checks.Unknown], len(report.Passed))
	_, err := io.WriteString(w, out.String())
	return err
}

func printFinding(out *strings.Builder, f checks.Finding) {
	fmt.Fprintf(out, "  %s", f.Name)
	if f.Object != "" {
		fmt.Fprintf(out, ": %s", f.Object)
	}
	fmt.Fprintf(out, "\n%s", wrap(f.Message, "    "))
	for _, command := range f.Remedy {
		fmt.Fprintf(out, "      $ %s\n", command)
	}
	out.WriteString("\n")
}

// width is the length of lines of text. Commands are not wrapped.
const width = 100

// wrap returns a text in indented lines.
func wrap(text, indent string) string {
	var out strings.Builder
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && len(line)+len(word) > width {
			out.WriteString(strings.TrimRight(line, " ") + "\n")
			line = indent
		}
		line += word + " "
	}
	out.WriteString(strings.TrimRight(line, " ") + "\n")
	return out.String()
}

// printJSON prints the report as one JSON object with the lists findings and passed.
func printJSON(w io.Writer, report checks.Report) error {
	report.Passed, report.Findings = append([]string{}, report.Passed...), append([]checks.Finding{}, report.Findings...)
	for i := range report.Findings { // lists are never null
		report.Findings[i].Remedy = append([]string{}, report.Findings[i].Remedy...)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(report)
}

// liveChecks are the preflight checks of a controller, with the configuration in use.
type liveChecks struct {
	sources preflight.Sources
	live    *settings.Live
}

// Check makes the checks.
func (l liveChecks) Check(ctx context.Context) checks.Report {
	l.sources.Config = l.live.Load()
	return preflight.Run(ctx, l.sources)
}

// check checks the flags that belong together.
func (f *preflightFlags) check() error {
	switch {
	case !f.makes && (f.dryRun || f.router != ""):
		return errors.New("--dry-run and --router have an effect with --make only: add --make, or remove them")
	case f.makes && f.output != "text":
		return errors.New("--make prints text: remove --output, and run the command again without --make for json")
	}
	_, err := f.ranges()
	return err
}

// ranges returns --pods-range.
func (f *preflightFlags) ranges() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range f.podRanges {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Masked() != p {
			return nil, fmt.Errorf("--pods-range is %q: write a prefix, as in 10.128.0.0/16", text)
		}
		for _, o := range out {
			if o.Addr().Is4() == p.Addr().Is4() {
				return nil, fmt.Errorf("--pods-range has %s and %s of one address family: write one of each", o, p)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// makeFirst makes what a first start needs. It prints each thing, and the lines for the
// configuration.
func makeFirst(ctx context.Context, w io.Writer, f preflightFlags, m preflight.Maker) (missing int, err error) {
	if m.PodRanges, err = f.ranges(); err != nil {
		return 0, err
	}
	m.RouterID, m.DryRun = f.router, f.dryRun
	var said strings.Builder
	m.Tell = func(s sdn.Setup, id string, made bool) { said.WriteString(toldOf(s, id, made, f.dryRun)) }
	missing, err = m.Make(ctx)
	said.WriteString("\n")
	if err == nil && missing == 0 {
		pods, services := m.Config.Pods, m.Config.Services
		fmt.Fprintf(&said, "Write into the configuration, if it is not there yet:\n\npods:\n  subnetIDs: [%s]\n  securityGroupIDs: [%s]\nservices:\n  subnetIDs: [%s]\n\n",
			strings.Join(pods.SubnetIDs, ", "), strings.Join(pods.SecurityGroupIDs, ", "), strings.Join(services.SubnetIDs, ", "))
	}
	if _, printErr := io.WriteString(w, said.String()); printErr != nil && err == nil {
		err = fmt.Errorf("printing what was made: %w", printErr)
	}
	return missing, err
}

// toldOf is the line about a thing.
func toldOf(s sdn.Setup, id string, made, dryRun bool) string {
	verb := "exists"
	switch {
	case made && dryRun:
		verb = "would be made"
	case made:
		verb = "made"
	}
	what := strings.TrimSpace(string(s.Kind) + " " + s.Name)
	if s.Prefix.IsValid() {
		what += " " + s.Prefix.String()
	}
	if s.Kind == sdn.SetupRouterInterface {
		id = cmp.Or(s.RouterID, id)
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s %s", what, verb, id)) + "\n"
}
