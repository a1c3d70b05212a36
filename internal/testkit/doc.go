// Package testkit is the roof over what tests of several rooms share. It is
// imported by _test files only.
//
//	build    short constructors for model values
//	golden   comparison with files in testdata, rewritten by -update
//	poll     waits for states that others bring about
//	scenario behaviours written down as files, on fakes or on a kernel
//	walk     the model test: random operations, and what they shrink to
//
// What is here must make a test easier to read, not shorter at any price: a
// row of a table should still show the input that it is about.
package testkit
