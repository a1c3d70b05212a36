package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownServer is where kube-ipvs and kube-proxy show their settings unless told otherwise.
const ownServer = "http://127.0.0.1:10249"

var errNotTold = errors.New("the candidate does not tell")

// syncPeriod asks the candidate how often its ipvs mode looks at what is in the kernel.
func (r *run) syncPeriod(ctx context.Context) (time.Duration, error) {
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
