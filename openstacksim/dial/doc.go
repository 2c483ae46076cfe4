// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package dial says how a simulated cloud shall misbehave: which calls take how
// long, which fail and in what way, which ports never become active, which load
// balancers go to ERROR. It parses what a person writes, and chooses.
//
// The choice is a function of the seed, the rule and how often the rule was
// asked: the same seed and the same calls in the same order give the same run,
// and one rule's calls do not shift another's.
//
// It waits for nothing and answers nothing; the simulator does that.
package dial
