package scenarios_test

import (
	"flag"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

var update = flag.Bool("update", false, "rewrite what the scenarios expect to what the fakes show, then read the difference")

// TestMain lets many scenarios wait at a time, and collect garbage seldom: each run
// is a small program that lives for milliseconds.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// TestOnFakes runs every scenario on fakes of the kernel.
func TestOnFakes(t *testing.T) {
	scenario.Run(t, scenario.Options{
		Files: scenario.List(t, "testdata"), Driver: "fakes", Update: *update,
		Open: func(work string) (scenario.Driver, error) { return scenario.NewFakes(work), nil },
	})
}

// ofIPTables tells a scenario of iptables mode from one of ipvs mode by its name.
func ofIPTables(file string) bool { return strings.HasPrefix(filepath.Base(file), "iptables-") }
