//go:build race

package scenarios_test

// stride leaves calls out, for the race detector makes each run slow and finds
// what it can find in a few of them.
const stride = 7
