// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// table aligns columns as kubectl does.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, columns ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)}
	t.row(columns...)
	return t
}

// row adds a line. An error of the writer shows in flush.
func (t *table) row(cells ...string) { _, _ = fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

// field adds a line with a name and a value, unless the value is empty.
func (t *table) field(name, value string) {
	if value != "" {
		t.row(name+":", value)
	}
}

func (t *table) flush() error { return t.w.Flush() }

// prints returns what runs a command that has --output: do with a client, if the format is a known one.
func (t *tool) prints(format *string, known []string, do func(*cobra.Command, client.Client, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if *format != "" && !slices.Contains(known, *format) {
			return fmt.Errorf("--output is %q: write %s", *format, strings.Join(known, ", "))
		}
		c, err := t.client()
		if err != nil {
			return err
		}
		return do(cmd, c, args)
	}
}

// encode writes v as JSON or YAML.
func encode(w io.Writer, format string, v any) error {
	data, err := json.MarshalIndent(v, "", "    ")
	if err == nil && format == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", format, err)
	}
	_, err = fmt.Fprintln(w, strings.TrimRight(string(data), "\n"))
	return err
}

// age is how long ago since was, in kubectl's words.
func age(now time.Time, since metav1.Time) string {
	if since.IsZero() {
		return "unknown"
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

// short writes a duration without units that are zero: 10m, not 10m0s.
func short(d metav1.Duration) string {
	s := d.Duration.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// count writes n of a thing.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// listOf is objects as one list that kubectl understands, without who wrote which field.
func listOf(objects ...client.Object) any {
	items := []any{}
	for _, o := range objects {
		items = append(items, named(o))
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
}

// named sets an object's kind, which the items of a list lack, and removes the managed fields.
func named(o client.Object) client.Object {
	gvk := v1.GroupVersion.WithKind(reflect.TypeOf(o).Elem().Name())
	if gvk.Kind == "Service" {
		gvk = corev1.SchemeGroupVersion.WithKind(gvk.Kind)
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	o.SetManagedFields(nil)
	return o
}
