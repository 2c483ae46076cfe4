// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package preflight says what of a cloud and a cluster keeps Kuryr from serving pods and
// Services, from facts that were read before. Each finding has a name, a severity and a remedy.
// The package reads nothing itself.
//
// Some things no fact shows, so no check is made: whether nodes have a route to the pods' subnet,
// whether pods reach management networks, and what a credential may write.
package preflight

// Severity says what a finding means for users.
type Severity string

const (
	// Error is a finding with which pods or Services do not work.
	Error Severity = "Error"
	// Warning is a finding that will harm later, or part of what Kuryr serves.
	Warning Severity = "Warning"
	// Unknown is a check that could not be made, because the credential may not read, or the
	// cloud did not answer.
	Unknown Severity = "Unknown"
)

// Finding is one thing that is wrong.
type Finding struct {
	Name     string   `json:"name"`     // in CamelCase, for scripts: the same in each version
	Severity Severity `json:"severity"` // what it means
	// Part says that it concerns a single project, namespace, node or Service, some pods, or nothing
	// that there is. Any other one concerns all pods or all Services, or all public ones.
	Part    bool     `json:"-"`
	Object  string   `json:"object"`  // what it is about, with the field of the configuration that names it
	Message string   `json:"message"` // what is wrong, and what follows from it
	Remedy  []string `json:"remedy"`  // commands that mend it, in order; empty: Message says what to do
	// Unavailable says of an Unknown one that a request was not answered. Then findings of earlier
	// checks of this name may still hold.
	Unavailable bool `json:"-"`
}

// Report is the result of all checks.
type Report struct {
	Findings []Finding `json:"findings"` // errors first, then warnings; else in the order of the checks
	Passed   []string  `json:"passed"`   // names of the checks without a finding
}
