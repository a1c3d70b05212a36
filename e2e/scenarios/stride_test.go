//go:build !race

package scenarios_test

// stride is 1: every call fails in its turn.
const stride = 1
