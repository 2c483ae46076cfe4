// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package dial describes the faults of a simulated cloud: which calls take how long, which fail and
// how, which ports never become active, which load balancers go to ERROR. It parses a person's
// text, and chooses.
//
// The choice depends on the seed, the rule and the number of the rule's calls: the same seed and
// the same calls in the same order give the same run, and one rule's calls do not shift another's.
//
// The package neither waits nor answers; the simulator does.
package dial
