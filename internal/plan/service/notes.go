// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// Reasons of notes.
const (
	ReasonAddress       = "ClusterIPUnusable" // no subnet for cluster IPs contains a cluster IP
	ReasonSubnet        = "SubnetNotShown"    // the cloud does not show a subnet of the configuration
	ReasonInvalid       = "InvalidValue"      // a field or annotation with an invalid value
	ReasonContradiction = "Contradiction"     // two values that exclude each other
	ReasonUnknown       = "UnknownAnnotation" // most likely a misspelled annotation
	ReasonUnsupported   = "Unsupported"       // Kuryr does not support it
	ReasonNoEffect      = "NoEffect"          // it has no effect with Kuryr
	ReasonNoNetwork     = "NoExternalNetwork" // no network for a floating IP is known
	ReasonLeftOut       = "EndpointsLeftOut"  // endpoints that are not members
	ReasonNotAllowed    = "NotAllowed"        // the configuration does not let Services name it
	ReasonTaken         = "ExternalIPTaken"   // an older Service has that external IP and port
	ReasonNotChanged    = "NotChanged"        // it is so in the cloud for what is made later only
)

// Note is a message for the author of a Service.
type Note struct {
	Reason string
	Field  string // of the Service, such as spec.externalIPs; endpoints; namespace, or a field of it
	Text   string // the problem, and what to do
	Info   bool   // the Service works nevertheless
	Values string // the values of this Service in Text
}

// String formats the note as one line.
func (n Note) String() string { return n.Reason + ": " + n.Field + ": " + n.Text }

// ID identifies a note by its reason, its field and its values, not by its words. The ID of a note
// about left out endpoints does not depend on the values: these endpoints may change at any time.
func (n Note) ID() string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %t", n.Field, n.Info)
	if n.Reason != ReasonLeftOut {
		fmt.Fprintf(h, " %s", n.Values)
	}
	return fmt.Sprintf("%s:%08x", n.Reason, h.Sum32())
}

// maxIDs is how many notes are recorded as reported. Further notes get no Events.
const maxIDs = 1000

// IDs returns the IDs of notes as one word.
func IDs(notes []Note) string {
	ids := map[string]bool{}
	for _, n := range notes[:min(len(notes), maxIDs)] {
		ids[n.ID()] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(ids)), ",")
}

// Fresh returns the notes that reported does not contain. IDs has written reported.
func Fresh(notes []Note, reported string) []Note {
	before := strings.Split(reported, ",")
	return slices.DeleteFunc(slices.Clone(notes[:min(len(notes), maxIDs)]), func(n Note) bool { return slices.Contains(before, n.ID()) })
}

func compareNotes(a, b Note) int {
	return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Text, b.Text))
}

// warn notes that the Service does not get what it requests.
func (p *planner) warn(reason, field, format string, args ...any) {
	p.notes = append(p.notes, Note{Reason: reason, Field: field, Text: fmt.Sprintf(format, args...), Values: fmt.Sprint(args...)})
}

// tell notes a request that has no effect.
func (p *planner) tell(field, format string, args ...any) {
	p.notes = append(p.notes, Note{Reason: ReasonNoEffect, Field: field, Text: fmt.Sprintf(format, args...), Info: true, Values: fmt.Sprint(args...)})
}
