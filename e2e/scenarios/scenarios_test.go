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

// TestOnNFTFakes runs every scenario of ipvs mode on fakes of a kernel whose rules and sets are in
// nftables.
func TestOnNFTFakes(t *testing.T) {
	scenario.Run(t, scenario.Options{
		Files: withNFT(t), Driver: "fakes",
		Open: func(work string) (scenario.Driver, error) { return scenario.NewNFTFakes(work), nil },
	})
}

// withoutNFT are scenarios about what only iptables and ipset have, and why.
var withoutNFT = map[string]string{
	"adopted-iptables-mode":    "the rules of kube-proxy's iptables mode are in iptables",
	"bad-overlapping-ranges":   "nftables keeps no network that another one contains: TestRanges in dataplane/ipvs/nftrules",
	"foreign-rules-kept":       "other programs have tables of their own, which kernel/nft cannot name",
	"set-of-larger-size":       "sets of nftables have no limit",
	"set-of-wrong-type-in-use": "nftables refuses the rule that uses the set as one of the wrong type",
}

// withNFT lists the scenarios that a node without iptables runs, and skips the others.
func withNFT(t *testing.T) (out []string) {
	t.Helper()
	for _, file := range scenario.List(t, "testdata") {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		why := withoutNFT[name]
		if ofIPTables(file) {
			why = "it runs iptables mode, which needs iptables"
		}
		if why == "" {
			out = append(out, file)
			continue
		}
		t.Run("skipped/"+name, func(t *testing.T) { t.Skip(why) })
	}
	return out
}

// ofIPTables tells a scenario of iptables mode from one of ipvs mode by its name.
func ofIPTables(file string) bool { return strings.HasPrefix(filepath.Base(file), "iptables-") }
