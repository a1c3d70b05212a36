package agent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Where something changes all the time the log has a few lines a second.
func TestUpdatesAreFewLines(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(5 * time.Second)
		w.logs.TakeAll()
		for i := range 200 {
			w.SetService(service(fmt.Sprint("s", i), fmt.Sprintf("10.96.1.%d", i+1)))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if n := w.logs.FilterMessage("kernel updated").Len(); n < 8 || n > 24 {
			w.Errorf("%d lines in two seconds, want 8 for each second or part of one", n)
		}
	})
}
