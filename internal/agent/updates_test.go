package agent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

// Where something changes all the time the log has a line a second, and no pass is
// missing in it.
func TestUpdatesAreToldTogether(t *testing.T) {
	m := newMode()
	run(t, m, func(w *world) {
		w.SetState(model.FromFile, source.Complete)
		w.after(5 * time.Second)
		w.logs.TakeAll()
		for i := range 40 {
			w.SetService(service(fmt.Sprint("s", i), fmt.Sprintf("10.96.0.%d", i+1)))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		lines, passes, services := 0, int64(0), int64(0)
		for _, e := range w.logs.FilterMessage("kernel updated").All() {
			lines++
			f := e.ContextMap()
			services += f["services"].(int64)
			if n, several := f["passes"].(int64); several {
				passes += n
			} else {
				passes++
			}
		}
		if lines < 2 || lines > 8 || passes < 40 || services != 40 {
			w.Errorf("%d lines tell of %d passes with %d services, want a few, 40 or more, and 40", lines, passes, services)
		}
	})
}
