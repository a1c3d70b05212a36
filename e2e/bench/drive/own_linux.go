package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/e2e/bench/cell"
)

// ownServer is where kube-ipvs and kube-proxy show their settings unless told otherwise.
const ownServer = "http://127.0.0.1:10249"

var errNotTold = errors.New("the candidate does not tell")

// syncPeriod asks the candidate how often its ipvs mode looks at what is in the kernel:
// kube-ipvs by its metrics, for it looks less often where that takes long.
func (r *run) syncPeriod(ctx context.Context) (time.Duration, error) {
	if metrics, err := r.world.Node.Get(ctx, ownServer+"/metrics"); err == nil {
		if period := auditPeriod(string(metrics)); period > 0 {
			return period, nil
		}
	}
	text, err := r.world.Node.Get(ctx, ownServer+"/configz")
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNotTold, err)
	}
	return periodIn(text)
}

func periodIn(configz []byte) (time.Duration, error) {
	var all map[string]struct {
		IPVS struct{ SyncPeriod metav1.Duration }
	}
	if err := json.Unmarshal(configz, &all); err != nil {
		return 0, fmt.Errorf("read configz: %w", err)
	}
	period := all["kubeproxy.config.k8s.io"].IPVS.SyncPeriod.Duration
	if period <= 0 {
		return 0, fmt.Errorf("%w: no ipvs.syncPeriod in configz", errNotTold)
	}
	return period, nil
}

// auditPeriod is the time from the beginning of one round to that of the next, or from the
// start to the first; 0 where there is none.
func auditPeriod(metrics string) time.Duration {
	rest, round := metric(metrics, "kube_ipvs_audit_rest_seconds"), metric(metrics, "kube_ipvs_audit_round_seconds")
	if rest == 0 {
		return 0
	}
	return time.Duration((rest + round) * float64(time.Second))
}

// writing asks kube-ipvs what it needed to write its rows, by what the limit calls them.
func (r *run) writing(ctx context.Context) map[string]cell.Seconds {
	metrics, err := r.world.Node.Get(ctx, ownServer+"/metrics")
	if err != nil {
		return nil
	}
	return writingIn(string(metrics))
}

func writingIn(metrics string) map[string]cell.Seconds {
	out := map[string]cell.Seconds{}
	for name, tables := range map[string][]string{
		"sets": {"sets", "members"}, "ipvs": {"servers", "destinations"}, "addresses": {"addresses", "routes"}, "rules": {"chains", "jumps"},
	} {
		for _, table := range tables {
			if took := metric(metrics, fmt.Sprintf("kube_ipvs_write_seconds_total{table=%q}", table)); took > 0 {
				out[name] += cell.Seconds(took)
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// metric finds the value of a series in the text format of Prometheus; 0 where there is none.
func metric(text, series string) float64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, _ := strconv.ParseFloat(strings.TrimSpace(value), 64) // 0 is none, too
			return n
		}
	}
	return 0
}
