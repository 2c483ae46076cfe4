// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"fmt"
	"strings"
)

// names returns n different words, each with tail.
func names(n int, tail string) []string {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprintf("n%d%s", i, tail))
	}
	return s
}

// list is a YAML list of n different words.
func list(n int) string { return "[" + strings.Join(names(n, ""), ", ") + "]" }

// ips is the inside of a YAML list of n different addresses.
func ips(n int) string {
	var s []string
	for i := range n {
		s = append(s, fmt.Sprintf("{ip: 10.0.0.%d, prefixLength: 24}", i+1))
	}
	return strings.Join(s, ", ")
}
