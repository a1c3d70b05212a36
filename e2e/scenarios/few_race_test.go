//go:build race

package scenarios_test

// few has one call of a scenario fail, or crash: the race detector makes each run
// slow and finds what it can find in any of them.
const few = true
