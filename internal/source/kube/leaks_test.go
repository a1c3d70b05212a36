package kube_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// No test leaves a goroutine of the package behind. Most of them wait out
// the pauses between two tries, so many at once take no longer than few.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
