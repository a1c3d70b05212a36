package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// kernelCalls are calls to parts of the kernel: one exchange over netlink, one read of a list, or
// one process of iptables.
type kernelCalls struct {
	took *prometheus.HistogramVec
	late *prometheus.CounterVec
}

func newCalls(registry *prometheus.Registry) kernelCalls {
	c := kernelCalls{
		took: histograms(ours+"kernel_call_duration_seconds", "Duration of calls to a part of the kernel; room is that part, metrics are the calls that read values for /metrics.",
			prometheus.ExponentialBuckets(0.0001, 4, 9), "room"), // 0.1 ms to 6.6 s
		late: counters(ours+"kernel_call_timeouts_total", "Calls to a part of the kernel that were abandoned at their deadline.", "room"),
	}
	registry.MustRegister(c.took, c.late)
	return c
}

// KernelCall shows one call of a part of the kernel. Any goroutine may call it.
func (m *Metrics) KernelCall(room string, took time.Duration, err error) {
	m.calls.took.WithLabelValues(room).Observe(took.Seconds())
	late := m.calls.late.WithLabelValues(room) // there from the first call on, for rate()
	if errors.Is(err, context.DeadlineExceeded) {
		late.Inc()
	}
}
