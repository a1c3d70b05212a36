package events_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/events"
	"github.com/kube-ipvs/kube-ipvs/internal/testkit/golden"
)

// A final message is written before the process ends, with or without Run, within a time limit even
// if the API server is slow.
func TestLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, events.Options{})
		r.onCreate = func() error { time.Sleep(time.Second); return nil }
		r.SendFinal(t.Context(), events.FailedToStartMetricServer, "listen tcp 127.0.0.1:10249: bind: address already in use")
		golden.Check(t, "event_last.json", pretty(t, r.only()))
		r.wantDropped(0)

		r.onCreate = func() error { return context.DeadlineExceeded }
		r.SendFinal(t.Context(), events.FailedToStartMetricServer, "again")
		r.wantDropped(1)
	})
	var none *events.Recorder
	none.SendFinal(t.Context(), events.Starting, "")
}
