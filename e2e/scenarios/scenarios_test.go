package scenarios_test

import (
	"flag"
	"os"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/scenario"
)

var update = flag.Bool("update", false, "rewrite what the scenarios expect to what the fakes show, then read the difference")

// TestMain lets many scenarios wait at a time: they hardly compute.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestOnFakes runs every scenario on fakes of the kernel.
func TestOnFakes(t *testing.T) {
	scenario.Run(t, scenario.Options{
		Files: scenario.List(t, "testdata"), Driver: "fakes", Update: *update,
		Open: func(work string) (scenario.Driver, error) { return scenario.NewFakes(work), nil },
	})
}
