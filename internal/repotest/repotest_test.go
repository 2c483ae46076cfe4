// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package repotest has tests of the whole repository that no compiler makes: of documents, of
// commands in texts, of the names of tests, and of the steps of CI. Each one changes to the
// repository's folder first; go test repeats it when a file changes that it has read there.
package repotest

// root is where the tests run: paths are those of the documents.
const root = "../.."
