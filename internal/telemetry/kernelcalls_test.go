package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/telemetry"
)

func TestKernelCalls(t *testing.T) {
	m := telemetry.New()
	m.KernelCall("link", time.Millisecond, nil)
	m.KernelCall("link", 5*time.Second, fmt.Errorf("no answer: %w", context.DeadlineExceeded))
	m.KernelCall("vserver", time.Second, errors.New("refused"))
	m.KernelCall("vserver", time.Second, context.Canceled) // told to stop
	wants(t, get(t, m.Handler()),
		`kube_ipvs_kernel_call_duration_seconds_count{room="link"} 2`, `kube_ipvs_kernel_call_duration_seconds_bucket{room="link",le="0.0016"} 1`,
		`kube_ipvs_kernel_call_timeouts_total{room="link"} 1`, `kube_ipvs_kernel_call_timeouts_total{room="vserver"} 0`)
}
