package telemetry_test

import (
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

// The names and help texts are what dashboards and people go by: a change of any of
// them shows here.
func TestMetricsAreAsWritten(t *testing.T) {
	metrics, slis := fed(t)
	golden.Check(t, "metrics.txt", masked(metrics))
	golden.Check(t, "slis.txt", masked(slis))
}

var (
	// foreign are metrics whose list depends on the release of Go and on the kernel.
	foreign = regexp.MustCompile(`^(# (HELP|TYPE) )?(go|process)_`)
	// shared figures are those of the whole test process.
	shared = regexp.MustCompile(`^(rest_client_.*) \S+\n`)
)

func masked(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !foreign.MatchString(line) {
			out.WriteString(shared.ReplaceAllString(line, "$1 ~\n"))
		}
	}
	return strings.NewReplacer(runtime.Version(), "GO", runtime.GOOS+"/"+runtime.GOARCH, "OS/ARCH").Replace(out.String())
}
