package top

// RunWith is Run on a terminal of the test's own.
var RunWith = run
