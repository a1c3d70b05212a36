// Package testkit is the parent of packages that tests of several packages share. It is imported by
// _test files only.
//
//	build      short constructors for model values
//	golden     comparison with files in testdata, rewritten by -update
//	poll       waits for states that others bring about
//	scenario   behaviours written down as files, on fakes or on a kernel
//	randomops  the model test: random operations, and what they shrink to
//
// Helpers here must make a test easier to read, not just shorter: a row of a table should still
// show its input.
package testkit
