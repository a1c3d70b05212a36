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

// auditPeriod is the time from the beginning of one round to that of the next; 0 where
// there was none.
func auditPeriod(metrics string) time.Duration {
	var seconds float64
	for line := range strings.Lines(metrics) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "kube_ipvs_audit_rest_seconds" && name != "kube_ipvs_audit_round_seconds" {
			continue
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n == 0 {
			return 0
		}
		seconds += n
	}
	return time.Duration(seconds * float64(time.Second))
}
