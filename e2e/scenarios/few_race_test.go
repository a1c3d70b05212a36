//go:build race

package scenarios_test

// few leaves all calls of a scenario out but one, for the race detector makes each
// run slow and finds what it can find in any of them.
const few = true
