package link_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
)

// Each exchange with the kernel is told of, as it is counted.
func TestExchangesAreToldOf(t *testing.T) {
	var told atomic.Uint64
	h, _ := kernelHandle(t, link.Options{Called: func(took time.Duration, err error) {
		told.Add(1)
		if errors.Is(err, context.DeadlineExceeded) || took < 0 || took > time.Minute {
			t.Errorf("it took %s: %v", took, err)
		}
	}})
	if _, err := h.There(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := told.Load(), h.Counters().Calls; got != want || got == 0 {
		t.Errorf("told of %d exchanges, %d were counted", got, want)
	}
}
